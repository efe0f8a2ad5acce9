//! A control, which an operator sets at run time: which descriptors it matches, and what it does (block, allow, limit).

use std::fmt::{self, Display, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pattern::{Pattern, network};
use super::time;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::glob::Glob;
use weir_common::value;
use weir_limit::Micros;
use weir_rules::rate::Rate;

pub(crate) const MAX_CONTROLS: usize = 10_000;

/// The most controls that are compared with a descriptor one by one: without an exact value, or with a shared one.
pub(crate) const MAX_COMPARED: usize = 100;

/// A decision of an operator about the descriptors that contain its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The id, by which operators change it.
    pub id: String,
    /// The domain; `*` matches any.
    pub domain: String,
    /// The entries that a descriptor must contain. In a value `*` stands for any text, and a network for
    /// what lies in it.
    pub entries: Vec<OwnedEntry>,
    /// Whether a descriptor must have these entries only, in this order.
    #[serde(default)]
    pub exact: bool,
    /// Whether a network in a value matches only the same text, and not the addresses in it.
    #[serde(default)]
    pub text: bool,
    /// What is done to the descriptors.
    #[serde(flatten)]
    pub action: Action,
    /// What a block spares: requests with one of these entries in a descriptor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<OwnedEntry>,
    /// When the control ends; none: never.
    #[serde(default, with = "time")]
    pub until: Option<Micros>,
    /// Why the operator wrote it; may be empty.
    #[serde(default)]
    pub reason: String,
    /// Who wrote it; may be empty.
    #[serde(default)]
    pub by: String,
    /// When the control was written. Of two controls with the same id the newer one is valid.
    #[serde(with = "time")]
    pub at: Micros,
}

/// Controls that changed, by their ids; none where there is no control any more.
pub(super) type ChangedControls = Vec<(String, Option<Arc<Control>>)>;

/// A control as an operator asks for it: the body of a request. What has no comment is as in [`Control`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// Empty in a request about the only domain that has rules.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    pub entries: Vec<OwnedEntry>,
    #[serde(default)]
    pub exact: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
    #[serde(flatten)]
    pub action: Action,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<OwnedEntry>,
    /// How long it lasts, such as `1h`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// When it ends, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub by: String,
}

impl Draft {
    /// The members of a control's JSON.
    pub(super) const MEMBERS: [&str; 12] = [
        "domain", "entries", "exact", "text", "action", "except", "for", "until", "reason", "by",
        "count", "limit",
    ];
    /// The members whose value cannot be null; in others, null means missing.
    pub(super) const NOT_NULL: [&str; 4] = ["exact", "text", "reason", "by"];

    pub(super) fn texts(&self) -> impl Iterator<Item = &String> + Clone {
        let entries = self.entries.iter().chain(&self.except);
        entries.flat_map(|entry| [&entry.key, &entry.value]).chain([
            &self.domain,
            &self.reason,
            &self.by,
        ])
    }

    /// Makes a control without an end.
    pub(super) fn into_control(self, id: String, at: Micros) -> Control {
        let Draft { domain, entries, exact, text, action, except, reason, by, .. } = self;
        Control { id, domain, entries, exact, text, action, except, until: None, reason, by, at }
    }

    /// Returns the id of its control by default: a hash of its action, of what it matches, and of the limit it names.
    /// What it spares is no part: a block that spares others replaces the one of the same entries.
    pub(super) fn default_id(&self) -> String {
        let mut entries: Vec<&OwnedEntry> = self.entries.iter().collect();
        if !self.exact {
            entries.sort();
        }
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(self.action.name());
        add(&self.domain);
        add(match (self.exact, self.text && has_network(&self.entries)) {
            (true, false) => "exact",
            (true, true) => "exact text",
            (false, false) => "contains",
            (false, true) => "contains text",
        });
        for entry in entries {
            add(&entry.key);
            add(&entry.value);
        }
        if let Action::Limit { limit: change } = &self.action
            && !change.name.is_empty()
        {
            add(&change.name);
        }
        let hash = hasher.finalize().to_hex();
        format!("{}-{}", self.action.name(), &hash[..12])
    }
}

/// The default of flags that are set where they are not written.
fn yes() -> bool {
    true
}

fn has_network(entries: &[OwnedEntry]) -> bool {
    entries.iter().any(|entry| network(&entry.value).is_some())
}

/// What a control does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum Action {
    /// Denies and charges nothing.
    Block,
    /// Allows, whatever the limits say.
    Allow {
        /// Whether hits are charged nevertheless.
        #[serde(default = "yes")]
        count: bool,
    },
    /// Gives a limit of the matched rule other numbers.
    Limit { limit: LimitChange },
}

/// The numbers for a limit of the matched rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "WrittenChange")]
pub struct LimitChange {
    /// The hits that one period allows.
    pub n: u32,
    /// The burst; none keeps that of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// The name of the limit; empty for the only one.
    pub name: String,
    /// `n` as a rate. Limits of another period stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// A change as JSON has it: with `n`, `rate`, or both if they agree.
#[derive(Deserialize)]
struct WrittenChange {
    n: Option<u32>,
    burst: Option<u32>,
    #[serde(default)]
    name: String,
    rate: Option<String>,
}

impl TryFrom<WrittenChange> for LimitChange {
    type Error = String;

