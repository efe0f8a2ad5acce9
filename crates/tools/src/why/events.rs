//! `weir why`: selects the denials and changes in a server's history that concern one descriptor, and prints them.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::replica::Replica;
use crate::describe::{described, matched, part};
use crate::print::counted;
use weir_common::descriptor::descriptor_text;
use weir_common::duration::rounded;
use weir_common::entry::{Entry, OwnedEntry};
use weir_controls::Control;
use weir_limiter::Denial;

/// The descriptor that the user asks about.
pub(super) struct Key<'a> {
    pub domain: &'a str,
    pub entries: Vec<Entry<'a>>,
    /// The entries as the server shows them: it may hide secret values.
    pub shown: &'a [OwnedEntry],
}

impl Key<'_> {
    /// Returns whether a descriptor has the entries of the key, alone or with others.
    pub fn is_in(&self, domain: &str, entries: &[OwnedEntry]) -> bool {
        domain == self.domain && self.shown.iter().all(|entry| entries.contains(entry))
    }

    pub fn is_denied_by(&self, denial: &Value) -> bool {
        Denial::deserialize(denial).is_ok_and(|denial| self.is_in(&denial.domain, &denial.entries))
    }

    pub fn is_changed_by(&self, change: &Value) -> bool {
        let shown: Vec<Entry<'_>> =
            self.shown.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        match change["event"].as_str() {
            Some("control") => ["before", "after"].iter().any(|when| {
                control(&change[when]).is_some_and(|control| {
                    [&self.entries, &shown].iter().any(|all| control.matches(self.domain, all))
                })
            }),
            Some("operator") => {
                let subject = format!("{} {}", self.domain, descriptor_text(&shown));
                change["action"] == "reset state" && change["subject"] == *subject
            }
            Some("reload") => {
                change["ok"] == false || !rules_changed(change, self.domain).is_empty()
            }
            Some("store" | "emptied") => true,
            _ => false,
        }
    }
}

fn control(json: &Value) -> Option<Control> {
    Control::deserialize(json).ok()
}

pub(super) fn time(event: &Value) -> Timestamp {
    event["at"].as_str().and_then(|at| at.parse().ok()).unwrap_or_default()
}

/// Returns what a reload changed in a domain, in words.
fn rules_changed<'v>(reload: &'v Value, domain: &str) -> Vec<&'v str> {
    let lines = reload["changes"]["list"].as_array().into_iter().flatten();
    let start = format!("{domain}.");
    lines.filter_map(Value::as_str).filter(|line| line.contains(&start)).collect()
}

pub(super) struct Row {
    pub at: Timestamp,
    pub ago_ms: u64,
    pub replica: String,
    pub text: String,
    /// What identifies the change of a control, on all replicas.
    pub control: Option<String>,
}

impl Row {
    pub fn all(replica: &Replica) -> Vec<Row> {
        let now: Timestamp = replica.status.at.parse().unwrap_or_default();
        let domain = &replica.explained.domain;
        let key = replica.explained.descriptors.first().map_or(&[][..], |first| &first.shown);
        let row = |event: &Value, text: String| {
            let at = time(event);
            let ago_ms = u64::try_from(now.duration_since(at).as_millis()).unwrap_or_default();
            let versions = [&event["before"]["at"], &event["after"]["at"]];
            let control = (event["event"] == "control")
                .then(|| format!("{} {} {versions:?}", event["id"], event["change"]));
            Row { at, ago_ms, replica: replica.name().to_owned(), text, control }
        };
        let denial = |event| Some(row(event, denial(&Denial::deserialize(event).ok()?, key)));
        let denials = replica.denials.iter().filter_map(denial);
        denials
            .chain(replica.changes.iter().map(|event| row(event, change(event, domain))))
            .collect()
    }
}

