//! What is known only when a stream is done: holds that end, and budgets paid afterwards.

mod cancelled;

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use crate::support::envoy::{self, Envoy};
use crate::support::weir::serving;
use crate::support::{http, wait_for};

/// Takes a hold when a request comes and gives it back when its stream is done.
fn holds(actions: &str) -> String {
    format!(
        "rate_limits: [ {{ actions: [{actions}] }}, {{ actions: [{actions}], \
         apply_on_stream_done: true, hits_addend: {{ number: 1, is_negative_hits: true }} }} ]"
    )
}

const SERVICE: &str = "{ generic_key: { descriptor_key: service, descriptor_value: reports } }";
const REQUEST_ID: &str =
    "{ request_headers: { header_name: x-request-id, descriptor_key: request_id } }";

fn slow(address: SocketAddr) -> JoinHandle<u16> {
    thread::spawn(move || http::get(address, "/slow").status)
}

/// `n` are let through and held, however many more ask; when one ends another is let through.
fn admits_three_at_once(envoy: &Envoy) {
    let backend = &envoy.backend;
    let mut held: Vec<_> = (0..3).map(|_| slow(envoy.address)).collect();
    wait_for("three are held", || (backend.held() == 3).then_some(()));
    for _ in 0..3 {
        // Their streams are done too, and must give nothing back.
        let refused: Vec<_> = (0..10).map(|_| slow(envoy.address)).collect();
        let statuses: Vec<u16> = refused.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(statuses, [429; 10]);
    }
    assert_eq!(backend.held(), 3);

    backend.release(1);
    wait_for("one ends", || held.iter().any(JoinHandle::is_finished).then_some(()));
    // The end is told after the client has its answer.
    let next = wait_for("another is let through", || {
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
fn a_concurrency_limit_with_the_request_id_for_a_hold() {
    let rules = "domain: edge
descriptors:
  - key: service
    value: reports
    descriptors:
      - key: request_id
        rate_limit:
          { algorithm: concurrency, requests_per_unit: 3, hold_id: request_id, hold_timeout: 1h }
";
    let weir = serving(rules).start();
    let envoy = envoy::before(&weir, &holds(&format!("{SERVICE}, {REQUEST_ID}")));
    admits_three_at_once(&envoy);
}

#[test]
fn a_concurrency_limit_without_ids() {
    let rules = "domain: edge
descriptors:
  - key: service
    value: reports
    rate_limit: { algorithm: concurrency, requests_per_unit: 3, hold_timeout: 1h }
";
    let weir = serving(rules).start();
    let envoy = envoy::before(&weir, &holds(SERVICE));
    admits_three_at_once(&envoy);
}

/// As tokens of a language model: how many a request takes is known when it is answered.
#[test]
fn a_budget_is_paid_when_the_stream_is_done() {
    let weir = serving(include_str!("../../examples/rules/postpaid.yaml")).start();
    let envoy = envoy::postpaid_example(&weir);
    let ask = |path: &str| http::get_with(envoy.address, path, &[("x-user", "ann")]).status;
    let paid = |tokens: u64| {
        wait_for("the tokens are paid", || {
            let labels = r#"{domain="postpaid",rule="user"}"#;
            (weir.metric(&format!("weir_rule_hits_total{labels}")) == tokens).then_some(())
        });
    };
    assert_eq!(ask("/tokens/600"), 200);
    paid(600);
    // Less than that is left: the budget is overdrawn.
    assert_eq!(ask("/tokens/900"), 200);
    paid(1_500);
    assert_eq!(ask("/tokens/1"), 429);
    assert_eq!(http::get_with(envoy.address, "/tokens/1", &[("x-user", "bob")]).status, 200);
    assert_eq!(envoy.backend.seen(), 3);
}
