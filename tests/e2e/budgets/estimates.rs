//! What requests and answers say about the tokens that they use.

use std::io::Read as _;

use super::{Budget, ESTIMATE};

/// Returns the part of an estimate for the body.
fn prompt(body: &str) -> u64 {
    body.len() as u64 / 4
}

#[test]
fn a_request_reserves_its_prompt_and_its_max_tokens() {
    let budget = Budget::start();
    for name in ["max_tokens", "max_completion_tokens"] {
        let body = format!(r#"{{"messages": [], "{name}": 600}}"#);
        assert_eq!(budget.cost("/json/123", &body), (200, prompt(&body) + 600, 123), "{name}");
    }
    // The body comes in chunks, so no header has its size.
    let before = budget.counts();
    let body = r#"{"max_tokens": 600}"#;
    budget.send("/json/123", body).read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(budget.cost_since(before), (prompt(body) + 600, 123));
}

#[test]
fn a_long_prompt_is_reserved_whatever_max_tokens_is() {
    let budget = Budget::start();
    let body = format!(r#"{{"max_tokens": 1, "prompt": "{}"}}"#, "a ".repeat(6_000));
    assert_eq!(budget.cost("/json/3100", &body), (200, prompt(&body) + 1, 3_100));
    // The rule's `at_least`, and its `at_most`.
    assert_eq!(budget.cost("/json/1", r#"{"max_tokens": 1}"#), (200, 100, 1));
    assert_eq!(budget.cost("/json/1", r#"{"max_tokens": 999999}"#), (200, 5_000, 1));
}

#[test]
fn a_number_that_makes_no_sense_reserves_the_default() {
    let budget = Budget::start();
    let values = ["-1", "0", "1000000001", "1e300", r#""many""#, "null", r#"{"a": 1}"#];
    let bodies = values.map(|value| format!(r#"{{"max_tokens": {value}}}"#));
    for body in bodies.iter().map(String::as_str).chain(["{}", r#"{"max_tok"#, ""]) {
        assert_eq!(budget.cost("/json/123", body), (200, prompt(body) + ESTIMATE, 123), "{body}");
    }
    let before = budget.counts();
    let mut call =
        budget.send_with("/json/123", r#"{"max_tokens": 600}"#, "content-type: text/plain\r\n");
    call.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(budget.cost_since(before), (ESTIMATE, 123), "not JSON");
}

#[test]
fn an_answer_settles_its_usage() {
    let budget = Budget::start();
    let body = r#"{"max_tokens": 600}"#;
    for path in ["/json/123", "/stream/123"] {
        assert_eq!(budget.cost(path, body), (200, 604, 123), "{path}");
    }
    // More than what was reserved.
    assert_eq!(budget.cost("/json/700", body), (200, 604, 700));
    assert_eq!(budget.remaining(), 10_000 - 123 - 123 - 700);
}

#[test]
fn an_answer_without_usage_costs_the_default() {
    let budget = Budget::start();
    for path in ["/without-usage", "/stream-without-usage", "/not-json"] {
        assert_eq!(budget.cost(path, r#"{"max_tokens": 600}"#), (200, 604, ESTIMATE), "{path}");
    }
}
