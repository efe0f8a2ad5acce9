//! Which IDs a client can choose, and so settle the reservations of other requests, or its own too early.

use super::{BODY, BUDGET, Budget, ESTIMATE, EXAMPLE};
use crate::support::wait_for;

const OWN: &str = "x-reservation-id";

/// Starts a slow request of a client that sends its own IDs, and settles that ID with 0. Returns what is left
/// before its end.
fn remaining_after_an_early_end(config: &str) -> u64 {
    let budget = Budget::with(config);
    let id = "11111111-1111-4111-8111-111111111111";
    let headers =
        format!("content-type: application/json\r\n{OWN}: {id}\r\nx-request-id: {id}\r\n");
    let _call = budget.send_with("/slow/123", BODY, &headers);
    wait_for("the model", || (budget.model().held() == 1).then_some(()));
    assert_eq!(budget.remaining(), BUDGET - ESTIMATE);
    budget.call(&[("user", "ann"), ("request_id", id), ("settle", "1")], 0);
    let remaining = budget.remaining();
    // The end of Envoy charges what was used, with a reservation or without.
    budget.model().release(1);
    budget.wait_for_ends(2);
    assert_eq!(budget.remaining(), BUDGET - 123);
    remaining
}

/// Returns the example with the ID from another place.
fn with_id(value: &str) -> String {
    let unique = "%UNIQUE_ID%";
    assert!(EXAMPLE.contains(unique));
    EXAMPLE.replace(unique, value)
}

fn at_the_edge(config: &str) -> String {
    let prefix = "stat_prefix: ingress\n";
    config.replace(prefix, &format!("{prefix}                use_remote_address: true\n"))
}

#[test]
fn a_unique_id_is_the_same_at_both_ends_and_not_of_the_client() {
    assert_eq!(remaining_after_an_early_end(EXAMPLE), BUDGET - ESTIMATE);
}

#[test]
fn a_request_id_is_of_the_client_unless_envoy_is_an_edge() {
    let by_header = EXAMPLE.replace(
        &format!("header_name: {OWN}, descriptor_key"),
        "header_name: x-request-id, descriptor_key",
    );
    for config in [by_header, with_id("%STREAM_ID%")] {
        assert_ne!(config, EXAMPLE);
        assert_eq!(remaining_after_an_early_end(&config), BUDGET);
        assert_eq!(remaining_after_an_early_end(&at_the_edge(&config)), BUDGET - ESTIMATE);
    }
}
