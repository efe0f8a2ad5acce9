//! Reads and resets, for operators, what the key of one descriptor has counted, and describes it as JSON. The key is
//! found as for a decision. Times in JSON are in milliseconds, rounded up.

use std::iter::zip;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::applied::{Applied, look_up, state_key};
use crate::limiter::Limiter;
use crate::lookup::{KeyValues, Lookup};
use crate::request::{Descriptor, Request};
use weir_common::entry::OwnedEntry;
use weir_controls::{ActiveView, Control};
use weir_limit::{
    Ban, BanReading, CountError, HoldLevels, KeyState, LeasedHits, Limit, LimitReading, Micros,
    Plan, SpanCount,
};
use weir_rules::{Rule, RuleDescription};
use weir_store::{StateKey, States, StoreError};

/// What applies to a descriptor, and what its key has counted.
#[derive(Debug)]
pub struct Inspection<'s> {
    /// The domain of the descriptor.
    pub domain: String,
    /// The entries of the descriptor, in order.
    pub entries: Vec<OwnedEntry>,
    /// What applies to the descriptor.
    pub applied: Applied<'s>,
    /// The state of the key; none if nothing is counted: no rule matches, or the rule is unlimited.
    pub state: Option<Result<KeyState, StoreError>>,
    /// What the policy `local` has counted for the key in place of a store that fails, and by which share of the plan.
    pub local: Option<(Arc<Plan>, KeyState)>,
    /// The spans of the counts in `state`, in order.
    pub spans: Vec<Micros>,
}

/// Why a descriptor's state was not reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetError {
    /// The descriptor is invalid, and why.
    #[error("{0}")]
    BadDescriptor(&'static str),
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
}

impl<S: States> Limiter<S> {
    /// Looks up a descriptor as a request with it alone does, reads what it has counted, and counts the hits of the
    /// last `spans`. Changes nothing. Ends within `timeout`. Failures of the store are part of the result.
    pub async fn inspect<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        domain: &str,
        descriptor: &Descriptor<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<Inspection<'s>, &'static str> {
        let request = alone(domain, descriptor);
        let mut key_values: KeyValues<'_> = None;
        let lookup = look_up(active.into(), &request, &mut key_values).map_err(|(_, why)| why)?;
        let key = counted_key(domain, &lookup);
        let state = match key {
            Some(key) => Some(self.store.read(key, spans, timeout).await),
            None => None,
        };
        let local = key.and_then(|key| self.store.read_local(key));
        Ok(Inspection {
            domain: domain.to_owned(),
            entries: OwnedEntry::copied(descriptor.entries.iter().copied()),
            applied: applied(&request, &lookup, &self.options.key_prefix),
            state,
            local,
            spans: spans.to_vec(),
        })
    }

    /// Looks up a descriptor as [`inspect`](Self::inspect) does, and deletes what it has counted, if anything is.
    /// The next request starts over. Ends within `timeout`. Returns what applies to the descriptor.
    pub async fn reset<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        domain: &str,
        descriptor: &Descriptor<'_>,
        timeout: Duration,
    ) -> Result<Applied<'s>, ResetError> {
        let request = alone(domain, descriptor);
        let mut key_values: KeyValues<'_> = None;
        let lookup = look_up(active.into(), &request, &mut key_values);
        let lookup = lookup.map_err(|(_, why)| ResetError::BadDescriptor(why))?;
        if let Some(key) = counted_key(domain, &lookup) {
            self.store.reset(key, timeout).await.map_err(ResetError::Store)?;
            if let (Some(top), Some(matched)) = (&self.top, lookup.matched.first()) {
                top.end_ban(domain, key.key.entries, matched.path());
            }
        }
        Ok(applied(&request, &lookup, &self.options.key_prefix))
    }
}

fn alone<'r>(domain: &'r str, descriptor: &'r Descriptor<'r>) -> Request<'r> {
    let descriptors = slice::from_ref(descriptor);
    Request { domain, descriptors, ..Request::default() }
}

fn counted_key<'a>(domain: &'a str, lookup: &'a Lookup<'_, '_>) -> Option<StateKey<'a>> {
    state_key(domain, lookup, lookup.matched.first()?)
}

fn applied<'s>(request: &Request<'_>, lookup: &Lookup<'s, '_>, key_prefix: &str) -> Applied<'s> {
    let applied = |matched| Applied::new(request, lookup, matched, key_prefix);
    lookup.matched.first().map(applied).unwrap_or_default()
}

