//! Calls each method of [`LimitAlgorithm`] for an algorithm and a state of any kind.

use std::fmt;

use super::hit_log::HitLog;
use super::idle::Spans;
use super::{
    Algorithm, ChargeOutcome, Hits, HoldLevels, Levels, Limit, LimitAlgorithm, LimitState, Micros,
    NumbersChange, NumbersError, Op, Packed, Parameter, SpanCount, Undo, Verdict, packed,
};

impl Algorithm {
    /// Returns the name in rule files.
    pub fn name(&self) -> &'static str {
        each!(self, A(_) => A::NAME)
    }

    /// See [`LimitAlgorithm::PACKS`].
    pub(super) fn packs(&self) -> bool {
        each!(self, A(_) => A::PACKS)
    }

    /// See [`LimitAlgorithm::COUNTS_AT_ZERO`].
    pub(super) fn counts_at_zero(&self) -> bool {
        each!(self, A(_) => A::COUNTS_AT_ZERO)
    }

    /// See [`LimitAlgorithm::ALLOWS_LOOKS_AT_ZERO`].
    pub(super) fn allows_looks_at_zero(&self) -> bool {
        each!(self, A(_) => A::ALLOWS_LOOKS_AT_ZERO)
    }

    /// See [`LimitAlgorithm::DENIES_MORE_ALIKE`].
    pub(super) fn denies_more_alike(&self) -> bool {
        each!(self, A(_) => A::DENIES_MORE_ALIKE)
    }

    /// See [`LimitAlgorithm::COUNTS_IN_FLIGHT`].
    pub(super) fn counts_in_flight(&self) -> bool {
        each!(self, A(_) => A::COUNTS_IN_FLIGHT)
    }

    /// See [`LimitAlgorithm::RESET_RECURS`].
    pub(super) fn reset_recurs(&self) -> bool {
        each!(self, A(_) => A::RESET_RECURS)
    }

    /// See [`LimitAlgorithm::NEEDS_EXPIRY`].
    pub(super) fn needs_expiry(&self) -> bool {
        each!(self, A(_) => A::NEEDS_EXPIRY)
    }

    /// Returns whether callers read the tokens that a denial leaves. Otherwise a denied limit counts as
    /// used up.
    pub fn reports_tokens(&self) -> bool {
        each!(self, A(_) => A::REPORTS_TOKENS)
    }

    /// See [`LimitAlgorithm::repeats_denials`].
    pub(super) fn repeats_denials(&self, charge_denied: bool, alone: bool) -> bool {
        each!(self, limit => limit.repeats_denials(charge_denied, alone))
    }

    /// See [`LimitAlgorithm::hold_id`].
    pub(super) fn hold_id(&self) -> Option<&str> {
        each!(self, limit => limit.hold_id())
    }

    /// See [`LimitAlgorithm::log_period`].
    pub(super) fn log_period(&self) -> Option<Micros> {
        each!(self, limit => limit.log_period())
    }

    /// See [`LimitAlgorithm::longest_span`].
    pub(super) fn longest_span(&self) -> Option<Micros> {
        each!(self, limit => limit.longest_span())
    }

    /// See [`LimitAlgorithm::count`].
    pub(super) fn count(
        &self,
        state: &LimitState,
        log: &HitLog,
        now: Micros,
        span: Micros,
    ) -> Option<SpanCount> {
        each!((self, state), (limit, state) => limit.count(state, log, now, span), _ => None)
    }

    /// See [`LimitAlgorithm::holds`].
    pub(super) fn holds(&self, state: &LimitState, now: Micros) -> Option<HoldLevels> {
        each!((self, state), (limit, state) => limit.holds(state, now), _ => None)
    }

    /// Returns the bytes that a state keeps of each hit; 0 if it only counts them.
    pub(super) fn hit_bytes(&self) -> u64 {
        each!(self, A(limit) => if limit.keeps_hits() { A::HIT_BYTES } else { 0 })
    }

    /// See [`LimitAlgorithm::write_text`].
    pub(super) fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, limit => limit.write_text(text))
    }

    /// Adds the parameters, besides the number and the period, by their names in rule files.
    pub fn parameters(&self, add: &mut dyn FnMut(&'static str, Parameter<'_>)) {
        each!(self, limit => limit.parameters(add));
    }

    /// See [`LimitAlgorithm::most_admitted`].
    pub(super) fn most_admitted(&self, spans: Spans) -> Option<u128> {
        each!(self, limit => limit.most_admitted(spans))
    }

    /// See [`LimitAlgorithm::denies_by`].
    pub(super) fn denies_by(&self) -> Option<Spans> {
        each!(self, limit => limit.denies_by())
    }

    /// See [`LimitAlgorithm::write_shape`].
    pub(super) fn write_shape(&self, shape: &mut String) {
        each!(self, limit => limit.write_shape(shape));
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

    /// See [`LimitAlgorithm::judge`].
    pub(super) fn judge(
        &self,
        state: &LimitState,
        log: &HitLog,
        now: Micros,
        hits: Hits,
    ) -> Verdict {
        each!(
            (self, state),
            (limit, state) => limit.judge(state, log, now, hits),
            _ => Verdict::NEVER
        )
    }

    /// See [`LimitAlgorithm::levels`].
    pub(super) fn levels(&self, state: &LimitState, log: &HitLog, now: Micros) -> Levels {
        each!((self, state), (limit, state) => limit.levels(state, log, now), _ => Levels::UNKNOWN)
    }

    /// See [`LimitAlgorithm::charge`].
    pub(super) fn charge(&self, state: &mut LimitState, now: Micros, hits: Hits, denied: bool) {
        each!((self, state), (limit, state) => limit.charge(state, now, hits, denied), _ => ());
    }

    /// See [`LimitAlgorithm::deny`].
    pub(super) fn deny(&self, state: &mut LimitState, now: Micros) {
        each!((self, state), (limit, state) => limit.deny(state, now), _ => ());
    }

    /// See [`LimitAlgorithm::undo_of`].
    pub(super) fn undo_of(
        &self,
        before: &LimitState,
        after: &LimitState,
        now: Micros,
        hold: u64,
    ) -> Option<Undo> {
        each!(
            (self, before, after),
            (limit, before, after) => limit.undo_of(before, after, now, hold),
            _ => None
        )
    }

    /// See [`LimitAlgorithm::undo`].
    pub(super) fn undo(&self, state: &mut LimitState, now: Micros, undo: &Undo, hold: u64) {
        each!((self, state), (limit, state) => limit.undo(state, now, undo, hold), _ => ());
    }

    /// See [`LimitAlgorithm::give_back`].
    pub(super) fn give_back(&self, state: &mut LimitState, now: Micros, hits: Hits) {
        each!((self, state), (limit, state) => limit.give_back(state, now, hits), _ => ());
    }
}