    fn try_from(written: WrittenChange) -> Result<LimitChange, String> {
        let WrittenChange { n, burst, name, rate } = written;
        let read = |text: String| {
            text.parse::<Rate>().map_err(|help| format!("`rate` is {text:?}: {help}"))
        };
        let rate = rate.map(read).transpose()?;
        let n = match (n, rate) {
            (None, None) => return Err("missing field `n`".to_owned()),
            (Some(n), Some(rate)) if n != rate.n => {
                return Err(format!("`n` is {n}, and `rate` {rate}: write only one of the two"));
            }
            (n, rate) => rate.map(|rate| rate.n).or(n).unwrap_or_default(),
        };
        Ok(LimitChange { n, burst, name, rate })
    }
}

impl Action {
    /// Returns the name of the action in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Block => "block",
            Action::Allow { .. } => "allow",
            Action::Limit { .. } => "limit",
        }
    }
}

/// Writes what an action does in words: `limit 500 burst 20 (daily)`.
impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Action::Block | Action::Allow { count: true } => Ok(()),
            Action::Allow { count: false } => f.write_str(", not counted"),
            Action::Limit { limit: LimitChange { n, burst, name, rate } } => {
                match rate {
                    Some(rate) => write!(f, " {rate}")?,
                    None => write!(f, " {n}")?,
                }
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
    pub(super) fn patterns(&self) -> impl Iterator<Item = Pattern> {
        self.entries.iter().map(|entry| Pattern::new(&entry.value, self.text))
    }

    /// Returns the values that stand for what lies in a network.
    pub fn networks(&self) -> impl Iterator<Item = &str> {
        let values = self.entries.iter().map(|entry| entry.value.as_str());
        values.filter(|value| !self.text && network(value).is_some())
    }

    /// Returns whether a value is a network, and a text like others.
    pub(crate) fn is_text_of_network(&self) -> bool {
        self.text && has_network(&self.entries)
    }

    /// Returns the entries that match one text.
    pub(super) fn text_entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let entries = self.entries.iter().zip(self.patterns());
        entries.filter_map(|(entry, pattern)| match pattern {
            Pattern::Glob(Glob::Text(_)) => Some((&*entry.key, &*entry.value)),
            _ => None,
        })
    }

    pub(super) fn excepted(&self) -> impl Iterator<Item = Pattern> {
        self.except.iter().map(|entry| Pattern::new(&entry.value, self.text))
    }

    /// Returns whether it matches a request of this descriptor alone, expired or not.
    pub fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        self.matches_by(&self.patterns().collect::<Vec<_>>(), domain, entries)
            && !self.spares(&self.excepted().collect::<Vec<_>>(), entries)
    }

    /// Returns whether one of some entries is among those that it spares, which have these patterns.
    pub(super) fn spares(&self, excepted: &[Pattern], entries: &[Entry<'_>]) -> bool {
        self.except.iter().zip(excepted).any(|mine| entries.iter().any(|sent| is_like(sent, mine)))
    }

    pub(super) fn matches_by(
        &self,
        patterns: &[Pattern],
        domain: &str,
        entries: &[Entry<'_>],
    ) -> bool {
        if self.domain != "*" && self.domain != domain {
            return false;
        }
        let mut mine = self.entries.iter().zip(patterns);
        match self.exact {
            true => {
                patterns.len() == entries.len()
                    && mine.zip(entries).all(|(mine, theirs)| is_like(theirs, mine))
            }
            false => mine.all(|mine| entries.iter().any(|theirs| is_like(theirs, mine))),
        }
    }

    /// Returns whether another one matches all that it matches. Of two values with `*` only equal ones count.
    pub(super) fn is_within(&self, other: &Control) -> bool {
        let is_within = |mine: &OwnedEntry, theirs: &OwnedEntry| {
            mine.key == theirs.key && {
                let mine = Pattern::new(&mine.value, self.text);
                mine.is_within(&Pattern::new(&theirs.value, other.text))
            }
        };
        if other.domain != "*" && other.domain != self.domain {
            return false;
        }
        let mut theirs = other.entries.iter();
        match other.exact {
            true => {
                self.exact
                    && self.entries.len() == theirs.len()
                    && theirs.zip(&self.entries).all(|(theirs, mine)| is_within(mine, theirs))
            }
            false => theirs.all(|theirs| self.entries.iter().any(|mine| is_within(mine, theirs))),
        }
    }

    /// Returns whether it matches every descriptor of its domain, or all that have its keys.
    pub(crate) fn matches_everything(&self) -> bool {
        self.patterns().all(|pattern| pattern.is_any())
    }

    pub fn is_expired(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Returns the milliseconds that are left at `now`, rounded up; none if it does not end.
    pub fn left_ms(&self, now: Micros) -> Option<u64> {
        self.until.map(|until| until.saturating_sub(now).div_ceil(1_000))
    }

    /// Returns what it matches, in words: `shop user=ann,path=*`.
    pub fn match_text(&self) -> String {
        let mut text = self.domain.clone();
        for (i, entry) in self.entries.iter().enumerate() {
            let separator = if i == 0 { ' ' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{}={}", entry.key, value::shown(&entry.value));
        }
        text + &self.flags_text()
    }

    /// Returns how its entries are read, and whom it spares, in words: ` (exact)`, ` except plan=partner`; often empty.
    pub fn flags_text(&self) -> String {
        let mut text = match (self.exact, self.is_text_of_network()) {
            (false, false) => String::new(),
            (true, false) => " (exact)".to_owned(),
            (false, true) => " (text)".to_owned(),
            (true, true) => " (exact, text)".to_owned(),
        };
        for (i, OwnedEntry { key, value }) in self.except.iter().enumerate() {
            let before = if i == 0 { " except " } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}{key}={}", value::shown(value));
        }
        text
    }
}

/// Returns whether an entry of a descriptor has the key of one of a control, and a value of its pattern.
#[inline]
fn is_like((key, value): &Entry<'_>, (entry, pattern): (&OwnedEntry, &Pattern)) -> bool {
    entry.key == *key && pattern.matches(value)
}
