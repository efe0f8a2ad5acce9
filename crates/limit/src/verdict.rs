//! What a charge answers: the verdict and the levels of one limit, the decision of a rule.

use smallvec::SmallVec;

use super::Micros;

/// One limit's answer to some hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// The smallest wait after which the same hits are allowed if nothing else happens. `None` if
    /// they are allowed now, or never will be.
    pub retry_after: Option<Micros>,
}

impl Verdict {
    pub(super) const ALLOWED: Verdict = Verdict { allowed: true, retry_after: None };

    /// A denial that no wait ends.
    pub(super) const NEVER: Verdict = Verdict { allowed: false, retry_after: None };
}

/// How much of one limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Hits counted.
    pub used: u64,
    /// The largest number of hits allowed now.
    pub remaining: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// Whether the state means the same as no state.
    pub empty: bool,
}

impl Levels {
    /// The levels of a state that is not of the limit's algorithm.
    pub(super) const UNKNOWN: Levels =
        Levels { used: 0, remaining: 0, reset_after: 0, empty: true };
}

/// How full a key's state is: what the memory store goes by when it must evict one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fill {
    /// Below half of its limit.
    Low,
    /// Half of the limit or more is used.
    High,
    /// The limit is used up.
    Full,
}

/// What made a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The store, from the key's state.
    #[default]
    Store,
    /// This replica decided: it repeats a denial that still holds.
    DeniedLocally,
    /// This replica decided: it serves hits that the store has charged before.
    Leased,
    /// The policy for a failing store.
    Degraded,
}

/// The result of reserving hits, of settling a reservation, or of cancelling one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservationResult {
    /// No reservation was made or settled: the request was denied, a policy decided, or the operation is another.
    #[default]
    None,
    /// Hits were reserved.
    Reserved,
    /// The reservation was settled or cancelled.
    Settled,
    /// The id has no reservation to settle or to cancel.
    Unknown,
    /// The same request has reserved these hits before.
    Repeated,
    /// Another request has reserved hits under the id before.
    Conflict,
}

/// The answer for one descriptor: that of its binding limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// The index of the binding limit in the plan.
    pub limit: u8,
    /// Limits in shadow mode that would have denied, one bit each.
    pub would_deny: u16,
    /// Hits the binding limit had counted before these.
    pub used_before: u64,
    /// The largest number of hits the binding limit allows now, after these.
    pub remaining: u64,
    /// Time until the binding limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// The smallest wait after which the same hits are allowed if nothing else happens. `None` if
    /// they are allowed now, or never will be.
    pub retry_after: Option<Micros>,
    pub source: Source,
    /// The hits that an [`UpTo`](super::Op::UpTo) took, or that were charged to settle; 0 if it is denied, or
    /// a policy decided that charges nothing, and for other operations.
    pub granted: u32,
    /// The hits that were reserved, where they are settled now.
    pub reserved: u32,
    pub reservation: ReservationResult,
    /// Other limits that these hits brought near their n, or took while they were; see
    /// [`Plan::with_near_limit_ratio`](super::Plan::with_near_limit_ratio).
    pub near: NearLimits,
}

/// Limits near their n, after hits that they took. They are seldom, so that a decision has room for
/// their address only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearLimits(Option<Box<SmallVec<[NearLimit; 2]>>>);

/// How much of a limit is used after hits that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimit {
    /// The index of the limit in the plan.
    pub limit: u8,
    pub used: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
}

impl NearLimits {
    /// Iterates over the limits, in the order of the rule.
    pub fn iter(&self) -> impl Iterator<Item = &NearLimit> {
        self.0.iter().flat_map(|limits| limits.iter())
    }

    pub(super) fn push(&mut self, near: NearLimit) {
        self.0.get_or_insert_default().push(near);
    }
}

impl Decision {
    pub(super) const ALLOWED: Decision = Decision {
        allowed: true,
        limit: 0,
        would_deny: 0,
        used_before: 0,
        remaining: u64::MAX,
        reset_after: 0,
        retry_after: None,
        source: Source::Store,
        granted: 0,
        reserved: 0,
        reservation: ReservationResult::None,
        near: NearLimits(None),
    };
}

/// The outcome of a charge: the decision, and what a store must know of the new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeOutcome {
    pub decision: Decision,
    /// When the state means the same as no state. If that is not after now, it need not be kept.
    pub expires: Micros,
    pub fill: Fill,
}

/// The hits in flight of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLevels {
    /// The number of holds; none if the limit has no hold ids.
    pub ids: Option<u64>,
    pub hits: u64,
    /// Time until the oldest hold expires, or without ids all hits; 0 if there are none.
    pub expires_after: Micros,
}

/// The hits that a limit counted over the last span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCount {
    /// The index of the limit in the plan.
    pub limit: u8,
    pub count: u64,
    /// The length of the intervals that hits are counted by; 0 if each is counted by its own time.
    pub resolution: Micros,
    /// A hit may be counted for up to this long after it has left the span; 0 if the count is exact.
    pub max_late: Micros,
    /// Whether earlier hits of the span may be missing, because the log keeps no more: those of a rule
    /// whose log is full and whose enforced limits all have shorter periods.
    pub is_minimum: bool,
}
