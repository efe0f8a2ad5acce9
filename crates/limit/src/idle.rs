//! Finds limits of a rule that never decide, because another limit of it is always as strict.

use super::{Limit, Micros};

/// Returns the limits that allow whatever another limit of the rule allows, each with that other one,
/// by their indices. Only what is certain is returned, for a clock that does not step back.
pub fn idle_limits(limits: &[Limit]) -> Vec<(usize, usize)> {
    let mut idle: Vec<(usize, usize)> = Vec::new();
    for i in (0..limits.len()).rev() {
        let is_idle = |by: usize| idle.iter().any(|(idle, _)| *idle == by);
        let by = (0..limits.len())
            .find(|&by| by != i && !is_idle(by) && is_as_strict(&limits[by], &limits[i]));
        idle.extend(by.map(|by| (i, by)));
    }
    idle.reverse();
    idle
}

/// Whether `strict` certainly denies whatever `other` denies.
///
/// Both count the same hits, those that the rule admits: limits that count denied hits, or are only
/// measured, are not compared.
fn is_as_strict(strict: &Limit, other: &Limit) -> bool {
    let counts_admitted = |limit: &Limit| !limit.charge_denied && !limit.shadow_mode;
    if !counts_admitted(strict) || !counts_admitted(other) {
        return false;
    }
    match (strict.requests_per_unit, other.requests_per_unit) {
        (0, _) => return true,
        (_, 0) => return false,
        _ => {}
    }
    let admits_no_more = |spans| {
        let most = strict.algorithm.most_admitted(spans);
        most.is_some_and(|most| most <= other.requests_per_unit.into())
    };
    strict.algorithm.is_as_strict(&other.algorithm)
        || other.algorithm.denies_by().is_some_and(admits_no_more)
}

/// Spans of time in which hits are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spans {
    /// All spans of this length.
    Any(Micros),
    /// The windows of this length that follow each other since the epoch.
    Epoch(Micros),
}

impl Spans {
    /// Returns the length of a span.
    pub fn length(self) -> Micros {
        let (Spans::Any(length) | Spans::Epoch(length)) = self;
        length
    }

    /// Returns the most hits in one of these spans if every window of `period` since the epoch has at
    /// most `n`.
    pub fn most_by_windows(self, n: u32, period: Micros) -> u128 {
        let windows = match self {
            Spans::Epoch(length) if length.is_multiple_of(period) => length / period,
            _ => self.length().div_ceil(period) + 1,
        };
        u128::from(n) * u128::from(windows)
    }

    /// Returns the most hits in one of these spans if every span of `period` has at most `n`.
    pub fn most_by_spans(self, n: u32, period: Micros) -> u128 {
        u128::from(n) * u128::from(self.length().div_ceil(period))
    }
}
