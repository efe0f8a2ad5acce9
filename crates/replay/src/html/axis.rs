//! Axes: bins of time, and round ticks.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::time::{DAY, HOUR, MINUTE, civil, format};
use weir_limit::{Micros, SECOND};

/// Round steps of time between a second and two weeks.
const STEPS: [Micros; 22] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
];

/// Round numbers of months.
const MONTHS: [i32; 4] = [1, 2, 3, 6];

/// The shortest month, for an estimate of the number of ticks.
const SHORTEST_MONTH: Micros = 28 * DAY;

/// A plot of fewer minutes may have shorter bins.
const MIN_MINUTES: u64 = 20;

/// A tick of an axis.
#[derive(Debug, PartialEq)]
pub(super) struct Tick {
    /// The place on the axis, from 0 to 1.
    pub place: f64,
    pub label: String,
    /// The day, where it starts or the axis does.
    pub day: Option<String>,
}

/// The bins of time that a plot shows: buckets of the report, merged where there are too many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    pub start: Micros,
    pub width: Micros,
    pub count: usize,
    bucket: Micros,
    /// The time from `start` to the first bucket.
    offset: Micros,
}

impl Bins {
    /// Returns up to `max` bins, of a round width if possible, for a number of buckets. If there are enough
    /// minutes, no bin is shorter, so that the worst minute is not spread over several.
    pub fn new(plot_start: Micros, bucket: Micros, buckets: usize, max: usize) -> Bins {
        let (bucket, buckets) = (bucket.max(1), buckets.max(1));
        let as_they_are =
            Bins { start: plot_start, width: bucket, count: buckets, bucket, offset: 0 };
        let length = bucket.saturating_mul(buckets as Micros);
        let least = if length < MIN_MINUTES * MINUTE { 0 } else { MINUTE };
        if buckets <= max && bucket >= least {
            return as_they_are;
        }
        let merged = |width: Micros| {
            let offset = plot_start % width;
            let count = Bins { width, offset, ..as_they_are }.bin_of(buckets - 1).saturating_add(1);
            Bins { start: plot_start - offset, width, count, bucket, offset }
        };
        let round =
            STEPS.into_iter().filter(|step| *step >= least && step % bucket == 0).map(merged);
        // A partial bin at the start adds one.
        let enough = buckets.div_ceil(max.saturating_sub(1).max(1)) as Micros;
        round
            .into_iter()
            .find(|bins| bins.count <= max)
            .unwrap_or_else(|| merged(bucket.saturating_mul(enough)))
    }

    fn bin_of(&self, bucket: usize) -> usize {
        let time = (bucket as Micros).saturating_mul(self.bucket).saturating_add(self.offset);
        usize::try_from(time / self.width).unwrap_or(usize::MAX)
    }

    /// Returns the sum of each bin.
    pub fn sums(&self, series: &[u64]) -> Vec<u64> {
        let mut sums = vec![0_u64; self.count];
        for (i, value) in series.iter().enumerate() {
            if let Some(sum) = sums.get_mut(self.bin_of(i)) {
                *sum = sum.saturating_add(*value);
            }
        }
        sums
    }

    /// Returns when a bin starts.
    pub fn time_of(&self, bin: usize) -> Micros {
        self.start.saturating_add((bin as Micros).saturating_mul(self.width))
    }

    /// Returns the place of a minute and its width, from 0 to 1; none if it is not on the plot.
    pub fn of_minute(&self, minute: Micros) -> Option<(f64, f64)> {
        let from = minute.max(self.start);
        let to = minute.saturating_add(MINUTE).min(self.end());
        let length = self.end().saturating_sub(self.start).max(1) as f64;
        let width = to.checked_sub(from).filter(|width| *width > 0)?;
        Some(((from - self.start) as f64 / length, width as f64 / length))
    }

    fn end(&self) -> Micros {
        self.time_of(self.count)
    }

    /// Returns the start of a bin for a table or a tooltip.
    pub fn label(&self, bin: usize) -> String {
        let form = match self.width {
            width if width % DAY == 0 => "%Y-%m-%d",
            width if width % MINUTE == 0 => "%Y-%m-%d %H:%M",
            width if width % SECOND == 0 => "%Y-%m-%d %H:%M:%S",
            _ => "%Y-%m-%d %H:%M:%S%.f",
        };
        format(self.time_of(bin), form)
    }

