//! The JSON of `/v1`, weir's HTTP API for operators: the server writes it, and commands such as `weir block` read it.
//!
//! Types that are used elsewhere too are declared there: `Draft` (the body that sets a control), `Explained`,
//! `DescriptorState`, `ListedBucket`, `TopList` and `RuleDescription`. A reader ignores members that it does not know.
//! A member that is added later needs a default, so that answers of older servers can be read.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use weir_common::entry::OwnedEntry;
use weir_controls::Control;
use weir_limit::Micros;
use weir_limiter::CountedSpan;
use weir_quotas::ListedBucket;
use weir_rules::RuleDescription;
use weir_top::TopRow;

/// The answer to a failed request: why it failed, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    pub error: String,
    pub help: String,
    #[serde(default, skip_serializing_if = "AdviceKind::is_other")]
    pub kind: AdviceKind,
    /// The names of a rule's limits, if a control (a block, an allow or a limit of an operator) must name one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// The kind of an error for which a client may have better advice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceKind {
    /// The control matches everything, and was not forced.
    NeedsForce,
    /// There is no control of this id.
    NoControl,
    /// No rule with a limit matches the descriptor.
    NotCounted,
    /// No limit of the key counts hits over the span.
    NoSpan,
    /// No domain or rule has this name, nor a similar one.
    UnknownName,
    /// There is no token, or a wrong one.
    NeedsToken,
    /// Advice of no known kind, or of one of a later version.
    #[default]
    #[serde(other)]
    Other,
}

impl AdviceKind {
    fn is_other(&self) -> bool {
        *self == AdviceKind::Other
    }
}

/// A control with the time that is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownControl {
    #[serde(flatten)]
    pub control: Control,
    /// Milliseconds by the server's clock; none if it does not end.
    pub left_ms: Option<u64>,
}

impl ShownControl {
    pub fn new(control: Control, now: Micros) -> ShownControl {
        ShownControl { left_ms: control.left_ms(now), control }
    }
}

/// The answer of `GET /v1/controls`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlList {
    pub controls: Vec<ShownControl>,
    /// Why the last exchange with other replicas failed.
    pub share_error: Option<String>,
}

/// The answer of `GET /v1/controls/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneControl {
    pub control: ShownControl,
}

/// The answer of `DELETE /v1/controls/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedControl {
    pub control: ShownControl,
    /// Whether all replicas know the change within a second.
    pub shared: bool,
    /// Whether replicas share controls by their store: those that lack the change follow later.
    #[serde(default)]
    pub store_is_shared: bool,
    /// Whether the change outlives the process.
    pub kept: bool,
    /// Why the file that would keep it cannot be written.
    #[serde(default)]
    pub not_kept_because: Option<String>,
}

/// The answer of `POST /v1/controls` and `PUT /v1/controls/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenControl {
    #[serde(flatten)]
    pub change: ChangedControl,
    /// The names of rules whose descriptors it may match.
    pub rules: Vec<String>,
    /// What the operator may not expect.
    pub warnings: Vec<String>,
    /// Top keys of the last hour that the control matches.
    pub matched: Vec<TopRow>,
    /// The hits of the last hour that it matches, at least, and all.
    #[serde(default)]
    pub matched_hits: u64,
    #[serde(default)]
    pub all_hits: u64,
}

/// The answer of `GET /v1/quotas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaList {
    pub buckets: Vec<ListedBucket>,
    /// All that match, listed or not.
    pub found: usize,
    /// The open streams, one for each Envoy and domain.
    pub streams: usize,
}

/// The answer of `GET /v1/audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditList {
    pub records: Vec<AuditRecord>,
}

/// A change by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When, in RFC 3339.
    pub at: String,
    /// Who made it, as the client says, else how the client may: `loopback`, or the kind of its token.
    pub who: String,
    /// The address of the client.
    pub from: String,
    /// What was done: `put control`, `delete control`, `reset state`, `set log level`.
    pub action: String,
    /// What was changed, in words.
    pub subject: String,
}

/// The answer of `GET /v1/count`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    pub domain: String,
    pub entries: Vec<OwnedEntry>,
    pub rule: Option<RuleDescription>,
    pub key: String,
    pub counts: Vec<CountedSpan>,
}

/// The answer of `DELETE /v1/state`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reset {
    pub domain: String,
    pub entries: Vec<OwnedEntry>,
    pub rule: Option<RuleDescription>,
    pub control: Option<Control>,
    pub key: String,
    pub reset: bool,
}

/// The answer of `GET /v1/history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryAnswer {
    pub step_seconds: u64,
    /// The start of the first step and the end of the last.
    pub from: String,
    pub until: String,
    pub series: HistorySeries,
    /// The rules with series; none in the history of one rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<HistoryRule>>,
    pub events: Vec<Value>,
    pub denials: Vec<Value>,
}

/// A number for each step; none where nothing was sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistorySeries {
    pub within_limit: Vec<Option<u32>>,
    pub over_limit: Vec<Option<u32>>,
    pub would_be_over_limit: Vec<Option<u32>>,
    pub errors: Vec<Option<u32>>,
    /// Quantiles of the durations of requests; none in the history of one rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<Vec<Option<f32>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<Vec<Option<f32>>>,
}

/// What a rule has counted in all steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRule {
    pub domain: String,
    pub rule: String,
    pub within_limit: u64,
    pub over_limit: u64,
    pub would_be_over_limit: u64,
    pub errors: u64,
}

impl HistoryRule {
    /// The hits that were counted, and those that failed.
    pub fn hits(&self) -> u64 {
        let HistoryRule { within_limit, over_limit, would_be_over_limit, errors, .. } = self;
        within_limit + over_limit + would_be_over_limit + errors
    }
}
