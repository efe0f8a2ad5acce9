//! Reads and checks the JSON that an operator sends: a control (block, allow or limit) without its id.

use std::time::Duration;

use serde_json::{Map, Value};

use super::control::{Action, Draft, LimitChange};
use super::error::ControlError;
use super::time;
use weir_common::duration::read_duration;
use weir_common::suggest::nearest;
use weir_common::value;
use weir_limit::{MAX_PERIOD_SECONDS, Micros};

/// The longest duration: that of the longest period of a limit.
const MAX_DURATION: Duration = Duration::from_secs(MAX_PERIOD_SECONDS);

const MAX_ENTRIES: usize = 32;
const MAX_TEXT_BYTES: usize = 1_024;
/// The most bytes of a control: every replica reads all controls after each change.
const MAX_BYTES: usize = 4 << 10;
const MAX_ID_BYTES: usize = 128;

const ENTRY_MEMBERS: &[&str] = &["key", "value", "escaped"];
const LIMIT_MEMBERS: &[&str] = &["n", "burst", "name", "rate"];

/// When a control expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// A block: the longest period of the rules that it matches, else an hour. Others: forever.
    Default,
    For(Duration),
    Until(Micros),
    Forever,
}

impl Draft {
    /// Reads the body of a request. Without a domain, it is for the only one that has rules, if that is so.
    pub fn read(body: &[u8], only_domain: Option<&str>) -> Result<Draft, ControlError> {
        let invalid = |error: serde_json::Error| {
            let help = r#"write for instance {"domain":"shop","entries":[{"key":"user","value":"m1"}],"action":"block","for":"1h"}"#;
            ControlError::invalid(format!("the body is not a control: {error}"), help)
        };
        let mut json: Value = serde_json::from_slice(body).map_err(invalid)?;
        if let Some(unknown) = unknown_member(&json, &Draft::MEMBERS) {
            let help = match nearest(unknown, Draft::MEMBERS.into_iter()) {
                Some(near) => format!("write `{near}`"),
                None => format!("write only {}", Draft::MEMBERS.join(", ")),
            };
            return Err(ControlError::invalid(format!("unknown member `{unknown}`"), help));
        }
        let parts = [&json["entries"], &json["except"]].into_iter().filter_map(Value::as_array);
        let parts = parts.flatten();
        let parts =
            parts.map(|entry| (entry, ENTRY_MEMBERS)).chain([(&json["limit"], LIMIT_MEMBERS)]);
        for (part, known) in parts {
            if let Some(unknown) = unknown_member(part, known) {
                return Err(invalid(serde::de::Error::unknown_field(unknown, known)));
            }
        }
        if let Some(members) = json.as_object_mut() {
            members
                .retain(|name, value| Draft::NOT_NULL.contains(&name.as_str()) || !value.is_null());
            if let Some(domain) = only_domain {
                members.entry("domain").or_insert_with(|| domain.into());
            }
            check_members(members)?;
        }
        let draft: Draft = serde_json::from_value(json).map_err(invalid)?;
        draft.check()?;
        Ok(draft)
    }

    /// Checks the draft. Returns when the control expires.
    pub fn check(&self) -> Result<Expiry, ControlError> {
        let expiry = read_expiry(self.duration.as_deref(), self.until.as_deref())?;
        if self.domain.is_empty() {
            let help = "write a domain, or `*` for all";
            return Err(ControlError::invalid("`domain` is empty", help));
        }
        if self.domain != "*" && self.domain.contains('*') {
            let error = format!("`*` is a part of the domain {:?}", self.domain);
            return Err(ControlError::invalid(error, "write the whole domain, or `*` for all"));
        }
        let all = self.entries.len() + self.except.len();
        if all > MAX_ENTRIES {
            let error = format!("{all} entries");
            let help = format!("write up to {MAX_ENTRIES}");
            return Err(ControlError::invalid(error, help));
        }
        for (i, entry) in self.entries.iter().chain(&self.except).enumerate() {
            if entry.key.is_empty() {
                let error = format!("entry {i} has an empty key");
                return Err(ControlError::invalid(error, "write the key of a descriptor entry"));
            }
            if entry.key == "*" {
                let help = "write a key, as in `user=*`, or no entries (in a command '*') for the whole domain";
                return Err(ControlError::invalid("the key `*` matches nothing", help));
            }
            if i < self.entries.len() && !self.exact && self.entries[..i].contains(entry) {
                let error =
                    format!("entry {}={} is repeated", entry.key, value::shown(&entry.value));
                let help = "write it once: a control matches what contains its entries";
                return Err(ControlError::invalid(error, help));
            }
        }
        if let Action::Limit { limit: LimitChange { n: 1.., burst: Some(0), .. } } = self.action {
            let help = "write 1 for no hits beyond an even rate, or the rate 0 to deny everything";
            return Err(ControlError::invalid("`burst` is 0, which denies every hit", help));
        }
        let texts = self.texts();
        if texts.clone().any(|text| value::decode(text).len() > MAX_TEXT_BYTES) {
            let help = format!("write up to {MAX_TEXT_BYTES} bytes in each");
            return Err(ControlError::invalid("a text is too long", help));
        }
        let bytes: usize = texts.map(String::len).sum();
        if bytes > MAX_BYTES {
            let error = format!("the texts of the control have {bytes} bytes");
            return Err(ControlError::invalid(error, format!("write up to {MAX_BYTES} in all")));
        }
        match expiry {
            Expiry::For(time) if time.is_zero() => {
                let help = "write a duration above 0, as 10m or 1h30m";
                Err(ControlError::invalid("the duration is 0", help))
            }
            Expiry::For(time) if time > MAX_DURATION => {
                let help = "write 100 years or less, or \"forever\"";
                Err(ControlError::invalid("the duration is too long", help))
            }
            expiry => Ok(expiry),
        }
    }
}