/// What applies to a descriptor, and what its key has counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DescriptorState {
    /// The domain of the descriptor.
    pub domain: String,
    /// The entries of the descriptor, in order.
    pub entries: Vec<OwnedEntry>,
    /// The rule that applies.
    pub rule: Option<RuleDescription>,
    /// The control that decides, or that changes a limit.
    pub control: Option<Control>,
    /// The key in the store; none if nothing is counted.
    pub key: Option<String>,
    /// One for each limit of the key, in order.
    pub limits: Vec<InspectedLimit>,
    /// The strikes and the ban of the key; none if its rule has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<InspectedBan>,
    /// The hits in flight; none without a concurrency limit.
    pub holds: Option<HoldState>,
    /// What the id of the descriptor has reserved; none if nothing can be settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationState>,
    /// The hits that are counted, but not served yet, by the replica that answers; none if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<LeasedState>,
    /// The hits that clients were granted by the replica that answers, which adds them; none if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantedState>,
    /// The hits in the log that count; none without a sliding_log limit.
    pub log_len: Option<u64>,
    /// What the replica that answers has counted by the policy `local`, of its share of each limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<InspectedLimit>,
}

/// A state as far as the store could be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadState {
    /// The state; its numbers are none if the store could not be read.
    #[serde(flatten)]
    pub state: DescriptorState,
    /// The hits of each span; none if they could not be read.
    pub counts: Option<Vec<CountedSpan>>,
    /// Why the store could not be read.
    pub error: Option<String>,
}

/// A limit; what it has counted is none if it could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedLimit {
    /// The name of the limit; empty if it has none.
    pub name: String,
    /// The algorithm, as rule files name it.
    pub algorithm: String,
    /// The hits that one period allows.
    pub n: u32,
    /// The limit in words.
    pub text: String,
    /// Whether the limit only counts.
    pub shadow_mode: bool,
    /// Hits counted.
    pub used: Option<u64>,
    /// The largest number of hits allowed now.
    pub remaining: Option<u64>,
    /// The time until the limit, left alone, is back to its full allowance.
    pub reset_ms: Option<u64>,
    /// The wait until one hit is allowed; none if one is allowed now, or never will be.
    pub retry_ms: Option<u64>,
}

/// The strikes of a key, which are denials that count, and its ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedBan {
    /// Whether the key is banned.
    pub banned: bool,
    /// The strikes since the first one that counts.
    pub strikes: u8,
    /// The strikes with which a ban begins.
    pub after: u8,
    /// The time within which strikes count together.
    pub within_ms: u64,
    /// The time since the first strike, of a banned key since the first of those that led to the ban; none without any.
    pub since_ms: Option<u64>,
    /// The time until the ban ends; none without one.
    pub ends_ms: Option<u64>,
    /// The bans in a row, with the one that lasts.
    pub bans: u8,
}

/// The hits in flight of a concurrency limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldState {
    /// The number of ids; none if hits have no ids.
    pub ids: Option<u64>,
    /// The number of hits in flight.
    pub hits: u64,
    /// The time until the first expires.
    pub expires_ms: u64,
}

/// What an id has reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationState {
    /// The number of reserved hits.
    pub hits: u64,
    /// The number of reservations that the hits are the sum of.
    pub count: u64,
    /// The time since the first reservation.
    pub age_ms: u64,
    /// The time within which the reservations can be settled.
    pub lapses_ms: u64,
}

/// Hits of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedState {
    /// The number of hits that are not served yet.
    pub hits: u64,
    /// The time until unused hits are returned.
    pub ends_ms: u64,
}

/// Hits that clients were granted ahead of time, and have not reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedState {
    /// The number of hits.
    pub hits: u64,
    /// The number of clients, each with a stream of its own.
    pub streams: u64,
}

/// The hits of a span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedSpan {
    /// The length of the span.
    pub span_ms: u64,
    /// The count.
    #[serde(flatten)]
    pub result: CountResult,
}

/// A count, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CountResult {
    /// There is no count.
    Failed {
        /// Why not.
        error: String,
    },
    /// A limit has counted.
    Counted {
        /// The number of hits.
        count: u64,
        /// The length of the intervals that hits are counted by.
        resolution_ms: u64,
        /// How long a hit may be counted after it has left the span.
        max_late_ms: u64,
        /// Whether earlier hits may be missing.
        is_minimum: bool,
        /// The index of the limit that counted.
        limit: u8,
        /// The algorithm of that limit.
        algorithm: String,
    },
}

