//! Copies long logs of hits (of sliding_log limits) in parts, for the disk store, which unlocks the key in between:
//! many megabytes take milliseconds to copy and write, which no client should wait for.

use std::collections::VecDeque;

use super::put_log;
use crate::hit_log::HitLog;
use crate::time::Micros;

/// How many stamps (times of hits) are copied at once, in about ten microseconds. Shorter logs need no parts.
const PART_STAMPS: usize = 8 << 10;

/// A copy of a log that is charged meanwhile.
///
/// The newest stamps are copied first. Hits that are charged later are not seen, stamps that expire meanwhile may be
/// missing, and hits that are refunded meanwhile are in it. So it is the log at its start, as far as that counts.
#[derive(Debug, Default)]
pub struct LogCopy {
    /// The newest first.
    stamps: Vec<Micros>,
    /// How many of them are counted in `equal`.
    counted: usize,
    /// How many stamps at the end are equal.
    equal: usize,
    /// The length of the log when the copy was started.
    len: usize,
    /// The oldest stamp of the log, when it was last seen.
    oldest: Micros,
}

/// What comes after a part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPart {
    /// There is more to copy.
    More,
    /// The copy is complete.
    None,
    /// Stamps have moved, as after a step of the clock: the copy is of no use.
    Moved,
}

impl LogCopy {
    /// Returns whether a log is long enough to be copied in parts.
    pub fn is_long(log: &HitLog) -> bool {
        matches!(log, HitLog::Stamps(stamps) if stamps.len() > PART_STAMPS)
    }

    /// Drops what was copied, and makes room for the first part.
    pub fn clear(&mut self) {
        *self = LogCopy { stamps: Vec::with_capacity(PART_STAMPS), ..LogCopy::default() };
    }

    /// Copies the first part.
    pub fn begin(&mut self, log: &HitLog) {
        if let HitLog::Stamps(stamps) = log {
            self.len = stamps.len();
            self.copy(stamps, stamps.len());
        }
    }

    /// Does what can be done between two parts without the log.
    pub fn prepare(&mut self) {
        let uncounted = self.stamps.get(self.counted..).unwrap_or_default();
        if let Some(&last) = uncounted.last() {
            let equal = uncounted.iter().rev().take_while(|&&stamp| stamp == last).count();
            let before = self.counted.checked_sub(1).and_then(|at| self.stamps.get(at));
            let goes_on = equal == uncounted.len() && before == Some(&last);
            self.equal = if goes_on { self.equal + equal } else { equal };
            self.counted = self.stamps.len();
        }
        self.stamps.reserve(PART_STAMPS);
    }

    /// Copies the next part. Takes no longer for a longer log.
    pub fn copy_next(&mut self, log: &HitLog) -> NextPart {
        let (HitLog::Stamps(stamps), Some(last)) = (log, self.stamps.last()) else {
            return NextPart::Moved;
        };
        // Those before the equal ones at the end of the copy are next. Stamps are in order.
        let end = stamps.partition_point(|stamp| stamp <= last).saturating_sub(self.equal);
        if stamps.front().is_some_and(|&oldest| oldest < self.oldest) {
            return NextPart::Moved;
        }
        // Hits charged since may have the same stamp.
        self.copy(stamps, end.min(self.len.saturating_sub(self.stamps.len())))
    }

    fn copy(&mut self, stamps: &VecDeque<Micros>, end: usize) -> NextPart {
        let start = end.saturating_sub(PART_STAMPS);
        self.stamps.extend(stamps.range(start..end).rev());
        self.oldest = stamps.front().copied().unwrap_or(0);
        if start > 0 { NextPart::More } else { NextPart::None }
    }