    /// Returns up to `max` round times, and one if none is round.
    pub fn ticks(&self, max: usize) -> Vec<Tick> {
        let length = self.end().saturating_sub(self.start);
        let fits = |step: Micros| length / step < max as Micros;
        let below_a_second =
            (0..6).flat_map(|exponent| [1, 2, 5].map(|digit| digit * 10_u64.pow(exponent)));
        let steps = below_a_second.chain(STEPS);
        let times = match steps.into_iter().find(|step| fits(*step)) {
            Some(step) => self.multiples(step),
            None => self.months(max),
        };
        let times = if times.is_empty() { vec![self.start] } else { times };
        let second = times.iter().any(|at| at % MINUTE != 0);
        let fraction = times.iter().any(|at| at % SECOND != 0);
        let days = times.iter().all(|at| at % DAY == 0);
        let mut last_day = None;
        let tick = |at: &Micros| {
            let place = (at - self.start) as f64 / length.max(1) as f64;
            if days {
                // In a year, no day of the month is there twice.
                let form = if length < 365 * DAY { "%b %-d" } else { "%b %Y" };
                return Tick { place, label: format(*at, form), day: None };
            }
            let form = match (fraction, second) {
                (true, _) => "%H:%M:%S%.f",
                (_, true) => "%H:%M:%S",
                _ => "%H:%M",
            };
            let is_new = last_day.replace(at / DAY) != Some(at / DAY);
            Tick { place, label: format(*at, form), day: is_new.then(|| format(*at, "%b %-d")) }
        };
        times.iter().map(tick).collect()
    }

