//! The types of a decision, independent of its encoding: the charges of a request, their answers, and what is decided.

use std::num::NonZeroU32;
use std::time::Duration;

use smallvec::SmallVec;

use crate::lookup::{Lookup, Matched};
use crate::options::LimiterOptions;
use crate::request::Request;
use weir_limit::{Algorithm, Limit, Micros, Op, Plan, ReservationResult, SECOND, Unit};
use weir_rules::{Domain, Metadata, Rule};
use weir_store::{Answer, Batch, Charge, Key, Role, StoreError};

/// The answer to a charge that a store does not answer, which no store does.
static NOT_ANSWERED: Answer = Err(StoreError::Unavailable);

/// The charges of a request: what it does with its hits of one key, for each descriptor with a limit.
pub(super) struct Charges<'a> {
    list: SmallVec<[Charge<'a>; 4]>,
    domain: Option<&'a Domain>,
    /// Whether a quota passes whatever the store answers: quotas deny a request only if all of them deny.
    quota_passes: bool,
}

impl<'a> Charges<'a> {
    #[inline]
    pub fn new(domain: Option<&'a Domain>) -> Charges<'a> {
        Charges { list: SmallVec::new(), domain, quota_passes: false }
    }

    #[inline]
    pub fn add_all(
        &mut self,
        request: &Request<'a>,
        lookup: &'a Lookup<'_, '_>,
        options: &LimiterOptions,
    ) {
        for matched in &lookup.matched {
            let shadow =
                matched.applies.rule().is_some_and(|rule| rule.shadow_mode) || matched.is_allowed();
            let Some(plan) = matched.plan() else {
                self.quota_passes |= matched.is_quota;
                continue;
            };
            self.quota_passes |= matched.is_quota && shadow;
            let (key, hold) = key(request.domain, matched, plan);
            // In the global shadow mode no denial denies the request.
            let role = match (shadow || options.shadow_mode, matched.is_quota) {
                (true, _) => Role::Shadow,
                (_, true) => Role::Quota,
                _ => Role::Enforced,
            };
            self.list.push(Charge { key, plan, op: matched.op, hold, role });
        }
    }

    /// Whether there is nothing to ask the store.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The batch for the store.
    #[inline]
    pub fn batch(&self, timeout: Duration) -> Batch<'_> {
        Batch {
            charges: &self.list,
            together: self.domain.is_some_and(|domain| domain.together),
            quota_passes: self.quota_passes,
            timeout,
            waited: Duration::ZERO,
            on_failure: self.domain.and_then(|domain| domain.on_store_failure),
            span: None,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Decided<'a> {
    /// Nothing was to be charged: no limit applies, or a control decides alone.
    Uncharged,
    /// The store decided, or failed.
    Charged(&'a Charge<'a>, &'a Answer),
}

/// A request whose charges the store has answered.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a, 's, 'r> {
    pub request: &'a Request<'a>,
    pub lookup: &'a Lookup<'s, 'r>,
    pub batch: &'a Batch<'a>,
    /// One for each charge, in order.
    pub answers: &'a [Answer],
}

impl<'a, 's, 'r> Answered<'a, 's, 'r> {
    /// Returns the descriptors in order, each with what was decided about it.
    #[inline]
    pub fn descriptors(&self) -> impl Iterator<Item = (&'a Matched<'s, 'r>, Decided<'a>)> {
        let (mut charges, mut answers) = (self.batch.charges.iter(), self.answers.iter());
        self.lookup.matched.iter().map(move |matched| {
            let charge = matched.plan().and_then(|_| charges.next());
            let decided = match charge {
                None => Decided::Uncharged,
                Some(charge) => Decided::Charged(charge, answers.next().unwrap_or(&NOT_ANSWERED)),
            };
            (matched, decided)
        })
    }

    /// Returns whether what the store admitted was charged: not if it is charged together with what was denied.
    #[inline]
    pub fn are_charged(&self) -> bool {
        !self.batch.together || !self.batch.is_denied(self.answers)
    }

    /// Returns whether a charge may hold hits in flight, or is about a reservation.
    #[inline]
    pub fn may_hold(&self) -> bool {
        let may_hold = |charge: &Charge<'_>| {
            charge.plan.concurrency().is_some() || matches!(charge.op, Op::Reservation(_))
        };
        self.batch.charges.iter().any(may_hold)
    }
}

/// The key of a descriptor, and the id of its hold or reservation: the value of an entry that is not part of the key.
pub(super) fn key<'a>(
    domain: &'a str,
    matched: &'a Matched<'_, '_>,
    plan: &Plan,
) -> (Key<'a>, Option<&'a str>) {
    match matched.entries() {
        [others @ .., (_, id)] if plan.hold_id().is_some() => {
            (Key { domain, entries: others }, Some(*id))
        }
        _ if matched.reserves => {
            let (entries, id) = matched.split_id();
            (Key { domain, entries }, id)
        }
        entries => (Key { domain, entries }, None),
    }
}

