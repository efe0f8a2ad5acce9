//! One limit's part of a rule's state, whatever its algorithm.

use std::fmt::Write;

use super::sliding_log::Log;
use super::{
    Algorithm, Levels, Limit, Micros, Packed, SECOND, Verdict, bucketed_window, concurrency,
    fixed_window, gcra, sliding_window, token_bucket,
};

/// The state of one limit. The default of each kind is that of a key never seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Fixed(fixed_window::State),
    Sliding(sliding_window::State),
    /// Kept in the log that all sliding_log limits of the rule share.
    Log,
    Bucketed(Box<bucketed_window::State>),
    Token(token_bucket::State),
    Gcra(gcra::State),
    Concurrency(Box<concurrency::State>),
}

impl Algorithm {
    /// The state of a key never seen.
    pub(super) fn part(&self) -> Part {
        match self {
            Algorithm::FixedWindow(_) => Part::Fixed(Default::default()),
            Algorithm::SlidingWindow(_) => Part::Sliding(Default::default()),
            Algorithm::SlidingLog(_) => Part::Log,
            Algorithm::BucketedWindow(_) => Part::Bucketed(Default::default()),
            Algorithm::TokenBucket(_) => Part::Token(Default::default()),
            Algorithm::Gcra(_) => Part::Gcra(Default::default()),
            Algorithm::Concurrency(_) => Part::Concurrency(Default::default()),
        }
    }

    /// Whether a state always fits [`Packed`].
    pub(super) fn packs(&self) -> bool {
        use Algorithm::{FixedWindow, Gcra, SlidingWindow, TokenBucket};
        matches!(self, FixedWindow(_) | SlidingWindow(_) | TokenBucket(_) | Gcra(_))
    }

    /// A state from its packed form.
    pub(super) fn unpack(&self, [a, b, c]: Packed, now: Micros) -> Part {
        let wide = u64::from(a) | u64::from(b) << 32;
        match self {
            Algorithm::FixedWindow(_) => {
                Part::Fixed(fixed_window::State { window: wide, count: c })
            }
            Algorithm::SlidingWindow(window) => match (b, c) {
                (0, 0) => Part::Sliding(Default::default()),
                _ => {
                    let index = nearest_index(a, now / window.period, END / window.period);
                    Part::Sliding(sliding_window::State { index, prev: b, cur: c })
                }
            },
            Algorithm::TokenBucket(_) => Part::Token(token_bucket::State {
                missing: u64::from(c) | (wide >> TIME_BITS) << 32,
                last: wide & TIME_MASK,
            }),
            Algorithm::Gcra(_) => Part::Gcra(gcra::State { tat: wide, rem: c.into() }),
            _ => self.part(),
        }
    }

    /// Adds to `shape` what a state of this algorithm would be misread without: readable, and
    /// without braces, for it is a part of keys. Periods in seconds.
    pub(super) fn shape(&self, shape: &mut String) {
        let seconds = |period: &Micros| period / SECOND;
        // Writing to a string cannot fail.
        let _ = match self {
            Algorithm::FixedWindow(window) => {
                let zone = window.calendar.as_ref().map_or("", |calendar| calendar.zone());
                let sign = if window.calendar.is_some() { "@" } else { "" };
                write!(shape, "f{}{sign}{zone}", seconds(&window.period))
            }
            Algorithm::SlidingWindow(window) => write!(shape, "s{}", seconds(&window.period)),
            Algorithm::SlidingLog(log) => write!(shape, "l{}", seconds(&log.period)),
            Algorithm::BucketedWindow(window) => {
                write!(shape, "b{}/{}", seconds(&window.period), window.buckets)
            }
            Algorithm::TokenBucket(bucket) => write!(shape, "t{}us", bucket.interval),
            Algorithm::Gcra(gcra) => {
                write!(shape, "g{}/{}", seconds(&gcra.period()), gcra.tick())
            }
            Algorithm::Concurrency(concurrency) => {
                write!(shape, "{}", if concurrency.hold_id.is_some() { "h" } else { "c" })
            }
        };
    }
}

/// The end of time: about the year 2112.
const END: Micros = 1 << 52;

/// What a token bucket's time takes; above it is the 33rd bit of the tokens missing, which are at
/// most a capacity and a debt.
const TIME_BITS: u32 = 63;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Returns the index of a window from its low 32 bits: the one nearest to `near` up to `last`.
///
/// A period of two seconds or more has no two such windows before the end of time. Those of a
/// second are told apart while the state is less than 68 years away.
fn nearest_index(low: u32, near: u64, last: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32);
    match near.checked_add_signed(i64::from(ahead.cast_signed())) {
        None => near + u64::from(ahead),
        Some(index) if index > last => index.saturating_sub(1 << 32),
        Some(index) => index,
    }
}

impl Part {
    pub(super) fn pack(&self) -> Packed {
        let halves = |wide: u64, c: u32| [wide as u32, (wide >> 32) as u32, c];
        match self {
            Part::Fixed(state) => halves(state.window, state.count),
            Part::Sliding(state) => [state.index as u32, state.prev, state.cur],
            Part::Token(state) => {
                let high = (state.missing >> 32) << TIME_BITS;
                halves(state.last & TIME_MASK | high, state.missing as u32)
            }
            // `rem` is less than `n'`, so than 2^32.
            Part::Gcra(state) => halves(state.tat, state.rem as u32),
            Part::Log | Part::Bucketed(_) | Part::Concurrency(_) => [0; 3],
        }
    }

