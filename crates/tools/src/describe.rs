//! Describes a control (a block, an allow or a limit that an operator sets) in words and as a row of a table.

use crate::print::Column::{self, Left, Right};
use crate::print::entries;
use weir_api::messages::ShownControl;
use weir_common::duration::rounded;
use weir_controls::{Action, Control};
use weir_limit::Micros;

/// Returns what a control matches: `shop user=ann,path=*`, `shop (everything) except plan=partner`.
pub(super) fn matched(control: &Control) -> String {
    let domain = match control.domain.as_str() {
        "*" => "every domain",
        domain => domain,
    };
    let entries = match entries(&control.entries) {
        all if all.is_empty() => "(everything)".to_owned(),
        entries => entries,
    };
    format!("{domain} {entries}{}", control.flags_text())
}

/// Returns how long a control still lasts: `59m58s`, `forever`.
pub(crate) fn left(left_ms: Option<u64>) -> String {
    left_ms.map_or_else(|| "forever".to_owned(), rounded)
}

pub(super) const COLUMNS: [Column; 6] =
    [Right("LEFT"), Left("ACTION"), Left("MATCHES"), Left("BY"), Left("ID"), Left("REASON")];

pub(super) fn row(ShownControl { control, left_ms }: &ShownControl) -> Vec<String> {
    vec![
        left(*left_ms),
        control.action.to_string(),
        matched(control),
        control.by.clone(),
        control.id.clone(),
        control.reason.clone(),
    ]
}

/// Returns a text after what introduces it; nothing for an empty text.
pub(crate) fn part(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}

/// Returns what a control does to a descriptor, for how long, by whom and why.
pub(crate) fn described(control: &Control, now: Micros) -> String {
    let does = match &control.action {
        Action::Block => "blocks it".to_owned(),
        Action::Allow { count: false } => "allows it without counting".to_owned(),
        Action::Allow { count: true } => "allows it".to_owned(),
        limit @ Action::Limit { .. } => format!("sets the {limit}"),
    };
    let lasts = match control.left_ms(now) {
        None => "forever".to_owned(),
        left => format!("for {}", self::left(left)),
    };
    let networks = control.networks().collect::<Vec<_>>().join(" and ");
    let within = part(", in ", &networks);
    let (by, reason) = (part(", by ", &control.by), part(": ", &control.reason));
    format!("{} {does} {lasts}{within}{by}{reason}", control.id)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn control(members: Value) -> Control {
        let mut json = json!({
            "id": "c", "domain": "*", "entries": [], "until": null, "at": "1970-01-01T00:00:00Z",
        });
        json.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn controls_are_described_in_words() {
        let block = control(json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "m1" }], "action": "block",
            "until": "1970-01-01T01:00:00Z", "reason": "scraping", "by": "ann",
        }));
        assert_eq!(matched(&block), "shop user=m1");
        assert_eq!(described(&block, 2_000_000), "c blocks it for 59m58s, by ann: scraping");
        let mut network = control(json!({
            "entries": [{ "key": "ip", "value": "10.0.0.0/8" }], "action": "allow", "count": true,
            "text": false, "by": "ann",
        }));
        assert_eq!(matched(&network), "every domain ip=10.0.0.0/8");
        assert_eq!(described(&network, 0), "c allows it forever, in 10.0.0.0/8, by ann");
        network.text = true;
        assert_eq!(matched(&network), "every domain ip=10.0.0.0/8 (text)");
        assert_eq!(described(&network, 0), "c allows it forever, by ann");
        // It has ended by the clock of this machine.
        assert_eq!(described(&block, Micros::MAX), "c blocks it for 0s, by ann: scraping");

        let limit = control(json!({
            "exact": true, "action": "limit", "limit": { "n": 500, "burst": 20, "name": "day" },
        }));
        assert_eq!(matched(&limit), "every domain (everything) (exact)");
        assert_eq!(limit.action.to_string(), "limit 500 burst 20 (day)");
        assert_eq!(described(&limit, 0), "c sets the limit 500 burst 20 (day) forever");

        let allow = control(json!({ "action": "allow", "count": false }));
        assert_eq!(allow.action.to_string(), "allow, not counted");
        assert_eq!(described(&allow, 0), "c allows it without counting forever");
        assert_eq!((left(Some(1_500)).as_str(), left(None).as_str()), ("2s", "forever"));
    }
}