/// The decision on a request.
#[derive(Clone, Debug, Default)]
pub struct RequestDecision<'s> {
    /// Whether the request is denied.
    pub over_limit: bool,
    /// The statuses, one for each descriptor, in order.
    pub statuses: SmallVec<[Status<'s>; 4]>,
}

/// The decision on one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status<'s> {
    /// Whether its limit denies it.
    pub over_limit: bool,
    /// The limit that decided; none if nothing matched or the rule is unlimited.
    pub limit: Option<ShownLimit<'s>>,
    /// The hits still allowed; `u32::MAX` if the rule is unlimited, 0 if nothing matched.
    pub remaining: u32,
    /// After a denial, the microseconds until the same hits are allowed; none if they never are.
    pub retry_after: Option<Micros>,
    /// The microseconds until the limit has its full allowance again. Without a limit: those until a control
    /// no longer blocks; 0 if nothing blocks, or forever.
    pub reset_after: Micros,
    /// Whether the descriptor counts as a quota: the request is over only if all quotas are.
    pub quota: bool,
    /// The rule that applies, if any.
    pub rule: Option<&'s Rule>,
    /// The limits of the rule with the numbers of a control; none if no control changes them.
    pub changed_plan: Option<&'s Plan>,
    /// The hits that were reserved or charged, if its rule reserves; what was settled if it was less. 0 where
    /// a control allows and does not count.
    pub reserved: u32,
    /// The result of the descriptor's reservation.
    pub reservation: ReservationResult,
}

impl<'s> Status<'s> {
    /// The wait after a denial, else the time until the full allowance, in whole seconds: at least 1, but 0 if
    /// nothing limits, or a control blocks forever.
    #[inline]
    pub fn reset_seconds(&self) -> u64 {
        let seconds = self.until_reset().div_ceil(SECOND);
        seconds.max(self.limit.is_some().into())
    }

    /// The wait after a denial, else the time until the full allowance, in microseconds.
    #[inline]
    pub fn until_reset(&self) -> Micros {
        self.retry_after.unwrap_or(self.reset_after)
    }

    /// Returns the limits of the rule, in its order, without those in shadow mode; none without a rule.
    pub fn limits(&self) -> impl Iterator<Item = ShownLimit<'s>> {
        let limits = match self.changed_plan {
            Some(plan) => plan.limits(),
            None => self.rule.map_or(&[][..], Rule::limits),
        };
        let enforced = limits.iter().filter(|limit| !limit.shadow_mode);
        enforced.map(|limit| ShownLimit::new(limit, &limit.name))
    }

    /// The metadata of the rule, if one of its limits decided.
    pub fn metadata(&self) -> Option<&'s Metadata> {
        self.limit.and(self.rule)?.metadata.as_ref()
    }
}

/// A limit as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownLimit<'s> {
    /// The name in its rule; empty if it has none.
    pub name: &'s str,
    /// The hits that are allowed in each period.
    pub requests_per_unit: u32,
    /// The unit of the period; none if the limit has no period.
    pub unit: Option<Unit>,
    /// How many units a period has.
    pub unit_multiplier: u32,
    /// The burst of a token_bucket or gcra; none if what remains counts down from `requests_per_unit`.
    pub burst: Option<Burst>,
}

/// The hits that a bucket allows at once when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Its number of hits.
    pub hits: u32,
    /// The time in which all of them come back, rounded up.
    pub seconds: NonZeroU32,
}

