//! Requests that Envoy sends at the end of a stream: holds released, and costs charged afterwards.

mod cancelled;

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use crate::support::envoy::{self, Envoy};
use crate::support::weir::{Weir, serving};
use crate::support::{http, wait_for};

/// Concurrency limits of `n`: of the service `reports` by request ID, and of `counted` without.
fn rules(n: u32) -> String {
    format!(
        "domain: edge
descriptors:
  - key: service
    value: reports
    descriptors:
      - key: request_id
        rate_limit: {{ algorithm: concurrency, requests_per_unit: {n}, hold_id: request_id, hold_timeout: 1h }}
  - key: service
    value: counted
    rate_limit: {{ algorithm: concurrency, requests_per_unit: {n}, hold_timeout: 1h }}
"
    )
}

/// The limits of a route that takes a hold at the start of a request and releases it at the end.
fn holds(actions: &str) -> String {
    format!(
        "{{ actions: [{actions}] }}, {{ actions: [{actions}], \
         apply_on_stream_done: true, hits_addend: {{ number: 1, is_negative_hits: true }} }}"
    )
}

/// Starts an Envoy that takes a hold for each request.
fn envoy_with_holds(weir: &Weir, actions: &str) -> Envoy {
    envoy::in_front_of(weir, &format!("rate_limits: [ {} ]", holds(actions)))
}

const BY_REQUEST_ID: &str = "{ generic_key: { descriptor_key: service, descriptor_value: reports } }, \
     { request_headers: { header_name: x-request-id, descriptor_key: request_id } }";
const WITHOUT_ID: &str = "{ generic_key: { descriptor_key: service, descriptor_value: counted } }";

fn slow(address: SocketAddr) -> JoinHandle<u16> {
    thread::spawn(move || http::get(address, "/slow").status)
}

/// Three requests are admitted and held, however many others are sent. When one ends, another is
/// admitted.
fn admits_three_at_once(envoy: &Envoy) {
    let backend = &envoy.backend;
    let mut held: Vec<_> = (0..3).map(|_| slow(envoy.address)).collect();
    wait_for("three are held", || (backend.held() == 3).then_some(()));
    for _ in 0..3 {
        // Their streams end too, and must not release anything.
        let refused: Vec<_> = (0..10).map(|_| slow(envoy.address)).collect();
        let statuses: Vec<u16> = refused.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(statuses, [429; 10]);
    }
    assert_eq!(backend.held(), 3);

    backend.release(1);
    wait_for("one ends", || held.iter().any(JoinHandle::is_finished).then_some(()));
    // Envoy reports the end only after the client has its response.
    let next = wait_for("another is admitted", || {
        let next = slow(envoy.address);
        wait_for("it is held or refused", || {
            (next.is_finished() || backend.held() == 3).then_some(())
        });
        (!next.is_finished()).then_some(next)
    });
    held.push(next);
    backend.release(3);
    let statuses: Vec<u16> = held.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(statuses, [200; 4]);
    assert_eq!(backend.most_held(), 3);
}

#[test]
fn a_concurrency_limit_by_request_id() {
    let weir = serving(&rules(3)).start();
    admits_three_at_once(&envoy_with_holds(&weir, BY_REQUEST_ID));
}

#[test]
fn a_concurrency_limit_without_ids() {
    let weir = serving(&rules(3)).start();
    admits_three_at_once(&envoy_with_holds(&weir, WITHOUT_ID));
}

/// The number of tokens that a request costs is known only with the response.
#[test]
fn costs_are_charged_at_the_end_of_the_stream() {
    let weir = serving(include_str!("../../examples/rules/postpaid.yaml")).start();
    let envoy = envoy::postpaid_example(&weir);
    let ask = |path: &str| http::get_with(envoy.address, path, &[("x-user", "ann")]).status;
    let wait_until_charged = |tokens: u64| {
        wait_for("the tokens are charged", || {
            let labels = r#"{domain="postpaid",rule="user"}"#;
            (weir.metric(&format!("weir_rule_hits_total{labels}")) == tokens).then_some(())
        });
    };
    assert_eq!(ask("/tokens/600"), 200);
    wait_until_charged(600);
    // Only 400 are left, so the budget is overdrawn.
    assert_eq!(ask("/tokens/900"), 200);
    wait_until_charged(1_500);
    assert_eq!(ask("/tokens/1"), 429);
    assert_eq!(http::get_with(envoy.address, "/tokens/1", &[("x-user", "bob")]).status, 200);
    assert_eq!(envoy.backend.seen(), 3);
}
