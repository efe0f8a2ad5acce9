//! Reads the `expect` of a step in a file of `weir test`: the responses that its requests should get.

use super::super::file::{Expect, ExpectedStatus};
use crate::print::counted;
use weir_limit::{ReservationResult, SECOND};
use weir_rules::tree::{Content, Node};
use weir_rules::values::{Field, Reader, Section};

#[rustfmt::skip]
pub(super) static EXPECT: Section = Section {
    what: "`expect`",
    keys: &["ok", "over", "code", "remaining", "reset", "limit", "rule", "retry", "banned", "result", "reserved", "headers", "statuses"],
};
pub(super) static STATUS: Section = Section {
    what: "an item of `statuses`",
    keys: &["code", "remaining", "reset", "limit", "rule", "retry", "banned", "result", "reserved"],
};

/// The values of `code`, and whether each means over the limit.
const CODES: [(&str, bool); 2] = [("OK", false), ("OVER_LIMIT", true)];

/// The values of `result`: what a step did to a reservation of hits.
pub(crate) const RESULTS: [(&str, ReservationResult); 6] = [
    ("none", ReservationResult::None),
    ("reserved", ReservationResult::Reserved),
    ("repeated", ReservationResult::Repeated),
    ("conflict", ReservationResult::Conflict),
    ("settled", ReservationResult::Settled),
    ("unknown", ReservationResult::Unknown),
];

/// Reads `expect` of a step that sends `repeat` requests with `descriptors` descriptors.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    repeat: u32,
    descriptors: usize,
) -> Expect {
    let mut expect = Expect::default();
    for (key, value) in reader.fields(node, &EXPECT) {
        match key {
            "ok" => expect.ok = reader.number(value, key, 0..=repeat),
            "over" => expect.over = reader.number(value, key, 0..=repeat),
            "code" => expect.over_limit = reader.choice(value, key, &CODES),
            "headers" => expect.headers = headers(reader, value),
            "statuses" => {
                let list = reader.list(value, key, "statuses, one for each descriptor");
                if !list.is_empty() && list.len() != descriptors && descriptors > 0 {
                    let (items, expected) =
                        (counted(list.len(), "item"), counted(descriptors, "descriptor"));
                    let message = format_args!("`statuses` has {items} for {expected}");
                    reader.error(value.position, "", message, "write one for each descriptor");
                }
                expect.statuses = list.iter().map(|item| status(reader, item)).collect();
            }
            _ => status_field(reader, (key, value), &mut expect.shown),
        }
    }
    if let (Some(ok), Some(over)) = (expect.ok, expect.over)
        && u64::from(ok) + u64::from(over) != u64::from(repeat)
    {
        let message = format_args!(
            "`ok` and `over` add up to {}, and the step sends {}",
            u64::from(ok) + u64::from(over),
            counted(repeat, "request"),
        );
        reader.error(node.position, "", message, "write how many of the responses are which");
    }
    if matches!(node.content(), Content::Map(map) if map.is_empty()) {
        let help = "write what the response should have, such as `{code: OK}`, or remove it";
        reader.error(node.position, "", "`expect` is empty", help);
    }
    expect
}

fn status(reader: &mut Reader<'_>, node: &Node<'_>) -> ExpectedStatus {
    let mut status = ExpectedStatus::default();
    for (key, value) in reader.fields(node, &STATUS) {
        match key {
            "code" => status.over_limit = reader.choice(value, key, &CODES),
            _ => status_field(reader, (key, value), &mut status),
        }
    }
    status
}

fn status_field(reader: &mut Reader<'_>, (key, value): Field<'_>, status: &mut ExpectedStatus) {
    let is_none = value.is_null() || value.text() == Some("none");
    match key {
        "remaining" => status.remaining = reader.number(value, key, 0..=u32::MAX),
        "reset" if is_none => status.reset = Some(None),
        "reset" => match reader.duration(value, key) {
            Some(time) if time.is_multiple_of(SECOND) => status.reset = Some(Some(time / SECOND)),
            Some(_) => reader.invalid(value, key, "write whole seconds, as responses have them"),
            None => {}
        },
        "limit" => status.limit = Some(text(reader, value, key)),
        "rule" => status.rule = Some(text(reader, value, key)),
        "banned" => status.banned = reader.bool(value, key),
        "result" => status.result = reader.choice(value, key, &RESULTS),
        "reserved" => status.reserved = reader.number(value, key, 0..=u32::MAX),
        _ if is_none => status.retry = Some(None),
        _ => status.retry = reader.duration(value, key).map(Some),
    }
}

/// Reads a text; none for null, because `none` may be a text.
fn text(reader: &mut Reader<'_>, node: &Node<'_>, key: &str) -> Option<String> {
    if node.is_null() {
        return None;
    }
    reader.text(node, key).map(str::to_owned)
}

/// Reads names and values of headers; null is for one that is not sent.
fn headers(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<(String, Option<String>)> {
    let Content::Map(entries) = node.content() else {
        reader.invalid(node, "headers", "write a map of names and values");
        return Vec::new();
    };
    let mut headers = Vec::new();
    for (key, value) in entries.iter() {
        let Some(name) = reader.name(key, "a header's name") else { continue };
        headers.push((name.to_owned(), text(reader, value, name)));
    }
    headers
}