/// Why a request gets no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It names no domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// It has no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// No rules are loaded.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The descriptors it has, and the maximum.
    #[error("{0} descriptors in one request, {1} are allowed (setting grpc.max_descriptors)")]
    TooManyDescriptors(usize, usize),
    /// The position of an invalid descriptor, and what is wrong.
    #[error("descriptor {0}: {1}")]
    BadDescriptor(usize, &'static str),
    /// What a reservation is made, settled or cancelled with is invalid.
    #[error("{0}")]
    BadReservation(&'static str),
    /// The store did not answer.
    #[error("{}{}", .0, if *.0 == StoreError::TimedOut { " (settings store.budget and store.redis.slow_after)" } else { "" })]
    Store(#[from] StoreError),
}

impl<'s> ShownLimit<'s> {
    pub(super) fn new(limit: &Limit, name: &'s str) -> ShownLimit<'s> {
        ShownLimit {
            name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            unit_multiplier: limit.unit_multiplier,
            // Asked of buckets only: most limits are windows.
            burst: match limit.algorithm {
                Algorithm::TokenBucket(_) | Algorithm::Gcra(_) => Burst::new(limit),
                _ => None,
            },
        }
    }

    /// Returns the hits that what remains counts down from, and in how many seconds they come back; none without a
    /// period.
    pub fn quota(&self) -> (u32, Option<u64>) {
        match (self.burst, self.unit) {
            (Some(Burst { hits, seconds }), _) => (hits, Some(u64::from(seconds.get()))),
            (None, unit) => {
                let seconds = |unit: Unit| unit.seconds() * u64::from(self.unit_multiplier);
                (self.requests_per_unit, unit.map(seconds))
            }
        }
    }
}

impl Burst {
    #[cold]
    fn new(limit: &Limit) -> Option<Burst> {
        let time = limit.refill_time()?;
        let seconds = u32::try_from(time.div_ceil(SECOND)).unwrap_or(u32::MAX);
        let hits = u32::try_from(limit.capacity()).unwrap_or(u32::MAX);
        Some(Burst { hits, seconds: NonZeroU32::new(seconds)? })
    }
}

impl<'s> RequestDecision<'s> {
    /// Returns the wait after a denial until the same request is allowed, if no other takes hits before. None if it
    /// is allowed now, or if waiting does not help: it has more hits than a limit allows, or is blocked forever.
    pub fn retry_after(&self) -> Option<Duration> {
        let quotas = || self.statuses.iter().filter(|status| status.quota);
        let mut wait = 0;
        // One quota that passes is enough.
        if quotas().next().is_some() && quotas().all(|status| status.over_limit) {
            wait = quotas().filter_map(|status| status.retry_after).min()?;
        }
        for status in self.statuses.iter().filter(|status| status.over_limit && !status.quota) {
            wait = wait.max(status.retry_after?);
        }
        (self.over_limit && wait > 0).then(|| Duration::from_micros(wait))
    }

    /// Returns how long controls block the request, in seconds; none if they do not, or forever.
    pub fn blocked_seconds(&self) -> Option<u64> {
        let blocked = |status: &&Status<'s>| status.over_limit && status.limit.is_none();
        let waits = self.statuses.iter().filter(blocked).map(|status| status.reset_seconds());
        let is_forever = waits.clone().any(|wait| wait == 0);
        waits.max().filter(|_| self.over_limit && !is_forever)
    }

    /// Returns the status that response headers show: the last one over its limit that is not a
    /// quota, else the first one with the least remaining. None if no limit applied.
    pub fn shown(&self) -> Option<(&Status<'s>, &ShownLimit<'s>)> {
        let mut shown: Option<&Status<'s>> = None;
        let mut least = u32::MAX;
        for status in self.statuses.iter().filter(|status| status.limit.is_some()) {
            if status.over_limit && !status.quota {
                (shown, least) = (Some(status), 0);
            } else if shown.is_none() || status.remaining < least {
                (shown, least) = (Some(status), status.remaining);
            }
        }
        shown.and_then(|status| Some((status, status.limit.as_ref()?)))
    }
}
