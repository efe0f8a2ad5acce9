//! Reads the state of a key without changing it, for operators: what its limits have counted, and recent hits.

use std::borrow::Cow;
use std::time::Duration;

use super::reservation::Reservation;
use super::{Plan, State};
use crate::algorithm::{Hits, HoldLevels, Levels, Packed, SpanCount};
use crate::algorithms::LimitState;
use crate::ban::BanReading;
use crate::hit_log::HitLog;
use crate::time::Micros;

/// What the limits of a plan have counted for one key at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The instant, by the store's clock.
    pub now: Micros,
    /// One for each limit of the plan, in order.
    pub limits: Vec<LimitReading>,
    /// The hits in flight; none if the plan has no concurrency limit.
    pub holds: Option<HoldLevels>,
    /// The strikes (denials that count towards a ban) and the ban; none if the plan has no bans.
    pub ban: Option<BanReading>,
    /// The hits in the log that some limit still counts; none if the plan has no sliding_log limit.
    pub log_len: Option<u64>,
    /// One for each span that was asked for, in order.
    pub counts: Vec<Result<SpanCount, CountError>>,
    /// What the id that was asked for has reserved, if it can still be settled. The store adds it to a plan's reading.
    pub reservation: Option<Reservation>,
    /// The hits that are charged ahead of requests, and that this process has not served yet. The store adds them.
    pub leased: Option<LeasedHits>,
}

/// Hits that are charged in the store ahead of requests, for this process to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedHits {
    /// The number of hits that are not served yet.
    pub hits: u64,
    /// The time until unused hits are returned.
    pub ends_in: Micros,
}

/// What one limit has counted for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReading {
    /// Hits counted.
    pub used: u64,
    /// The largest number of hits allowed now.
    pub remaining: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// As [`Verdict::retry_after`](crate::Verdict::retry_after), for one hit.
    pub retry_after: Option<Micros>,
}

/// Why hits cannot be counted over a span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The span is 0.
    #[error("the span is 0: use a longer one, such as 5m")]
    Zero,
    /// No limit of the rule keeps the times of hits; these are its algorithms.
    #[error(
        "only sliding_log and bucketed_window count hits over spans, and the limits of this rule are \
         {0}: set the algorithm of one of them"
    )]
    NoTimes(String),
    /// No limit of the rule counts over so long a span.
    #[error(
        "a span of {} is longer than {}, the longest period over which this rule counts: use up to \
         that",
        shown(*.span),
        shown(*.longest)
    )]
    TooLong {
        /// The span that was asked for.
        span: Micros,
        /// The longest period that a limit of the rule counts over.
        longest: Micros,
    },
}

/// A time as `90s` or `1.5ms`.
fn shown(time: Micros) -> String {
    format!("{:?}", Duration::from_micros(time))
}

impl Plan {
    /// Reads a key's state at `now`, and counts the hits of the last `spans`. Copies the state, but not its log.
    ///
    /// Every limit is read by itself: `remaining` and `retry_after` are what it alone allows.
    pub fn inspect(&self, state: &State, now: Micros, spans: &[Micros]) -> KeyState {
        let mut states = match state.limits.len() == self.limits.len() {
            true => state.limits.to_vec(),
            false => self.limits.iter().map(|limit| limit.algorithm.new_state()).collect(),
        };
        for (limit, state) in self.limits.iter().zip(&mut states) {
            limit.algorithm.advance(state, now);
        }
        let mut log = Cow::Borrowed(&state.log);
        // Old stamps change no answer. Only those of a clock that stepped back have to be moved.
        if let Some(bounds) = self.log_bounds.as_ref().filter(|bounds| log.is_ahead(bounds, now)) {
            log.to_mut().advance(bounds, now);
        }
        let readings = self.limits.iter().zip(&states).map(|(limit, state)| {
            let Levels { used, remaining, reset_after, .. } = limit.levels(state, &log, now);
            // No hold has this id, so it is a new one.
            let verdict = limit.verdict(state, &log, now, Hits { count: 1, hold: 0 });
            let retry_after = verdict.retry_after;
            LimitReading { used, remaining, reset_after, retry_after }
        });
        let mut holds = self.limits.iter().zip(&states);
        KeyState {
            now,
            limits: readings.collect(),
            holds: holds.find_map(|(limit, state)| limit.algorithm.holds(state, now)),
            log_len: self.log_bounds.as_ref().map(|bounds| log.live(bounds, now)),
            counts: spans.iter().map(|&span| self.count(&states, &log, now, span)).collect(),
            ban: self.ban().map(|ban| BanReading::new(ban, state.ban_state(), now)),
            ..KeyState::default()
        }
    }

    /// Returns a packed state in its other form, for a plan that [`packs`](Self::packs).
    pub fn unpack(&self, packed: Packed, now: Micros) -> State {
        let states = self.limits.iter().map(|limit| limit.algorithm.unpack(packed, now));
        State::new(states.collect())
    }

    /// Counts the hits of the last `span` by the limit that counts them best.
    fn count(
        &self,
        states: &[LimitState],
        log: &HitLog,
        now: Micros,
        span: Micros,
    ) -> Result<SpanCount, CountError> {
        let spans = self.limits.iter().filter_map(|limit| limit.algorithm.longest_span());
        let Some(longest) = spans.max() else {
            let names: Vec<&str> = self.limits.iter().map(|limit| limit.algorithm.name()).collect();
            return Err(CountError::NoTimes(names.join(", ")));
        };
        if span == 0 {
            return Err(CountError::Zero);
        }
        let states = self.limits.iter().zip(states).enumerate();
        let counted = states.filter_map(|(i, (limit, state))| {
            limit.algorithm.longest_span().filter(|&longest| span <= longest)?;
            let mut count = limit.algorithm.count(state, log, now, span)?;
            count.limit = i as u8;
            count.is_minimum = count.resolution == 0 && self.may_miss_stamps(log, now, span);
            // A limit in shadow mode counts only what it would have admitted.
            let order = (count.is_minimum, count.resolution, limit.shadow_mode);
            Some((order, count))
        });
        let best = counted.min_by_key(|(order, _)| *order);
        best.map(|(_, count)| count).ok_or(CountError::TooLong { span, longest })
    }

    /// Returns whether the log may lack hits of the last `span`. It keeps as many as the largest `n`, and no more than
    /// that were admitted in the period of an enforced sliding_log limit.
    fn may_miss_stamps(&self, log: &HitLog, now: Micros, span: Micros) -> bool {
        let enforced = self.limits.iter().filter(|limit| !limit.shadow_mode);
        let mut periods = enforced.filter_map(|limit| limit.algorithm.log_period());
        let bounds = self.log_bounds.as_ref();
        !periods.any(|period| span <= period)
            && bounds.is_some_and(|bounds| log.is_full(bounds, now, span))
    }
}
