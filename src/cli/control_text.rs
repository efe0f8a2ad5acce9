//! Controls in words.

use jiff::Timestamp;
use serde_json::Value;

use super::print::{entries, millis_until, number, text};
use weir_common::duration::rounded;

/// Returns what a control matches: `shop user=ann,path=*`.
pub(super) fn matched(control: &Value) -> String {
    let domain = match text(&control["domain"]) {
        "*" => "every domain",
        domain => domain,
    };
    let entries = match entries(&control["entries"]) {
        all if all.is_empty() => "(everything)".to_owned(),
        entries => entries,
    };
    let exact = if control["exact"] == true { " (exact)" } else { "" };
    format!("{domain} {entries}{exact}")
}

/// Returns what a control does, for a column: `block`, `limit 500 burst 20`.
pub(super) fn action(control: &Value) -> String {
    match text(&control["action"]) {
        "allow" if control["count"] == false => "allow, not counted".to_owned(),
        "limit" => format!("limit {}", numbers(&control["limit"])),
        other => other.to_owned(),
    }
}

/// Returns how long a control lasts from `now` on: `59m58s`, `forever`. What the server says goes first:
/// its clock is that by which the control ends.
pub(super) fn left(control: &Value, now: Timestamp) -> String {
    let left = control["left_ms"].as_u64().or_else(|| millis_until(&control["until"], now));
    left.map_or_else(|| "forever".to_owned(), rounded)
}

/// Returns what a control does to a descriptor, for how long, by whom and why.
pub(super) fn described(control: &Value, now: Timestamp) -> String {
    let does = match text(&control["action"]) {
        "block" => "blocks it".to_owned(),
        "allow" if control["count"] == false => "allows it without counting".to_owned(),
        "allow" => "allows it".to_owned(),
        _ => format!("sets the limit {}", numbers(&control["limit"])),
    };
    let lasts = match left(control, now).as_str() {
        "forever" => "forever".to_owned(),
        left => format!("for {left}"),
    };
    format!("{} {does} {lasts}{}", text(&control["id"]), by_and_reason(control))
}

/// Returns who made a control and why: `, by ann: scraping`.
pub(super) fn by_and_reason(control: &Value) -> String {
    let part = |before: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{before}{text}"),
    };
    part(", by ", text(&control["by"])) + &part(": ", text(&control["reason"]))
}

/// Returns the numbers of a limit: `500 burst 20 (daily)`.
fn numbers(limit: &Value) -> String {
    let burst = limit["burst"].as_u64().map(|burst| format!(" burst {burst}")).unwrap_or_default();
    let name = match text(&limit["name"]) {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    format!("{}{burst}{name}", number(&limit["n"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn controls_are_described_in_words() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let block = json!({
            "id": "block-1", "domain": "shop", "entries": [{ "key": "user", "value": "m1" }],
            "exact": false, "action": "block", "until": "2026-01-01T00:59:58Z",
            "reason": "scraping", "by": "ann",
        });
        assert_eq!(matched(&block), "shop user=m1");
        assert_eq!((action(&block).as_str(), left(&block, now).as_str()), ("block", "59m58s"));
        let words = "block-1 blocks it for 59m58s, by ann: scraping";
        assert_eq!(described(&block, now), words);

        let limit = json!({
            "id": "l", "domain": "*", "entries": [], "exact": true, "action": "limit",
            "until": null, "reason": "", "by": "", "limit": { "n": 500, "burst": 20, "name": "day" },
        });
        assert_eq!(matched(&limit), "every domain (everything) (exact)");
        assert_eq!(action(&limit), "limit 500 burst 20 (day)");
        assert_eq!(described(&limit, now), "l sets the limit 500 burst 20 (day) forever");

        let allow = json!({ "id": "a", "action": "allow", "count": false, "until": null });
        assert_eq!(action(&allow), "allow, not counted");
        assert_eq!(described(&allow, now), "a allows it without counting forever");
    }
}
