//! How requests end, and what they cost then.

use std::io::Read as _;
use std::net::TcpListener;

use super::{BODY, BUDGET, Budget, ESTIMATE, EXAMPLE};
use crate::support::{http, wait_for};

#[test]
fn an_error_of_the_model_costs_nothing() {
    let budget = Budget::start();
    assert_eq!(budget.cost("/fails", BODY), (503, ESTIMATE, 0));
    assert_eq!(budget.remaining(), BUDGET);
}

#[test]
fn a_request_that_envoy_repeats_is_reserved_once() {
    let route = "timeout: 600s";
    assert!(EXAMPLE.contains(route));
    let retries = format!("{route}, retry_policy: {{ retry_on: 5xx, num_retries: 2 }}");
    let budget = Budget::with(&EXAMPLE.replace(route, &retries));
    assert_eq!(budget.cost("/fails", BODY), (503, ESTIMATE, 0));
    assert_eq!(budget.model().seen(), 3);
}

#[test]
fn a_model_that_is_down_costs_nothing() {
    // Its port is free again.
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listeners, clusters) = EXAMPLE.split_once("\n  clusters:\n").unwrap();
    let clusters = clusters.replace("port_value: 10001 ", &format!("port_value: {down} "));
    let budget = Budget::with(&format!("{listeners}\n  clusters:\n{clusters}"));
    assert_eq!(budget.cost("/json/123", BODY), (503, ESTIMATE, 0));
}

#[test]
fn a_denied_request_has_no_end() {
    let budget = Budget::start();
    let calls = || budget.envoy.calls_to(budget.weir.grpc);
    assert_eq!(budget.cost("/json/9950", BODY), (200, ESTIMATE, 9_950));
    let before = calls();
    for _ in 0..5 {
        assert_eq!(budget.ask("/json/1", BODY), 429);
    }
    // An end that was sent would come before that of this request.
    assert_eq!(budget.ask_as("bob", "/json/123", BODY), 200);
    assert_eq!(budget.wait_for_ends(2).unknown, 0);
    assert_eq!(calls(), before + 7);
    assert_eq!(budget.remaining(), 50);
}

#[test]
fn a_client_that_hangs_up_pays_the_default() {
    let budget = Budget::start();
    for (path, what) in [("/slow/123", "before the headers"), ("/slow-stream/123", "after events")]
    {
        let before = budget.counts();
        let mut call = budget.send(path, BODY);
        wait_for(what, || (budget.model().held() == 1).then_some(()));
        if path == "/slow-stream/123" {
            assert!(call.read(&mut [0; 1024]).unwrap() > 0);
        }
        drop(call);
        assert_eq!(budget.cost_since(before), (ESTIMATE, ESTIMATE), "{what}");
        budget.model().release(1);
        wait_for("the model ends", || (budget.model().held() == 0).then_some(()));
    }
}

/// The end is not sent, because an expression that asks for a status fails where there is none.
#[test]
fn an_end_must_not_ask_for_a_status_that_is_missing() {
    let guarded = "has(response.code) && response.code >= 400";
    assert!(EXAMPLE.contains(guarded));
    let budget = Budget::with(&EXAMPLE.replace(guarded, "response.code >= 400"));
    assert_eq!(budget.cost("/fails", BODY), (503, ESTIMATE, 0));
    let call = budget.send("/slow/123", BODY);
    wait_for("the model", || (budget.model().held() == 1).then_some(()));
    drop(call);
    let ended = || budget.envoy.stat("http.ingress.downstream_cx_destroy_remote_active_rq");
    wait_for("Envoy notices", || (ended() == 1).then_some(()));
    // The end of another request is counted, and not that of the first one.
    assert_eq!(budget.ask_as("bob", "/json/123", BODY), 200);
    let counts = budget.wait_for_ends(2);
    assert_eq!((counts.reservations, counts.settlements, counts.unknown), (3, 2, 0));
    assert_eq!(budget.remaining(), BUDGET - ESTIMATE, "it stays reserved");
}

/// Envoy answers 413 itself, before it asks weir, and 500 for an answer.
#[test]
fn what_does_not_fit_the_buffer_costs_nothing() {
    let budget = Budget::start();
    let calls = || budget.envoy.calls_to(budget.weir.grpc);
    let before = calls();
    let body = "a".repeat(2 << 20);
    let headers = [("x-user", "ann"), ("content-type", "application/json")];
    // Envoy answers and disconnects before it has read all of it, so the client may miss the answer.
    let _ = http::ask(budget.envoy.address, "POST", "/json/123", &headers, body.as_bytes());
    let too_large = || budget.envoy.stat("http.ingress.downstream_rq_too_large");
    wait_for("413", || (too_large() == 1).then_some(()));
    assert_eq!(calls(), before);
    assert_eq!(budget.cost("/large/123", BODY), (500, ESTIMATE, 0));
}