fn unknown_member<'j>(object: &'j Value, known: &[&str]) -> Option<&'j str> {
    let mut members = object.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    members.find(|name| !known.contains(name))
}

/// Rejects an id that is empty, too long, or has characters that a path or a shell reads as something else.
pub(super) fn check_id(id: &str) -> Result<(), ControlError> {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || b"-_.:@".contains(&c);
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_good) && id != "." && id != ".."
    {
        return Ok(());
    }
    let help = format!("write 1 to {MAX_ID_BYTES} letters, digits and - _ . : @");
    Err(ControlError::invalid(format!("the id {id:?} is invalid"), help))
}

/// Checks that the members of an action are there, and no others.
fn check_members(members: &Map<String, Value>) -> Result<(), ControlError> {
    let has = |name: &str| members.contains_key(name);
    let action = members.get("action");
    let (error, help) = match action.map(|name| name.as_str().unwrap_or_default()) {
        _ if !has("domain") => {
            let help = "write a domain (-d DOMAIN in a command), or `*` for all";
            ("`domain` is missing".to_owned(), help)
        }
        _ if !has("entries") => {
            let help = "write the entries of the descriptors, or [] for all of the domain";
            ("`entries` is missing".to_owned(), help)
        }
        None => ("`action` is missing".to_owned(), "write block, allow or limit"),
        Some("limit") if !has("limit") => {
            ("`limit` is missing".to_owned(), r#"write the numbers, as "limit":{"n":10}"#)
        }
        Some(action @ ("block" | "allow")) if has("limit") => {
            (format!("`limit` with {action}"), "leave it out, or write the action `limit`")
        }
        Some("allow" | "limit") if has("except") => {
            let help = "leave it out: only a block spares others";
            ("`except` without the action `block`".to_owned(), help)
        }
        Some("block" | "limit") if has("count") => {
            let help = "leave it out: only `allow` can count or not";
            ("`count` without the action `allow`".to_owned(), help)
        }
        Some("block" | "allow" | "limit") => return Ok(()),
        Some(_) => {
            let action = action.unwrap_or(&Value::Null);
            (format!("unknown action {action}"), "write block, allow or limit")
        }
    };
    Err(ControlError::invalid(error, help))
}

fn read_expiry(duration: Option<&str>, until: Option<&str>) -> Result<Expiry, ControlError> {
    match (duration, until) {
        (None, None) => Ok(Expiry::Default),
        (Some("forever"), None) | (None, Some("forever")) => Ok(Expiry::Forever),
        (Some(duration), None) => read_duration(duration).map(Expiry::For).ok_or_else(|| {
            let help = "write for instance 10m, 1h30m, 7d or forever";
            ControlError::invalid(format!("`for` is not a duration: {duration:?}"), help)
        }),
        (None, Some(until)) => time::read(until).map(Expiry::Until).ok_or_else(|| {
            let help = "write a time as RFC 3339 has it, such as 2030-01-31T08:00:00Z";
            ControlError::invalid(format!("`until` is not a time: {until:?}"), help)
        }),
        (Some(_), Some(_)) => {
            Err(ControlError::invalid("`for` and `until`", "write only one of the two"))
        }
    }
}
