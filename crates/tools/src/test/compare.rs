//! `weir test`: compares the responses to the requests of one step of a test with those that the step expects.

use super::file::{Expect, ExpectedStatus};
use super::read::RESULTS;
use super::report::{Difference, duration_text};
use weir_limit::{Micros, ReservationResult, SECOND};

#[derive(Debug, Default)]
pub(super) struct Responses {
    pub ok: u32,
    pub over: u32,
    /// The number, from 1, of the first response whose code is not the expected one.
    pub first_unexpected: Option<u32>,
    pub last: Response,
}

#[derive(Debug, Default)]
pub(super) struct Response {
    /// The index of the status that the response headers describe; the first one if no limit applies.
    pub shown: usize,
    pub statuses: Vec<Status>,
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Status {
    pub over_limit: bool,
    pub remaining: u32,
    /// Seconds; none if no limit applies.
    pub reset: Option<u64>,
    pub limit: Option<String>,
    pub rule: Option<String>,
    pub retry: Option<Micros>,
    pub banned: bool,
    pub result: ReservationResult,
    pub reserved: u32,
}

pub(super) fn compare(expect: &Expect, responses: &Responses) -> Vec<Difference> {
    let mut found = Differences::default();
    found.add("ok", expect.ok, responses.ok, |n| n.to_string());
    found.add("over", expect.over, responses.over, |n| n.to_string());
    if let (Some(expected), Some(number)) = (expect.over_limit, responses.first_unexpected) {
        let mut actual = code(&!expected);
        if responses.ok + responses.over > 1 {
            actual += &format!(" in response {number}");
        }
        found.0.push(Difference::new("code", code(&expected), actual));
    }
    let last = &responses.last;
    if let Some(status) = last.statuses.get(last.shown) {
        found.status("", &expect.shown, status);
    }
    for (name, expected) in &expect.headers {
        let mut sent = last.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let actual = sent.next().map(|(_, value)| value.clone());
        found.add(&format!("header {name}"), Some(expected.clone()), actual, |value| {
            value.as_ref().map_or_else(|| "none".to_owned(), |value| format!("'{value}'"))
        });
    }
    for (i, (expected, actual)) in expect.statuses.iter().zip(&last.statuses).enumerate() {
        let prefix = format!("status {} ", i + 1);
        found.add(&format!("{prefix}code"), expected.over_limit, actual.over_limit, code);
        found.status(&prefix, expected, actual);
    }
    found.0
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn add<T: PartialEq>(
        &mut self,
        key: &str,
        expected: Option<T>,
        actual: T,
        text: impl Fn(&T) -> String,
    ) {
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            self.0.push(Difference::new(key, text(&expected), text(&actual)));
        }
    }

    /// Adds the differences of a status but for its code.
    fn status(&mut self, prefix: &str, expected: &ExpectedStatus, actual: &Status) {
        let key = |name: &str| format!("{prefix}{name}");
        self.add(&key("remaining"), expected.remaining, actual.remaining, u32::to_string);
        self.add(&key("reset"), expected.reset, actual.reset, |seconds| {
            duration(seconds.map(|seconds| seconds.saturating_mul(SECOND)))
        });
        self.add(&key("limit"), expected.limit.clone(), actual.limit.clone(), name);
        self.add(&key("rule"), expected.rule.clone(), actual.rule.clone(), name);
        self.add(&key("retry"), expected.retry, actual.retry, |time| duration(*time));
        self.add(&key("banned"), expected.banned, actual.banned, bool::to_string);
        self.add(&key("result"), expected.result, actual.result, result);
        self.add(&key("reserved"), expected.reserved, actual.reserved, u32::to_string);
    }
}

fn code(over_limit: &bool) -> String {
    if *over_limit { "OVER_LIMIT" } else { "OK" }.to_owned()
}

fn result(result: &ReservationResult) -> String {
    let known = RESULTS.iter().find(|(_, other)| other == result);
    known.map_or_else(String::new, |(name, _)| (*name).to_owned())
}

fn duration(time: Option<Micros>) -> String {
    time.map_or_else(|| "none".to_owned(), duration_text)
}

/// Quotes a name, because one may be empty. No name is null, as in the test file.
fn name(name: &Option<String>) -> String {
    name.as_ref().map_or_else(|| "null".to_owned(), |name| format!("'{name}'"))
}
