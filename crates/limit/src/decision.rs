//! The decision of a charge, which becomes the answer to a descriptor. A charge is the hits of one descriptor of a
//! request, against all limits of a rule.

use smallvec::SmallVec;

use crate::time::Micros;

/// What made a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The store, from the key's state.
    #[default]
    Store,
    /// This replica (weir process) decided without the store: it repeats a denial that still holds.
    DeniedLocally,
    /// This replica decided without the store: it serves a lease, hits that the store charged ahead of requests.
    Leased,
    /// The policy (`store.on_failure`) for a failing store.
    Degraded,
}

/// The result for a reservation: hits charged under an id, and settled once it is known how many are used.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether all limits that are enforced allow the hits.
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
    /// See [`Verdict::retry_after`](crate::Verdict::retry_after).
    pub retry_after: Option<Micros>,
    /// What made the decision.
    pub source: Source,
    /// The hits that an [`UpTo`](crate::Op::UpTo) took, or that were charged to settle; 0 if it is denied, or
    /// a policy decided that charges nothing, and for other operations.
    pub granted: u32,
    /// The hits that were reserved, where they are settled now.
    pub reserved: u32,
    /// The result for a reservation.
    pub reservation: ReservationResult,
    /// Whether a ban denies it, or begins with it: the waits are those until it ends.
    pub banned: bool,
    /// Whether that ban begins with it.
    pub ban_begins: bool,
    /// Other limits that these hits brought or kept near their n, in the order of the rule: see
    /// [`Plan::with_near_limit_ratio`](crate::Plan::with_near_limit_ratio). They are rare, so there is room only for
    /// their address.
    pub near: Option<Box<SmallVec<[NearLimit; 2]>>>,
}

/// How much of a limit is used after hits that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimit {
    /// The index of the limit in the plan.
    pub limit: u8,
    /// Hits counted.
    pub used: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
}

impl Decision {
    /// The decision of a plan without limits.
    pub(crate) const ALLOWED: Decision = Decision {
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
        banned: false,
        ban_begins: false,
        near: None,
    };
}