/// Returns a denial in words; its entries if they are not those of the key.
fn denial(denial: &Denial, key: &[OwnedEntry]) -> String {
    let Denial { hits, rule, limit, control, retry_ms, banned, entries, policy, .. } = denial;
    let by = match (limit, rule, control) {
        (None, _, Some(control)) => control.clone(),
        (None, ..) => "its failure policy: the store did not answer".to_owned(),
        (Some(limit), None, _) => format!("the limit that came with it, {limit}"),
        (Some(limit), Some(rule), None) => format!("{rule}: {limit}"),
        (Some(limit), Some(rule), Some(control)) => format!("{rule}: {limit}, set by {control}"),
    };
    let policy = policy.as_ref().map(|policy| format!(", by policy {policy}, as the store failed"));
    let policy = policy.unwrap_or_default();
    let what = if *banned { "banned for another" } else { "retry in" };
    let wait = retry_ms.map(|wait| format!("; {what} {}", rounded(wait))).unwrap_or_default();
    let entries = match entries == key {
        true => String::new(),
        false => format!(" for {}", crate::print::entries(entries)),
    };
    format!("{} denied{entries} by {by}{policy}{wait}", counted(*hits, "hit"))
}

fn change(change: &Value, domain: &str) -> String {
    let text = |name: &str| change[name].as_str().unwrap_or_default();
    let who = part(" by ", text("who"));
    match text("event") {
        "control" => match (control(&change["before"]), control(&change["after"])) {
            (_, Some(after)) => format!("{}: {}", text("change"), described(&after, after.at)),
            (Some(before), None) => {
                let (what, id) = (text("change"), &before.id);
                format!("{what}{who}: {id}, {} {}", before.action, matched(&before))
            }
            (None, None) => text("change").to_owned(),
        },
        "operator" => format!("counters reset{who}"),
        "reload" if change["ok"] == false => format!("rules rejected: {}", text("error")),
        "reload" => format!("rules loaded: {}", rules_changed(change, domain).join("; ")),
        "emptied" => "Redis was emptied: counts are lost".to_owned(),
        _ if change["up"] == true => "the store answers again".to_owned(),
        _ => text("error").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(key: &str, value: &str) -> OwnedEntry {
        (key, value).into()
    }

    fn of_ann(shown: &[OwnedEntry]) -> Key<'_> {
        Key { domain: "shop", entries: vec![("user", "ann"), ("token", "s3cret")], shown }
    }

    fn block(entries: &[(&str, &str)]) -> Value {
        let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
        json!({
            "id": "b1", "domain": "shop", "entries": entries.iter().map(entry).collect::<Vec<_>>(),
            "exact": false, "text": false, "action": "block", "by": "bob", "reason": "scraping",
            "until": "2026-01-01T01:00:00Z", "at": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn denials_of_the_key_have_its_entries_as_they_are_shown() {
        let shown = [entry("user", "ann"), entry("token", "hash:1")];
        let key = of_ann(&shown);
        let more = [entry("token", "hash:1"), entry("route", "x"), entry("user", "ann")];
        assert!(key.is_in("shop", &shown) && key.is_in("shop", &more));
        assert!(!key.is_in("shop", &more[..2]) && !key.is_in("other", &more));
        let denial = |domain: &str| {
            json!({
                "event": "denial", "number": 1, "at": "2026-01-01T00:00:00Z", "domain": domain, "entries": more,
                "cut": false, "hits": 1, "rule": null, "limit": null, "control": null, "retry_ms": null,
                "suppressed": 0,
            })
        };
        assert!(key.is_denied_by(&denial("shop")) && !key.is_denied_by(&denial("other")));
        assert!(!key.is_denied_by(&json!({ "event": "denial" })));
    }

    #[test]
    fn changes_that_may_matter_are_found() {
        let shown = [entry("user", "ann"), entry("token", "hash:1")];
        let key = of_ann(&shown);
        let of_control = |before: Value, after: Value| {
            key.is_changed_by(&json!({ "event": "control", "before": before, "after": after }))
        };
        assert!(of_control(Value::Null, block(&[("user", "a*")])));
        assert!(of_control(block(&[("token", "hash:1")]), Value::Null));
        assert!(of_control(block(&[("token", "s3cret")]), block(&[("user", "bob")])));
        assert!(!of_control(block(&[("user", "bob")]), Value::Null));
        // Of many at once there is only the number.
        assert!(!key.is_changed_by(&json!({ "event": "control", "count": 21 })));
        let reset = |subject: &str| json!({ "event": "operator", "action": "reset state", "subject": subject, "who": "bob" });
        assert!(key.is_changed_by(&reset("shop user=ann,token=hash:1")));
        assert!(!key.is_changed_by(&reset("shop user=bob")));
        let reload =
            |line: &str| json!({ "event": "reload", "ok": true, "changes": { "list": [line] } });
        assert!(key.is_changed_by(&reload("1 rule added (shop.user)")));
        assert!(!key.is_changed_by(&reload("other.user removed")));
        assert!(key.is_changed_by(&json!({ "event": "reload", "ok": false })));
        for (event, is_one) in
            [("store", true), ("emptied", true), ("problems", false), ("x", false)]
        {
            assert_eq!(key.is_changed_by(&json!({ "event": event })), is_one, "{event}");
        }
    }

    #[test]
    fn denials_name_what_denied() {
        let key = [entry("user", "ann")];
        let text = |rule: Option<&str>, limit: Option<&str>, control: Option<&str>, wait| {
            let [rule, limit, control] = [rule, limit, control].map(|text| text.map(str::to_owned));
            let (domain, entries) = ("shop".to_owned(), vec![entry("user", "ann")]);
            let (hits, retry_ms) = (2, wait);
            Denial { domain, entries, hits, rule, limit, control, retry_ms, ..Denial::default() }
        };
        let by_policy = Denial {
            policy: Some("local".to_owned()),
            ..text(Some("user"), Some("3 per day"), None, Some(1_000))
        };
        let wanted =
            "2 hits denied by user: 3 per day, by policy local, as the store failed; retry in 1s";
        assert_eq!(denial(&by_policy, &key), wanted);
        let banned =
            Denial { banned: true, ..text(Some("user"), Some("3 per day"), None, Some(2_520_000)) };
        let wanted = "2 hits denied by user: 3 per day; banned for another 42m";
        assert_eq!(denial(&banned, &key), wanted);
        for (rule, limit, control, wait, wanted) in [
            (Some("user"), Some("3 per day"), None, Some(59_000), "user: 3 per day; retry in 59s"),
            (
                Some("user"),
                Some("9 per day"),
                Some("limit-1"),
                None,
                "user: 9 per day, set by limit-1",
            ),
            (None, Some("3 per day"), None, None, "the limit that came with it, 3 per day"),
            (Some("user"), None, Some("block-1"), Some(1_000), "block-1; retry in 1s"),
            (Some("user"), None, None, None, "its failure policy: the store did not answer"),
        ] {
            let denied = denial(&text(rule, limit, control, wait), &key);
            assert_eq!(denied, format!("2 hits denied by {wanted}"));
        }
    }

    #[test]
    fn changes_are_told_in_words() {
        let one = block(&[("user", "ann")]);
        for (event, wanted) in [
            (
                json!({ "event": "control", "change": "added", "before": null, "after": one }),
                "added: b1 blocks it for 1h, by bob: scraping",
            ),
            (
                json!({ "event": "control", "change": "removed", "who": "eve", "before": one, "after": null }),
                "removed by eve: b1, block shop user=ann",
            ),
            (
                json!({ "event": "operator", "action": "reset state", "who": "eve" }),
                "counters reset by eve",
            ),
            (json!({ "event": "reload", "ok": false, "error": "no" }), "rules rejected: no"),
            (
                json!({ "event": "reload", "ok": true, "changes": { "list": ["shop.a removed", "b.c removed"] } }),
                "rules loaded: shop.a removed",
            ),
            (json!({ "event": "store", "up": true }), "the store answers again"),
            (
                json!({ "event": "store", "up": false, "error": "Redis does not answer" }),
                "Redis does not answer",
            ),
            (json!({ "event": "emptied" }), "Redis was emptied: counts are lost"),
        ] {
            assert_eq!(change(&event, "shop"), wanted);
        }
    }
}
