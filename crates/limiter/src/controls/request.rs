//! What an operator sends: a control without its id and its times.

use std::time::Duration;

use serde::Deserialize;

use super::control::{LimitText, TimeText};
use super::error::ControlError;
use super::{Action, ControlEntry};
use weir_common::duration::read_duration;
use weir_common::suggest::nearest;
use weir_limit::{MAX_PERIOD_SECONDS, Micros};

/// The longest duration: that of the longest period of a limit.
const MAX_DURATION: Duration = Duration::from_secs(MAX_PERIOD_SECONDS);

const MAX_ENTRIES: usize = 32;
const MAX_TEXT_BYTES: usize = 1_024;
/// Every replica reads all controls after each change.
const MAX_BYTES: usize = 4 << 10;
const MAX_ID_BYTES: usize = 128;

const MEMBERS: [&str; 10] =
    ["domain", "entries", "exact", "action", "for", "until", "reason", "by", "count", "limit"];

/// A control as an operator asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub domain: String,
    pub entries: Vec<ControlEntry>,
    pub exact: bool,
    pub action: Action,
    pub lasts: Lasts,
    pub reason: String,
    pub by: String,
}

/// How long a control lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// A block: the longest period of the rules that it matches, else an hour. Others: forever.
    Default,
    For(Duration),
    /// Until an instant.
    Until(Micros),
    Forever,
}

/// The body of a request.
#[derive(Deserialize)]
struct Body {
    domain: Option<String>,
    entries: Option<Vec<EntryText>>,
    #[serde(default)]
    exact: bool,
    action: Option<String>,
    #[serde(rename = "for")]
    duration: Option<String>,
    until: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    by: String,
    count: Option<bool>,
    limit: Option<LimitText>,
}

/// A member of `entries`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    key: String,
    value: String,
}

impl From<EntryText> for ControlEntry {
    fn from(EntryText { key, value }: EntryText) -> ControlEntry {
        ControlEntry { key, value }
    }
}

impl Draft {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn read(body: &[u8]) -> Result<Draft, ControlError> {
        let invalid = |error: serde_json::Error| {
            let help = r#"write for instance {"domain":"shop","entries":[{"key":"user","value":"m1"}],"action":"block","for":"1h"}"#;
            ControlError::invalid(format!("the body is not a control: {error}"), help)
        };
        let json: serde_json::Value = serde_json::from_slice(body).map_err(invalid)?;
        let members = json.as_object().into_iter().flat_map(serde_json::Map::keys);
        if let Some(unknown) = members.clone().find(|name| !MEMBERS.contains(&name.as_str())) {
            let help = match nearest(unknown, MEMBERS.into_iter()) {
                Some(near) => format!("write `{near}`"),
                None => format!("write only {}", MEMBERS.join(", ")),
            };
            return Err(ControlError::invalid(format!("unknown member `{unknown}`"), help));
        }
        let body: Body = serde_json::from_value(json).map_err(invalid)?;
        let entries = body.entries.ok_or_else(|| {
            let help = "write the entries of the descriptors, or [] for all of the domain";
            ControlError::invalid("`entries` is missing", help)
        });
        let draft = Draft {
            domain: body.domain.ok_or_else(|| {
                ControlError::invalid("`domain` is missing", "write a domain, or `*` for all")
            })?,
            entries: entries?.into_iter().map(ControlEntry::from).collect(),
            exact: body.exact,
            action: action(body.action.as_deref(), body.count, body.limit)?,
            lasts: lasts(body.duration.as_deref(), body.until.as_deref())?,
            reason: body.reason,
            by: body.by,
        };
        draft.check()?;
        Ok(draft)
    }