    /// Brings the state to `now`: windows that have passed, tokens that have come.
    pub(super) fn settle(&mut self, algorithm: &Algorithm, now: Micros) {
        match (algorithm, self) {
            (Algorithm::FixedWindow(limit), Part::Fixed(state)) => limit.settle(state, now),
            (Algorithm::SlidingWindow(limit), Part::Sliding(state)) => limit.settle(state, now),
            (Algorithm::BucketedWindow(limit), Part::Bucketed(state)) => limit.settle(state, now),
            (Algorithm::TokenBucket(limit), Part::Token(state)) => limit.settle(state, now),
            (Algorithm::Gcra(limit), Part::Gcra(state)) => limit.settle(state, now),
            (Algorithm::Concurrency(limit), Part::Concurrency(state)) => limit.settle(state, now),
            _ => {}
        }
    }

    /// What the settled state says of `hits`. None of them is a look: denied past the limit where
    /// denied hits are charged, else where the limit is full.
    ///
    /// A limit of 0 denies hits and looks. Only a fixed window that charges denied hits answers a
    /// look as any other limit, which is what the reference does.
    pub(super) fn judge(
        &self,
        limit: &Limit,
        log: &Log,
        now: Micros,
        hits: u32,
        hold: u64,
    ) -> Verdict {
        if limit.requests_per_unit == 0 && (hits > 0 || !limit.looks_at_zero()) {
            return Verdict { allowed: false, retry_after: None };
        }
        let hits = if hits == 0 && !limit.charge_denied { 1 } else { u64::from(hits) };
        match (&limit.algorithm, self) {
            (Algorithm::FixedWindow(limit), Part::Fixed(state)) => limit.judge(state, now, hits),
            (Algorithm::SlidingWindow(limit), Part::Sliding(state)) => {
                limit.judge(state, now, hits)
            }
            (Algorithm::SlidingLog(limit), _) => limit.judge(log, now, hits),
            (Algorithm::BucketedWindow(limit), Part::Bucketed(state)) => {
                limit.judge(state, now, hits)
            }
            (Algorithm::TokenBucket(limit), Part::Token(state)) => limit.judge(state, now, hits),
            (Algorithm::Gcra(limit), Part::Gcra(state)) => limit.judge(state, now, hits),
            (Algorithm::Concurrency(limit), Part::Concurrency(state)) => {
                limit.judge(state, now, hits, hold)
            }
            _ => Verdict::ALLOWED,
        }
    }

    pub(super) fn levels(&self, limit: &Limit, log: &Log, now: Micros) -> Levels {
        let mut levels = match (&limit.algorithm, self) {
            (Algorithm::FixedWindow(limit), Part::Fixed(state)) => limit.levels(state, now),
            (Algorithm::SlidingWindow(limit), Part::Sliding(state)) => limit.levels(state, now),
            (Algorithm::SlidingLog(limit), _) => limit.levels(log, now),
            (Algorithm::BucketedWindow(limit), Part::Bucketed(state)) => limit.levels(state, now),
            (Algorithm::TokenBucket(limit), Part::Token(state)) => limit.levels(state, now),
            (Algorithm::Gcra(limit), Part::Gcra(state)) => limit.levels(state, now),
            (Algorithm::Concurrency(limit), Part::Concurrency(state)) => limit.levels(state, now),
            _ => Levels { used: 0, remaining: 0, reset_after: 0, empty: true },
        };
        if limit.requests_per_unit == 0 {
            levels.remaining = 0;
        }
        levels
    }

    /// Charges hits, admitted or (where denied hits are charged) denied.
    pub(super) fn charge(&mut self, limit: &Limit, now: Micros, hits: u32, hold: u64) {
        let denied = limit.charge_denied;
        if limit.requests_per_unit == 0 && matches!(self, Part::Token(_) | Part::Gcra(_)) {
            // Nothing would ever drain.
            return;
        }
        match (&limit.algorithm, self) {
            (Algorithm::FixedWindow(limit), Part::Fixed(state)) => limit.charge(state, hits),
            (Algorithm::SlidingWindow(limit), Part::Sliding(state)) => limit.charge(state, hits),
            (Algorithm::BucketedWindow(limit), Part::Bucketed(state)) => limit.charge(state, hits),
            (Algorithm::TokenBucket(limit), Part::Token(state)) => {
                limit.charge(state, hits, denied);
            }
            (Algorithm::Gcra(limit), Part::Gcra(state)) => limit.charge(state, now, hits, denied),
            (Algorithm::Concurrency(limit), Part::Concurrency(state)) => {
                limit.charge(state, now, hits, hold);
            }
            _ => {}
        }
    }

    /// What a denial by this limit itself does to its state.
    pub(super) fn deny(&mut self, algorithm: &Algorithm, now: Micros) {
        if let (Algorithm::TokenBucket(limit), Part::Token(state)) = (algorithm, self) {
            limit.deny(state, now);
        }
    }

    pub(super) fn give_back(&mut self, algorithm: &Algorithm, now: Micros, hits: u32, hold: u64) {
        match (algorithm, self) {
            (Algorithm::FixedWindow(limit), Part::Fixed(state)) => limit.give_back(state, hits),
            (Algorithm::SlidingWindow(limit), Part::Sliding(state)) => {
                limit.give_back(state, hits);
            }
            (Algorithm::BucketedWindow(limit), Part::Bucketed(state)) => {
                limit.give_back(state, hits);
            }
            (Algorithm::TokenBucket(limit), Part::Token(state)) => limit.give_back(state, hits),
            (Algorithm::Gcra(limit), Part::Gcra(state)) => limit.give_back(state, now, hits),
            (Algorithm::Concurrency(limit), Part::Concurrency(state)) => {
                limit.give_back(state, now, hits, hold);
            }
            _ => {}
        }
    }
}
