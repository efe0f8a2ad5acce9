//! Finds limits of a rule that never decide, because another limit of it is always as strict.

use super::{Algorithm, FixedWindow, Limit, Micros, SECOND, SlidingWindow, Unit};

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
    match (&strict.algorithm, &other.algorithm) {
        // The same state, judged by another number.
        (Algorithm::SlidingWindow(a), Algorithm::SlidingWindow(b)) if a.period == b.period => {
            a.n <= b.n
        }
        // As many tokens are missing from both at any time.
        (Algorithm::TokenBucket(a), Algorithm::TokenBucket(b)) => {
            let steps = (a.interval, a.amount) == (b.interval, b.amount);
            steps && !a.strict && !b.strict && a.capacity <= b.capacity
        }
        // The level of the faster one is never higher.
        (Algorithm::Gcra(a), Algorithm::Gcra(b)) => {
            let ([burst_a, n_a, p_a, tick_a, _], [burst_b, n_b, p_b, tick_b, _]) =
                (a.numbers(), b.numbers());
            let is_slower = u128::from(n_a) * u128::from(p_b) <= u128::from(n_b) * u128::from(p_a);
            tick_a == tick_b && is_slower && burst_a <= burst_b
        }
        (_, Algorithm::FixedWindow(window)) => {
            let most = most_in_window(&strict.algorithm, window, other.unit);
            most.is_some_and(|most| most <= window.n.into())
        }
        (_, Algorithm::SlidingLog(log)) => {
            most_in_any(&strict.algorithm, log.period).is_some_and(|most| most <= log.n.into())
        }
        (_, Algorithm::BucketedWindow(window)) => {
            let span = window.span() * u64::from(window.slots());
            most_in_any(&strict.algorithm, span).is_some_and(|most| most <= window.n.into())
        }
        _ => false,
    }
}

/// The most hits that an algorithm admits in one of these windows; none if that is not known.
fn most_in_window(algorithm: &Algorithm, window: &FixedWindow, unit: Option<Unit>) -> Option<u128> {
    if window.calendar.is_some() {
        // Longer than any, also where a zone repeats a day.
        let days = match unit? {
            Unit::Day => 2,
            Unit::Week => 8,
            Unit::Month => 32,
            Unit::Year => 367,
            _ => return None,
        };
        return most_in_any(algorithm, days * 86_400 * SECOND);
    }
    match epoch_windows(algorithm) {
        Some((n, period)) if window.period.is_multiple_of(period) => {
            Some(u128::from(n) * u128::from(window.period / period))
        }
        _ => most_in_any(algorithm, window.period),
    }
}

/// The number that an algorithm admits in each window since the epoch, and the length of these.
fn epoch_windows(algorithm: &Algorithm) -> Option<(u32, Micros)> {
    match algorithm {
        Algorithm::FixedWindow(FixedWindow { n, period, calendar: None })
        | Algorithm::SlidingWindow(SlidingWindow { n, period }) => Some((*n, *period)),
        _ => None,
    }
}

/// The most hits that an algorithm admits in any span of that length; none if that is not known.
fn most_in_any(algorithm: &Algorithm, span: Micros) -> Option<u128> {
    if let Some((n, period)) = epoch_windows(algorithm) {
        return Some(u128::from(n) * u128::from(span.div_ceil(period) + 1));
    }
    match algorithm {
        Algorithm::SlidingLog(log) => {
            Some(u128::from(log.n) * u128::from(span.div_ceil(log.period)))
        }
        Algorithm::BucketedWindow(window) => {
            Some(u128::from(window.n) * u128::from(span.div_ceil(window.period)))
        }
        Algorithm::TokenBucket(bucket) => {
            let steps = u128::from(span / bucket.interval + 1);
            Some(u128::from(bucket.capacity) + u128::from(bucket.amount) * steps)
        }
        Algorithm::Gcra(gcra) => {
            let [burst, n, p, tick, _] = gcra.numbers().map(u128::from);
            Some(burst + ((u128::from(span) / tick + 1) * n).div_ceil(p))
        }
        _ => None,
    }
}