impl Inspection<'_> {
    /// Describes what applies, and what the key has counted.
    pub fn describe(&self) -> ReadState {
        let limits = self.applied.plan.iter().flat_map(|plan| plan.limits()).enumerate();
        let state = self.state.as_ref().and_then(|state| state.as_ref().ok());
        let failed = self.state.as_ref().and_then(|state| state.as_ref().err());
        let reading = |i: usize| state.and_then(|state| state.limits.get(i));
        let counts = state.map(|state| self.spans.iter().zip(&state.counts));
        let local = self.local.iter().flat_map(|(plan, state)| zip(plan.limits(), &state.limits));
        let count = |(span, count): (&Micros, _)| self.counted_span(*span, count);
        let ban = self.applied.plan.as_ref().and_then(|plan| plan.ban());
        let ban = ban.zip(state.and_then(|state| state.ban));
        ReadState {
            state: DescriptorState {
                domain: self.domain.clone(),
                entries: self.entries.clone(),
                rule: self.applied.rule.map(Rule::describe),
                control: self.applied.effect.map(|effect| effect.control().clone()),
                key: self.applied.key.clone(),
                limits: limits.map(|(i, limit)| limit_state(limit, reading(i))).collect(),
                ban: ban.map(|(ban, reading)| ban_state(ban, reading)),
                holds: state.and_then(|state| state.holds.as_ref()).map(hold_state),
                reservation: state.and_then(reservation_state),
                leased: state.and_then(|state| state.leased).map(leased_state),
                granted: None,
                log_len: state.and_then(|state| state.log_len),
                local: local.map(|(limit, reading)| limit_state(limit, Some(reading))).collect(),
            },
            counts: counts.map(|counts| counts.map(count).collect()),
            error: failed.map(ToString::to_string),
        }
    }

    fn counted_span(&self, span: Micros, count: &Result<SpanCount, CountError>) -> CountedSpan {
        let mut limits = self.applied.plan.iter().flat_map(|plan| plan.limits());
        let result = match count {
            Ok(count) => CountResult::Counted {
                count: count.count,
                resolution_ms: millis(count.resolution),
                max_late_ms: millis(count.max_late),
                is_minimum: count.is_minimum,
                limit: count.limit,
                algorithm: limits
                    .nth(count.limit.into())
                    .map_or_else(String::new, |limit| limit.algorithm.name().to_owned()),
            },
            Err(error) => CountResult::Failed { error: error.to_string() },
        };
        CountedSpan { span_ms: millis(span), result }
    }
}

fn limit_state(limit: &Limit, reading: Option<&LimitReading>) -> InspectedLimit {
    InspectedLimit {
        name: (*limit.name).to_owned(),
        algorithm: limit.algorithm.name().to_owned(),
        n: limit.requests_per_unit,
        text: limit.to_string(),
        shadow_mode: limit.shadow_mode,
        used: reading.map(|reading| reading.used),
        remaining: reading.map(|reading| reading.remaining),
        reset_ms: reading.map(|reading| millis(reading.reset_after)),
        retry_ms: reading.and_then(|reading| reading.retry_after).map(millis),
    }
}

fn ban_state(ban: &Ban, reading: BanReading) -> InspectedBan {
    let BanReading { strikes, after, since, ends_in, bans } = reading;
    let is_banned = ends_in > 0;
    InspectedBan {
        banned: is_banned,
        strikes,
        after,
        within_ms: millis(ban.within),
        since_ms: (is_banned || strikes > 0).then_some(since / 1_000),
        ends_ms: is_banned.then(|| millis(ends_in)),
        bans,
    }
}

fn hold_state(holds: &HoldLevels) -> HoldState {
    HoldState { ids: holds.ids, hits: holds.hits, expires_ms: millis(holds.expires_after) }
}

fn reservation_state(state: &KeyState) -> Option<ReservationState> {
    let reservation = state.reservation?;
    Some(ReservationState {
        hits: reservation.hits.into(),
        count: reservation.count.into(),
        age_ms: state.now.saturating_sub(reservation.taken) / 1_000,
        lapses_ms: millis(reservation.lapses.saturating_sub(state.now)),
    })
}

fn leased_state(leased: LeasedHits) -> LeasedState {
    LeasedState { hits: leased.hits, ends_ms: millis(leased.ends_in) }
}

/// Converts a time to milliseconds, rounded up: what it is the time until has happened then.
fn millis(time: Micros) -> u64 {
    time.div_ceil(1_000)
}
