//! A control: which descriptors it matches, and what it does to them.

use std::fmt::{self, Display, Write};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use weir_common::entry::Entry;
use weir_common::glob::Glob;
use weir_limit::{Micros, Numbers};

/// A decision of an operator about the descriptors that contain its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ControlText", into = "ControlText")]
pub struct Control {
    pub id: String,
    /// The domain; `*` matches any.
    pub domain: String,
    pub entries: Vec<ControlEntry>,
    /// Whether a descriptor must have these entries only, in this order.
    pub exact: bool,
    pub action: Action,
    /// When it ends; none: never.
    pub until: Option<Micros>,
    pub reason: String,
    pub by: String,
    /// When it was written. Of two controls with the same id the newer one is valid.
    pub at: Micros,
}

/// An entry that a descriptor must contain. In the value `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ControlEntry {
    pub key: String,
    pub value: String,
}

/// What a control does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Denies and charges nothing.
    Block,
    /// Allows, whatever the limits say.
    Allow {
        /// Whether hits are charged nevertheless.
        count: bool,
    },
    /// Gives a limit of the matched rule other numbers.
    Limit(LimitChange),
}

/// The numbers for a limit of the matched rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitChange {
    pub numbers: Numbers,
    /// The name of the limit; empty for the only one.
    pub name: String,
}

impl Action {
    /// Returns its name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Block => "block",
            Action::Allow { .. } => "allow",
            Action::Limit(_) => "limit",
        }
    }
}

/// What it does, in words: `limit 500 burst 20 (daily)`.
impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Action::Block | Action::Allow { count: true } => Ok(()),
            Action::Allow { count: false } => f.write_str(", not counted"),
            Action::Limit(LimitChange { numbers: Numbers { n, burst }, name }) => {
                write!(f, " {n}")?;
                if let Some(burst) = burst {
                    write!(f, " burst {burst}")?;
                }
                if !name.is_empty() {
                    write!(f, " ({name})")?;
                }
                Ok(())
            }
        }
    }
}

impl Control {
    /// Returns whether it matches a descriptor, expired or not.
    pub fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        let is = |entry: &ControlEntry, (key, value): &Entry<'_>| {
            entry.key == *key && Glob::new(&entry.value).matches(value)
        };
        if self.domain != "*" && self.domain != domain {
            return false;
        }
        match self.exact {
            true => {
                self.entries.len() == entries.len()
                    && self.entries.iter().zip(entries).all(|(mine, theirs)| is(mine, theirs))
            }
            false => self.entries.iter().all(|mine| entries.iter().any(|theirs| is(mine, theirs))),
        }
    }

    /// Returns whether another one matches every descriptor that it matches. Of two values with `*`
    /// only equal ones count.
    pub(super) fn is_within(&self, other: &Control) -> bool {
        let is = |mine: &ControlEntry, theirs: &ControlEntry| {
            let is_exact = || !mine.value.contains('*');
            mine.key == theirs.key
                && (mine.value == theirs.value
                    || theirs.value.contains('*')
                        && is_exact()
                        && Glob::new(&theirs.value).matches(&mine.value))
        };
        if other.domain != "*" && other.domain != self.domain {
            return false;
        }
        let mut theirs = other.entries.iter();
        match other.exact {
            true => {
                self.exact
                    && self.entries.len() == theirs.len()
                    && theirs.zip(&self.entries).all(|(theirs, mine)| is(mine, theirs))
            }
            false => theirs.all(|theirs| self.entries.iter().any(|mine| is(mine, theirs))),
        }
    }

    /// Returns whether it matches every descriptor of its domain, or all that have its keys.
    pub fn matches_everything(&self) -> bool {
        let is_any = |entry: &ControlEntry| {
            !entry.value.is_empty() && entry.value.bytes().all(|byte| byte == b'*')
        };
        self.entries.iter().all(is_any)
    }

    /// Returns whether one of its values has no `*`.
    pub(super) fn has_exact_value(&self) -> bool {
        self.entries.iter().any(|entry| !entry.value.contains('*'))
    }

    /// Returns whether it has ended at `now`.
    pub fn is_expired(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Returns what it matches, in words: `shop user=ann,path=*`.
    pub fn match_text(&self) -> String {
        let mut text = self.domain.clone();
        for (i, entry) in self.entries.iter().enumerate() {
            let separator = if i == 0 { ' ' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{}={}", entry.key, entry.value);
        }
        if self.exact { text + " (exact)" } else { text }
    }
}

/// Returns the id of a control that was given none: a hash of its action, of what it matches, and of the
/// limit that it names.
pub fn default_id(action: &Action, domain: &str, entries: &[ControlEntry], exact: bool) -> String {
    let mut entries: Vec<&ControlEntry> = entries.iter().collect();
    if !exact {
        entries.sort();
    }
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(action.name());
    add(domain);
    add(if exact { "exact" } else { "contains" });
    for entry in entries {
        add(&entry.key);
        add(&entry.value);
    }
    if let Action::Limit(change) = action
        && !change.name.is_empty()
    {
        add(&change.name);
    }
    let hash = hasher.finalize().to_hex();
    format!("{}-{}", action.name(), &hash[..12])
}

/// The members of a control in JSON.
#[derive(Serialize, Deserialize)]
struct ControlText {
    id: String,
    domain: String,
    entries: Vec<ControlEntry>,
    #[serde(default)]
    exact: bool,
    action: String,
    until: Option<TimeText>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    by: String,
    at: TimeText,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitText>,
}

/// The member `limit` in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitText {
    pub n: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    #[serde(default)]
    pub name: String,
}