    /// Appends the log as it is saved.
    pub fn save(&self, out: &mut Vec<u8>) {
        put_log(out, self.stamps.len(), self.stamps.iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SECOND;
    use crate::hit_log::LogBounds;
    use crate::saved::SavedNumbers;

    const PERIOD: Micros = 3600 * SECOND;

    /// What happens to a log between two parts.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Hits(u32),
        Refund(u32),
        Time(Micros),
    }

    fn bounds(n: u32) -> LogBounds {
        LogBounds::new([(n, PERIOD)].into_iter()).unwrap()
    }

    fn stamps(log: &HitLog) -> Vec<Micros> {
        let HitLog::Stamps(stamps) = log else { panic!("a summary") };
        stamps.iter().copied().collect()
    }

    fn restored(copy: &LogCopy) -> Vec<Micros> {
        let mut bytes = Vec::new();
        copy.save(&mut bytes);
        let mut numbers = SavedNumbers(&bytes);
        let log = HitLog::restore(&mut numbers).unwrap();
        assert!(numbers.is_empty());
        stamps(&log)
    }

    /// Copies a log; `between` is called before each part but the first. None if stamps have moved.
    fn copied(log: &mut HitLog, mut between: impl FnMut(&mut HitLog)) -> Option<Vec<Micros>> {
        let mut copy = LogCopy::default();
        copy.clear();
        copy.begin(log);
        loop {
            copy.prepare();
            between(log);
            let room = copy.stamps.capacity();
            match copy.copy_next(log) {
                NextPart::More => {}
                NextPart::None => return Some(restored(&copy)),
                NextPart::Moved => return None,
            }
            assert_eq!(copy.stamps.capacity(), room, "memory is allocated only in between");
        }
    }

    /// A log with some hits at each of these distances in time.
    fn log(hits: &[(Micros, u32)], bounds: &LogBounds) -> (HitLog, Micros) {
        let (mut log, mut now) = (HitLog::default(), 1_000 * PERIOD);
        for &(after, hits) in hits {
            now += after;
            log.advance(bounds, now);
            log.charge(bounds, now, hits);
        }
        (log, now)
    }

    fn hits() -> impl Strategy<Value = Vec<(Micros, u32)>> {
        let hits = prop_oneof![1..50_u32, 1_000..20_000_u32];
        prop::collection::vec((0..PERIOD / 20, hits), 4..30)
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (1..9_000_u32).prop_map(Event::Hits),
            (1..9_000_u32).prop_map(Event::Refund),
            (0..PERIOD / 10).prop_map(Event::Time),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn a_log_that_does_not_change_is_copied_as_it_is(hits in hits(), n in 1_000..400_000_u32) {
            let (mut log, _) = log(&hits, &bounds(n));
            let expected = stamps(&log);
            prop_assert_eq!(copied(&mut log, |_| {}), Some(expected));
        }

        /// The copy counts at least what counts now without the hits since, and at most what counted
        /// when it was started.
        #[test]
        fn a_log_that_is_charged_is_copied_as_it_was(
            hits in hits(),
            events in prop::collection::vec(event(), 0..40),
            n in 50_000..400_000_u32,
        ) {
            let bounds = bounds(n);
            let (mut log, mut now) = log(&hits, &bounds);
            let before = stamps(&log);
            now += 1;
            let (mut events, mut since, mut refunded) = (events.into_iter(), 0, false);
            let copied = copied(&mut log, |log| {
                log.advance(&bounds, now);
                match events.next() {
                    Some(Event::Hits(hits)) => {
                        log.charge(&bounds, now, hits);
                        since += hits as usize;
                    }
                    Some(Event::Refund(hits)) => {
                        log.refund(hits);
                        refunded = true;
                    }
                    Some(Event::Time(time)) => now += time,
                    None => {}
                }
            });
            let copied = copied.unwrap();
            prop_assert!(copied.is_sorted());
            let live = |stamps: &[Micros]| {
                stamps.iter().filter(|&&stamp| stamp + PERIOD > now).count()
            };
            prop_assert!(live(&copied) <= live(&before));
            prop_assert!(live(&copied) + since >= live(&stamps(&log)));
            if !refunded {
                // The newest of when it was started, and all that count.
                prop_assert_eq!(&before[before.len() - copied.len()..], &copied);
                prop_assert!(live(&copied) + since >= live(&before).min(n as usize));
            }
        }
    }

    #[test]
    fn hits_with_the_same_stamp_are_not_copied_in_place_of_others() {
        let bounds = bounds(100_000);
        let (mut log, now) = log(&[(0, 10_000), (SECOND, 20_000)], &bounds);
        let before = stamps(&log);
        let copied = copied(&mut log, |log| log.charge(&bounds, now, 5_000));
        assert_eq!(copied, Some(before));
    }

    #[test]
    fn a_log_whose_stamps_move_is_not_copied() {
        let bounds = bounds(100_000);
        let hits: Vec<_> = (0..50).map(|_| (SECOND, 1_000)).collect();
        let (mut log, now) = log(&hits, &bounds);
        assert_eq!(copied(&mut log, |log| log.advance(&bounds, now - 2 * PERIOD)), None);
        // Removed, or another one in its place.
        assert_eq!(
            copied(&mut log, |log| *log = HitLog::default()).map(|it| it.len()),
            Some(8_192)
        );
    }
}