    fn multiples(&self, step: Micros) -> Vec<Micros> {
        let first = self.start.div_ceil(step).saturating_mul(step);
        let mut times = Vec::new();
        let mut at = first;
        while (self.start..=self.end()).contains(&at) {
            times.push(at);
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        times
    }

    /// Returns the first days of every first, second, third or sixth month, or of every n-th year.
    fn months(&self, max: usize) -> Vec<Micros> {
        let length = self.end().saturating_sub(self.start);
        let years = (0..4).flat_map(|e| [1, 2, 5].map(|digit| 12 * digit * 10_i32.pow(e)));
        let step = MONTHS.into_iter().chain(years).find(|months| {
            length / SHORTEST_MONTH.saturating_mul(*months as Micros) < max as Micros
        });
        let (Some(step), Some(start)) = (step, civil(self.start)) else { return Vec::new() };
        let first = i32::from(start.year()) * 12 + i32::from(start.month()) - 1;
        let first = first.div_euclid(step) * step;
        let end = i64::try_from(self.end()).unwrap_or(i64::MAX);
        let starts = (0..).map_while(|i: i32| {
            let month = first.checked_add(i.checked_mul(step)?)?;
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
            let date = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()?;
            let at = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_microsecond();
            (at <= end).then_some(at)
        });
        // Before 1970 is before the start.
        starts.filter_map(|at| u64::try_from(at).ok()).filter(|at| *at >= self.start).collect()
    }
}

/// Returns the distance of the ticks of an axis of numbers, a round one, and the number of ticks above 0.
pub(super) fn number_ticks(max: u64, about: u64) -> (u64, u64) {
    let max = max.max(1);
    let mut power = 1_u64;
    loop {
        for digit in [1, 2, 5] {
            let step = power.saturating_mul(digit);
            let count = max.div_ceil(step);
            if count <= about.max(1) || step == u64::MAX {
                return (step, count);
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Returns the label of a tick of numbers, short where it is large.
pub(super) fn number_label(value: u64) -> String {
    let units = [(1_000_000_000, "bn"), (1_000_000, "M")];
    match units.into_iter().find(|(unit, _)| value >= *unit && value.is_multiple_of(unit / 10)) {
        Some((unit, name)) => {
            let (whole, tenth) = (super::text::number(value / unit), value % unit / (unit / 10));
            let tenth = if tenth == 0 { String::new() } else { format!(".{tenth}") };
            format!("{whole}{tenth}\u{a0}{name}")
        }
        None => super::text::number(value),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-22 10:05:00 UTC.
    const AT: Micros = 1_795_341_900 * SECOND;

    fn labels(start: Micros, bucket: Micros, buckets: usize, max: usize) -> Vec<String> {
        let ticks = Bins::new(start, bucket, buckets, 300).ticks(max);
        let text = |tick: &Tick| match &tick.day {
            Some(day) => format!("{} {day}", tick.label),
            None => tick.label.clone(),
        };
        ticks.iter().map(text).collect()
    }

    #[test]
    fn times_are_round() {
        assert_eq!(labels(AT, MINUTE, 60, 5), ["10:15 Nov 22", "10:30", "10:45", "11:00"]);
        assert_eq!(
            labels(AT, MINUTE, 24 * 60, 6),
            ["12:00 Nov 22", "18:00", "00:00 Nov 23", "06:00"]
        );
        assert_eq!(labels(AT, HOUR, 24 * 5, 6), ["Nov 23", "Nov 24", "Nov 25", "Nov 26", "Nov 27"]);
        assert_eq!(labels(AT, DAY, 100, 6), ["Dec 1", "Jan 1", "Feb 1", "Mar 1"]);
        assert_eq!(labels(AT, 30 * DAY, 100, 6), ["Jan 2028", "Jan 2030", "Jan 2032", "Jan 2034"]);
        assert_eq!(labels(661_690_000 * SECOND, DAY, 380, 2), ["Jan 1991", "Jan 1992"]);
        assert_eq!(labels(0, 30_000 * DAY, 200, 6), ["Jan 5000"]);
        assert_eq!(labels(AT, SECOND, 1, 3), ["10:05:00 Nov 22", "10:05:00.5", "10:05:01"]);
        assert_eq!(labels(AT / DAY * DAY, DAY, 1, 2), ["Nov 22", "Nov 23"]);
        assert!(!labels(u64::MAX / 2, DAY, 1, 4).is_empty());
    }

    #[test]
    fn many_buckets_become_round_bins() {
        let bins = Bins::new(AT, MINUTE, 24 * 60, 300);
        assert_eq!((bins.start, bins.width, bins.count), (AT, 5 * MINUTE, 288));
        assert_eq!(bins.sums(&vec![1; 24 * 60]), vec![5; 288]);
        let bins = Bins::new(AT, MINUTE, 61, 60);
        assert_eq!((bins.width, bins.count), (2 * MINUTE, 31));
        assert_eq!(bins.start, AT - MINUTE);
        assert_eq!(bins.sums(&[1; 61])[..2], [1, 2]);
        assert_eq!(bins.label(1), "2026-11-22 10:06");
        // A minute is a bin or more, and no worst minute is spread over several.
        let bins = Bins::new(AT, 15 * SECOND, 21 * 4, 300);
        assert_eq!((bins.start, bins.width, bins.count), (AT, MINUTE, 21));
        assert_eq!(Bins::new(AT, 15 * SECOND, 19 * 4, 300).width, 15 * SECOND);
        // No round width is a multiple of this.
        let bins = Bins::new(AT, 7 * SECOND, 1_000, 60);
        assert!(bins.count <= 60 && bins.width.is_multiple_of(7 * SECOND), "{bins:?}");
    }

    #[test]
    fn a_minute_has_a_place() {
        let start = AT + 50 * SECOND;
        let bins = Bins::new(start, SECOND, 100, 300);
        assert_eq!(bins.of_minute(AT), Some((0.0, 0.1)));
        assert_eq!(bins.of_minute(AT + MINUTE), Some((0.1, 0.6)));
        assert_eq!(bins.of_minute(AT + 2 * MINUTE), Some((0.7, 0.3)));
        assert_eq!([0, AT - MINUTE, AT + 3 * MINUTE].map(|at| bins.of_minute(at)), [None; 3]);
    }

    #[test]
    fn large_numbers_have_short_labels() {
        let texts = [0, 500, 200_000, 1_500_000, 20_000_000, 5_000_000_000].map(number_label);
        assert_eq!(texts, ["0", "500", "200,000", "1.5\u{a0}M", "20\u{a0}M", "5\u{a0}bn"]);
    }

    proptest! {
        #[test]
        fn number_ticks_are_round_and_cover_the_range(max in 0..u64::MAX / 4, about in 1..9_u64) {
            let (step, count) = number_ticks(max, about);
            let digits = step.to_string();
            prop_assert!(digits.trim_end_matches('0').len() == 1 && "125".contains(&digits[..1]));
            prop_assert!((1..=about).contains(&count));
            prop_assert!(step * count >= max, "the largest value is on the axis");
            prop_assert!(step * (count - 1) < max.max(1), "no tick is needless");
        }

        #[test]
        fn time_ticks_are_in_order_and_on_the_axis(
            start in 0..4_000_000_000 * SECOND,
            bucket in 1..40 * DAY,
            buckets in 1..5_000_usize,
            max in 2..10_usize,
        ) {
            let start = start - start % bucket;
            let bins = Bins::new(start, bucket, buckets, 300);
            prop_assert!(bins.count <= 300 && bins.start <= start);
            prop_assert!(bins.end() >= start + bucket * buckets as u64);
            let ticks = bins.ticks(max);
            prop_assert!((1..=max + 1).contains(&ticks.len()), "{:?}", ticks);
            prop_assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.place)), "{:?}", ticks);
            prop_assert!(ticks.windows(2).all(|pair| pair[0].place < pair[1].place), "{:?}", ticks);
            // Only the first tick of a day names it.
            let mut day = None;
            let of_day = |tick: &Tick| {
                day = tick.day.clone().or(day.take());
                (tick.label.clone(), day.clone())
            };
            let labels: std::collections::BTreeSet<_> = ticks.iter().map(of_day).collect();
            prop_assert!(labels.len() + usize::from(ticks.len() > 2) >= ticks.len(), "{:?}", ticks);
        }

        #[test]
        fn bins_keep_the_sum(
            start in 0..4_000_000_000 * SECOND,
            bucket in 1..DAY,
            series in proptest::collection::vec(0..1_000_u64, 1..2_000),
            max in 2..300_usize,
        ) {
            let bins = Bins::new(start, bucket, series.len(), max);
            prop_assert!(bins.count <= max.max(1));
            prop_assert_eq!(bins.sums(&series).iter().sum::<u64>(), series.iter().sum::<u64>());
        }
    }
}