impl From<LimitText> for LimitChange {
    fn from(LimitText { n, burst, name }: LimitText) -> LimitChange {
        LimitChange { numbers: Numbers { n, burst }, name }
    }
}

impl From<Control> for ControlText {
    fn from(control: Control) -> ControlText {
        let action = control.action.name().to_owned();
        let (count, limit) = match control.action {
            Action::Block => (None, None),
            Action::Allow { count } => (Some(count), None),
            Action::Limit(LimitChange { numbers: Numbers { n, burst }, name }) => {
                (None, Some(LimitText { n, burst, name }))
            }
        };
        ControlText {
            id: control.id,
            domain: control.domain,
            entries: control.entries,
            exact: control.exact,
            action,
            until: control.until.map(TimeText),
            reason: control.reason,
            by: control.by,
            at: TimeText(control.at),
            count,
            limit,
        }
    }
}

impl TryFrom<ControlText> for Control {
    type Error = String;

    fn try_from(text: ControlText) -> Result<Control, String> {
        let action = match (text.action.as_str(), text.limit) {
            ("block", _) => Action::Block,
            ("allow", _) => Action::Allow { count: text.count.unwrap_or(true) },
            ("limit", Some(limit)) => Action::Limit(limit.into()),
            ("limit", None) => return Err("a limit without the member `limit`".to_owned()),
            (other, _) => return Err(format!("unknown action {other:?}")),
        };
        Ok(Control {
            id: text.id,
            domain: text.domain,
            entries: text.entries,
            exact: text.exact,
            action,
            until: text.until.map(|until| until.0),
            reason: text.reason,
            by: text.by,
            at: text.at.0,
        })
    }
}

/// An instant that JSON has as RFC 3339 writes it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct TimeText(pub Micros);

impl From<TimeText> for String {
    fn from(TimeText(time): TimeText) -> String {
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        // A later one than RFC 3339 can write becomes the last.
        Timestamp::from_microsecond(time).unwrap_or(Timestamp::MAX).to_string()
    }
}

impl TryFrom<String> for TimeText {
    type Error = String;

    /// Reads a time; one before the epoch is the epoch.
    fn try_from(text: String) -> Result<TimeText, String> {
        let time = text.parse::<Timestamp>().map_err(|_| format!("not a time: {text:?}"))?;
        Ok(TimeText(Micros::try_from(time.as_microsecond()).unwrap_or(0)))
    }
}
