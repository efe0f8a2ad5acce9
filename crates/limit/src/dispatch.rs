//! Calls what [`LimitAlgorithm`] has for an algorithm and a state of any kind.

use std::fmt;

use super::hit_log::HitLog;
use super::{
    Algorithm, ChargeOutcome, Hits, HoldLevels, Levels, Limit, LimitAlgorithm, LimitState, Micros,
    NumbersChange, NumbersError, Op, Packed, SpanCount, Undo, Verdict, packed,
};

/// Declares methods that return a constant of the algorithm.
macro_rules! constants {
    ($($name:ident = $constant:ident: $type:ty;)*) => {
        impl Algorithm {
            $(pub(super) fn $name(&self) -> $type {
                each!(self, A(_) => A::$constant)
            })*
        }
    };
}

/// Declares methods that call that of the parameters.
macro_rules! methods {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Algorithm {
            $(pub(super) fn $name(&self, $($argument: $type),*) -> $result {
                each!(self, limit => limit.$name($($argument),*))
            })*
        }
    };
}

/// Declares methods that call that of the parameters for a state. The value after `else` is for states
/// of other algorithms.
macro_rules! state_methods {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($state:ident: $state_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty,
        else $other:expr;
    )*) => {
        impl Algorithm {
            $($(#[$attribute])*
            pub(super) fn $name(&self, $state: $state_type $(, $argument: $type)*) -> $result {
                each!(
                    (self, $state),
                    (limit, $state) => limit.$name($state $(, $argument)*),
                    _ => $other
                )
            })*
        }
    };
}

constants! {
    packs = PACKS: bool;
    counts_at_zero = COUNTS_AT_ZERO: bool;
    answers_looks_if_n_is_zero = ANSWERS_LOOKS_IF_N_IS_ZERO: bool;
    denial_covers_more_hits = DENIAL_COVERS_MORE_HITS: bool;
    counts_in_flight = COUNTS_IN_FLIGHT: bool;
    reset_recurs = RESET_RECURS: bool;
    needs_expiry = NEEDS_EXPIRY: bool;
}

methods! {
    fn repeats_denials(charge_denied: bool, alone: bool) -> bool;
    fn hold_id() -> Option<&str>;
    fn capacity(n: u32) -> u64;
    fn window_end(t: Micros) -> Option<Micros>;
    fn log_period() -> Option<Micros>;
    fn longest_span() -> Option<Micros>;
    fn write_text(text: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn write_shape(shape: &mut String) -> ();
}

state_methods! {
    fn count(state: &LimitState, log: &HitLog, now: Micros, span: Micros) -> Option<SpanCount>, else None;
    fn holds(state: &LimitState, now: Micros) -> Option<HoldLevels>, else None;
    fn newest_window(state: &LimitState) -> Micros, else 0;
    fn verdict(state: &LimitState, log: &HitLog, now: Micros, hits: Hits) -> Verdict, else Verdict::NEVER;
    fn levels(state: &LimitState, log: &HitLog, now: Micros) -> Levels, else Levels::UNKNOWN;
    fn room(state: &LimitState, log: &HitLog, now: Micros, hold: u64) -> u64, else 0;
    // `Limit::add`, a second caller, must not turn it into a call where `Plan::take` has it inlined.
    #[inline(always)]
    fn charge(state: &mut LimitState, now: Micros, hits: Hits, charge_denied: bool) -> (), else ();
    fn deny(state: &mut LimitState, now: Micros) -> (), else ();
    fn undo(state: &mut LimitState, undo: &Undo) -> (), else ();
    fn refund(state: &mut LimitState, now: Micros, hits: Hits) -> (), else ();
}

impl Algorithm {
    /// Returns the name in rule files.
    pub fn name(&self) -> &'static str {
        each!(self, A(_) => A::NAME)
    }

    /// Returns whether callers read the tokens that a denial leaves. Otherwise a denied limit counts as
    /// used up.
    pub fn reports_tokens(&self) -> bool {
        each!(self, A(_) => A::REPORTS_TOKENS)
    }

    /// Returns the bytes of a state in memory, besides those of hits that it keeps.
    pub fn state_bytes(&self) -> usize {
        each!(self, limit => limit.state_bytes())
    }

    /// Returns the bytes that a state keeps of each hit; 0 if it only counts them.
    pub(super) fn hit_bytes(&self) -> u64 {
        each!(self, A(limit) => if limit.keeps_hits() { A::HIT_BYTES } else { 0 })
    }

    /// See [`LimitAlgorithm::replica_share`].
    pub(super) fn replica_share(&self, n: u32, replicas: u32) -> Algorithm {
        each!(self, limit => limit.replica_share(n, replicas).into())
    }

    /// See [`LimitAlgorithm::with_numbers`].
    pub(super) fn with_numbers(&self, change: NumbersChange) -> Result<Algorithm, NumbersError> {
        each!(self, limit => limit.with_numbers(change).map(Algorithm::from))
    }

    /// See [`packed::charge`].
    pub(super) fn charge_packed(
        &self,
        limit: &Limit,
        packed: &mut Packed,
        now: Micros,
        hits: (Op, Hits),
    ) -> ChargeOutcome {
        each!(self, algorithm => packed::charge(limit, algorithm, packed, now, hits))
    }

    /// See [`LimitAlgorithm::undo_of`].
    pub(super) fn undo_of(
        &self,
        before: &LimitState,
        after: &LimitState,
        now: Micros,
    ) -> Option<Undo> {
        each!(
            (self, before, after),
            (limit, before, after) => limit.undo_of(before, after, now),
            _ => None
        )
    }
}
