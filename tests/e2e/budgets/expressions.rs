//! What can be written into `hits_addend`, and what fails.

use std::io::Read as _;

use super::{BODY, BUDGET, Budget, ESTIMATE, EXAMPLE};
use crate::support::{envoy, wait_for};

/// Returns the example with another `hits_addend` at the start (0) or the end (1).
fn with_item(item: usize, hits: &str) -> String {
    let marker = "hits_addend:\n";
    let parts: Vec<&str> = EXAMPLE.split(marker).collect();
    assert_eq!(parts.len(), 3, "two items");
    let mut config = parts[0].to_owned();
    for (number, part) in parts[1..].iter().enumerate() {
        let (_, rest) = part.split_once(")%\"\n").expect("the end of an expression");
        config += &match number == item {
            true => format!("{hits}\n{rest}"),
            false => format!("{marker}{part}"),
        };
    }
    config
}

fn with_hits(item: usize, format: &str) -> String {
    with_item(item, &format!("hits_addend: {{ format: \"{format}\" }}"))
}

#[test]
fn a_start_without_hits_reserves_the_estimate_of_the_rule() {
    for hits in ["", "hits_addend: { number: 0 }"] {
        let budget = Budget::with(&with_item(0, hits));
        assert_eq!(budget.cost("/json/123", r#"{"max_tokens": 600}"#), (200, ESTIMATE, 123));
    }
}

/// The request passes without a reservation.
#[test]
fn metadata_alone_sends_no_start_for_odd_numbers() {
    let budget = Budget::with(&with_hits(0, "%DYNAMIC_METADATA(llm:max_tokens)%"));
    assert_eq!(budget.cost("/json/123", r#"{"max_tokens": 600}"#), (200, 600, 123));
    let values = ["-1", "1000000001", "1e300", r#""many""#, "null"];
    for (number, value) in (1..).zip(values) {
        assert_eq!(budget.ask("/json/123", &format!(r#"{{"max_tokens": {value}}}"#)), 200);
        let counts = budget.wait_for_ends(1 + number);
        assert_eq!((counts.reservations, counts.unknown), (1, number), "{value}");
    }
    // What they have used is charged nevertheless.
    assert_eq!(budget.remaining(), BUDGET - 6 * 123);
}

#[test]
fn an_expression_that_fails_sends_no_start() {
    let size = "%CEL(int(request.headers['content-length']))%";
    let guarded = "%CEL('content-length' in request.headers ? int(request.headers['content-length']) : 1000)%";
    let body = format!("{BODY}{}", " ".repeat(300));
    for (format, reservations) in [(size, 1), (guarded, 2)] {
        let budget = Budget::with(&with_hits(0, format));
        assert_eq!(budget.cost("/json/123", &body), (200, body.len() as u64, 123));
        // A body in chunks has no such header.
        budget.send("/json/123", BODY).read_to_end(&mut Vec::new()).unwrap();
        let counts = budget.wait_for_ends(2);
        assert_eq!((counts.reservations, counts.unknown), (reservations, 2 - reservations));
    }
}

#[test]
fn bytes_and_time_are_known_at_the_end() {
    for (format, least, most) in [("%BYTES_SENT%", 30, 1_000), ("%DURATION%", 1, 60_000)] {
        let budget = Budget::with(&with_hits(1, format));
        let (status, reserved, settled) = budget.cost("/stream/123", BODY);
        assert_eq!((status, reserved), (200, ESTIMATE), "{format}");
        assert!(settled <= most, "{format}: {settled}");
        let before = budget.counts();
        let mut call = budget.send("/slow-stream/123", BODY);
        wait_for("the model", || (budget.model().held() == 1).then_some(()));
        assert!(call.read(&mut [0; 1024]).unwrap() > 0);
        drop(call);
        let (_, settled) = budget.cost_since(before);
        assert!((least..=most).contains(&settled), "{format}: {settled}, after it has hung up");
    }
}

#[test]
fn a_generic_key_is_sent_as_written() {
    let user = "request_headers: { header_name: x-user, descriptor_key: user }";
    let generic = "generic_key: { descriptor_key: user, descriptor_value: \"%REQ(x-user)%\" }";
    let budget = Budget::with(&EXAMPLE.replace(user, generic));
    assert_eq!(budget.cost("/json/123", BODY), (200, ESTIMATE, 123));
    assert_eq!(budget.remaining_of("%REQ(x-user)%"), BUDGET - 123);
    assert_eq!(budget.remaining_of("ann"), BUDGET);
}

#[test]
fn expressions_cannot_make_texts() {
    envoy::validate(&with_hits(0, "%CEL(request.size)%")).unwrap();
    envoy::validate(&with_hits(0, "%CEL(string(request.size))%")).unwrap_err();
}