    /// Checks it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn check(&self) -> Result<(), ControlError> {
        if self.domain.is_empty() {
            return Err(ControlError::invalid(
                "`domain` is empty",
                "write a domain, or `*` for all",
            ));
        }
        if self.domain != "*" && self.domain.contains('*') {
            let error = format!("`*` is a part of the domain {:?}", self.domain);
            return Err(ControlError::invalid(error, "write the whole domain, or `*` for all"));
        }
        if self.entries.len() > MAX_ENTRIES {
            let error = format!("{} entries", self.entries.len());
            let help = format!("write up to {MAX_ENTRIES}");
            return Err(ControlError::invalid(error, help));
        }
        for (i, entry) in self.entries.iter().enumerate() {
            if entry.key.is_empty() {
                let error = format!("entry {i} has an empty key");
                return Err(ControlError::invalid(error, "write the key of a descriptor entry"));
            }
            if !self.exact && self.entries[..i].contains(entry) {
                let error = format!("entry {}={} is repeated", entry.key, entry.value);
                let help = "write it once: a control matches what contains its entries";
                return Err(ControlError::invalid(error, help));
            }
        }
        let entries = self.entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
        let texts = entries.chain([&self.domain, &self.reason, &self.by]);
        if texts.clone().any(|text| text.len() > MAX_TEXT_BYTES) {
            let help = format!("write up to {MAX_TEXT_BYTES} bytes in each");
            return Err(ControlError::invalid("a text is too long", help));
        }
        let bytes: usize = texts.map(String::len).sum();
        if bytes > MAX_BYTES {
            let error = format!("the texts of the control have {bytes} bytes");
            return Err(ControlError::invalid(error, format!("write up to {MAX_BYTES} in all")));
        }
        let too_long = match self.lasts {
            Lasts::For(time) if time.is_zero() => {
                let help = "write a duration above 0, as 10m or 1h30m";
                return Err(ControlError::invalid("the duration is 0", help));
            }
            Lasts::For(time) => time > MAX_DURATION,
            _ => false,
        };
        if too_long {
            let help = "write 100 years or less, or \"forever\"";
            return Err(ControlError::invalid("the duration is too long", help));
        }
        Ok(())
    }
}

/// Checks the id of a control.
///
/// # Errors
///
/// It is empty, too long, or has characters that a path or a shell reads as something else.
pub(super) fn check_id(id: &str) -> Result<(), ControlError> {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || b"-_.:@".contains(&c);
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_good) && id != "." && id != ".."
    {
        return Ok(());
    }
    let help = format!("write 1 to {MAX_ID_BYTES} letters, digits and - _ . : @");
    Err(ControlError::invalid(format!("the id {id:?} is invalid"), help))
}

fn action(
    name: Option<&str>,
    count: Option<bool>,
    limit: Option<LimitText>,
) -> Result<Action, ControlError> {
    let action = match name {
        Some("block") => Action::Block,
        Some("allow") => Action::Allow { count: count.unwrap_or(true) },
        Some("limit") => match limit {
            Some(limit) => return no_count(count).map(|()| Action::Limit(limit.into())),
            None => {
                let help = r#"write the numbers, as "limit":{"n":10}"#;
                return Err(ControlError::invalid("`limit` is missing", help));
            }
        },
        other => {
            let error = match other {
                Some(other) => format!("unknown action {other:?}"),
                None => "`action` is missing".to_owned(),
            };
            return Err(ControlError::invalid(error, "write block, allow or limit"));
        }
    };
    if limit.is_some() {
        let help = "leave it out, or write the action `limit`";
        return Err(ControlError::invalid(format!("`limit` with {}", action.name()), help));
    }
    if action == Action::Block {
        no_count(count)?;
    }
    Ok(action)
}

fn no_count(count: Option<bool>) -> Result<(), ControlError> {
    match count {
        None => Ok(()),
        Some(_) => {
            let help = "leave it out: only `allow` can count or not";
            Err(ControlError::invalid("`count` without the action `allow`", help))
        }
    }
}

fn lasts(duration: Option<&str>, until: Option<&str>) -> Result<Lasts, ControlError> {
    match (duration, until) {
        (None, None) => Ok(Lasts::Default),
        (Some("forever"), None) | (None, Some("forever")) => Ok(Lasts::Forever),
        (Some(duration), None) => read_duration(duration).map(Lasts::For).ok_or_else(|| {
            let help = "write for instance 10m, 1h30m, 7d or forever";
            ControlError::invalid(format!("`for` is not a duration: {duration:?}"), help)
        }),
        (None, Some(until)) => match TimeText::try_from(until.to_owned()) {
            Ok(TimeText(until)) => Ok(Lasts::Until(until)),
            Err(_) => {
                let help = "write a time as RFC 3339 has it, such as 2030-01-31T08:00:00Z";
                Err(ControlError::invalid(format!("`until` is not a time: {until:?}"), help))
            }
        },
        (Some(_), Some(_)) => {
            Err(ControlError::invalid("`for` and `until`", "write only one of the two"))
        }
    }
}
