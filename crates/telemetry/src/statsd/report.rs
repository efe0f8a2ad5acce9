//! Composes a report to StatsD: gauges, and what counters and timers gained since the last one.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};
use std::sync::Arc;

use super::mogrifier::{Dialect, Identity, mogrify};
use crate::name_cache::NameCache;
use crate::reference::StatisticSink;
use weir_common::metrics::{HistogramSnapshot, OwnedValue, SampleValue};

const MILLISECONDS_PER_SECOND: f64 = 1_000.0;

/// The characters that start tags in a name, at Librato, InfluxDB, Graphite and SignalFx.
const TAG_CHARACTERS: [char; 5] = ['#', ',', ';', '[', ']'];

/// The values since the start, by name.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<String, OwnedValue>);

impl StatisticSink for Totals {
    fn statistic(&mut self, name: &str, value: SampleValue<'_>) {
        match self.0.get_mut(name) {
            Some(sum) => sum.add(value),
            None => drop(self.0.insert(name.to_owned(), value.into())),
        }
    }
}

#[derive(Debug, Default)]
pub struct StatsdBatch {
    pub text: String,
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Line {
    /// The end in the text, after its line feed.
    pub end: usize,
    name: Arc<str>,
    part: Part,
}

/// What has been sent once a line is.
#[derive(Clone, Copy, Debug)]
enum Part {
    Gauge,
    /// A counter, whose index is 0, or the bucket of a timer: up to this total.
    Count {
        index: usize,
        total: u64,
    },
}

/// Composes reports, and remembers what was sent.
#[derive(Debug)]
pub struct StatsdReport {
    dialect: Dialect,
    replaces_tag_characters: bool,
    identities: NameCache<Arc<Identity>>,
    /// By name, the totals that were sent: one of a counter, or one of each bucket of a timer.
    sent: HashMap<Arc<str>, Vec<u64>>,
}

impl StatsdReport {
    pub fn new(dialect: &Dialect, replaces_tag_characters: bool) -> StatsdReport {
        let (identities, sent) = (NameCache::default(), HashMap::new());
        StatsdReport { dialect: dialect.clone(), replaces_tag_characters, identities, sent }
    }

    pub fn compose(&mut self, totals: &Totals) -> StatsdBatch {
        let mut batch = StatsdBatch::default();
        for (name, total) in &totals.0 {
            match total {
                OwnedValue::FloatCounter(gauge) | OwnedValue::Gauge(gauge) => {
                    // A sign would change the gauge instead of setting it.
                    let value = gauge.max(0.0);
                    self.push(&mut batch, name, Part::Gauge, format_args!("{value}|g"));
                }
                OwnedValue::Counter(total) => {
                    let gained = self.gained(name, 0, *total);
                    if gained > 0 {
                        let part = Part::Count { index: 0, total: *total };
                        self.push(&mut batch, name, part, format_args!("{gained}|c"));
                    }
                }
                OwnedValue::Histogram(histogram) => {
                    self.push_timer(&mut batch, name, histogram);
                }
            }
        }
        // What is not there any more would start over.
        self.sent.retain(|name, _| totals.0.contains_key(&**name));
        self.identities.sweep();
        batch
    }

    /// Adds a line for each bucket that gained values, with a value of the bucket and, as a sample rate,
    /// how many it stands for: sending every duration would cost more than the requests.
    fn push_timer(&mut self, batch: &mut StatsdBatch, name: &str, histogram: &HistogramSnapshot) {
        let bounds = &histogram.bounds;
        for (index, total) in histogram.counts.iter().enumerate() {
            let gained = self.gained(name, index, *total);
            if gained > 0 {
                let lower = index.checked_sub(1).map_or(0.0, |below| bounds[below]);
                let middle = bounds.get(index).map_or(lower, |upper| (lower + upper) / 2.0);
                // Without the digits that come from binary fractions.
                let milliseconds = (middle * MILLISECONDS_PER_SECOND * 1e6).round() / 1e6;
                let part = Part::Count { index, total: *total };
                match gained {
                    1 => self.push(batch, name, part, format_args!("{milliseconds}|ms")),
                    _ => {
                        let rate = sample_rate(gained);
                        self.push(batch, name, part, format_args!("{milliseconds}|ms|@{rate}"));
                    }
                }
            }
        }
    }

    /// Returns what a counter gained since it was sent. One that fell has gained nothing: a part of its
    /// sum is gone, such as a rule that was removed, and the rest has been sent already.
    fn gained(&mut self, name: &str, index: usize, total: u64) -> u64 {
        let sent = self.sent.get_mut(name).and_then(|totals| totals.get_mut(index));
        let Some(sent) = sent else { return total };
        *sent = total.min(*sent);
        total - *sent
    }

    /// Adds a line. `value` is what follows the name: the value, its kind, and the sample rate, if there is one.
    fn push(&mut self, batch: &mut StatsdBatch, name: &str, part: Part, value: impl Display) {
        let (dialect, replaces) = (&self.dialect, self.replaces_tag_characters);
        let identity = self.identities.get(name, |name| {
            let mut identity = mogrify(name, dialect);
            if replaces {
                identity.name = identity.name.replace(TAG_CHARACTERS, "_");
            }
            Arc::new(identity)
        });
        let text = &mut batch.text;
        // Writing to a string cannot fail.
        let _ = write!(text, "{}:{value}", identity.name);
        text.push_str(&identity.tags);
        text.push('\n');
        batch.lines.push(Line { end: text.len(), name: name.into(), part });
    }

    /// Remembers that the first `sent` lines of a batch were sent.
    pub fn confirm(&mut self, batch: &StatsdBatch, sent: usize) {
        for line in batch.lines.iter().take(sent) {
            let Part::Count { index, total } = line.part else { continue };
            let totals = self.sent.entry(line.name.clone()).or_default();
            if totals.len() <= index {
                totals.resize(index + 1, 0);
            }
            totals[index] = total;
        }
    }
}

/// Returns the sample rate of a value that stands for so many. One divided by it is never less, because some receivers
/// truncate: `1 / (1 / 221)` is less than 221.
fn sample_rate(count: u64) -> f64 {
    let (count, rate) = (count as f64, 1.0 / count as f64);
    if 1.0 / rate < count { rate.next_down() } else { rate }
}

#[cfg(test)]
mod tests {
    use super::super::mogrifier::Mogrifier;
    use super::*;

    fn totals(hits: u64, counts: [u64; 3]) -> Totals {
        let mut totals = Totals::default();
        let histogram = HistogramSnapshot {
            bounds: vec![0.000_1, 0.005],
            counts: counts.into(),
            sum: 1.0,
            exemplars: Vec::new(),
        };
        totals.statistic("hits", SampleValue::Counter(hits));
        totals.statistic("none", SampleValue::Counter(0));
        totals.statistic("open", SampleValue::Gauge(2.0));
        totals.statistic("time", SampleValue::Histogram(&histogram));
        totals
    }

    fn report() -> StatsdReport {
        StatsdReport::new(&Dialect::StatsD, false)
    }

    #[test]
    fn receivers_that_truncate_and_those_that_round_count_the_same() {
        let mut counts: Vec<u64> = (2..=100_000).collect();
        counts.extend((17..50).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
        for count in counts {
            // As it is sent.
            let rate: f64 = sample_rate(count).to_string().parse().unwrap();
            let counted = 1.0 / rate;
            assert_eq!((counted as u64, counted.round() as u64), (count, count), "{rate}");
        }
    }

    #[test]
    fn characters_that_start_tags_are_replaced_on_request() {
        let mut totals = Totals::default();
        let name = "rule.path_/a[1],b#c;d";
        totals.statistic(name, SampleValue::Counter(3));
        let tag = Mogrifier::new("^rule", "$0s,a", &[("x".into(), "y".into())]).unwrap();
        let no_mogrifier = Dialect::DogStatsD(Vec::new());
        for (dialect, kept, replaced) in [
            (Dialect::StatsD, name, "rule.path_/a_1__b_c_d"),
            (no_mogrifier, name, "rule.path_/a_1__b_c_d"),
            (Dialect::DogStatsD(vec![tag]), "rules,a", "rules_a"),
        ] {
            for (replaces, wanted) in [(false, kept), (true, replaced)] {
                let text = StatsdReport::new(&dialect, replaces).compose(&totals).text;
                let (name, _) = text.split_once(':').unwrap();
                assert_eq!(name, wanted, "{dialect:?}");
            }
        }
    }

    #[test]
    fn counters_are_differences_and_gauges_are_always_sent() {
        let mut report = report();
        let batch = report.compose(&totals(7, [0; 3]));
        assert_eq!(batch.text, "hits:7|c\nopen:2|g\n");
        report.confirm(&batch, 2);
        let batch = report.compose(&totals(9, [0; 3]));
        assert_eq!(batch.text, "hits:2|c\nopen:2|g\n");
        report.confirm(&batch, 2);
        assert_eq!(report.compose(&totals(9, [0; 3])).text, "open:2|g\n");
    }

    #[test]
    fn what_was_not_sent_is_in_the_next_report() {
        let mut report = report();
        for (hits, sent, text) in [
            (3, 0, "hits:3|c\nopen:2|g\n"),
            (5, 1, "hits:5|c\nopen:2|g\n"),
            (6, 0, "hits:1|c\nopen:2|g\n"),
            (7, 2, "hits:2|c\nopen:2|g\n"),
        ] {
            let batch = report.compose(&totals(hits, [0; 3]));
            assert_eq!(batch.text, text);
            report.confirm(&batch, sent);
        }
    }

    #[test]
    fn timers_are_a_value_of_each_bucket_with_a_sample_rate() {
        let mut report = report();
        let batch = report.compose(&totals(0, [4, 1, 3]));
        let rate = 1.0 / 3.0;
        assert_eq!(
            batch.text,
            format!("open:2|g\ntime:0.05|ms|@0.25\ntime:2.55|ms\ntime:5|ms|@{rate}\n")
        );
        // The last line is not sent.
        report.confirm(&batch, 3);
        let batch = report.compose(&totals(0, [4, 3, 3]));
        assert_eq!(batch.text, format!("open:2|g\ntime:2.55|ms|@0.5\ntime:5|ms|@{rate}\n"));
    }

    #[test]
    fn a_statistic_that_returns_starts_over() {
        let mut report = report();
        let batch = report.compose(&totals(7, [0; 3]));
        report.confirm(&batch, 2);
        assert_eq!(report.compose(&Totals::default()).text, "");
        assert!(report.sent.is_empty());
        assert_eq!(report.compose(&totals(4, [0; 3])).text, "hits:4|c\nopen:2|g\n");
    }

    #[test]
    fn a_counter_that_fell_goes_on_from_there() {
        let mut report = report();
        let batch = report.compose(&totals(7, [4, 0, 0]));
        report.confirm(&batch, 3);
        assert_eq!(report.compose(&totals(5, [1, 0, 0])).text, "open:2|g\n");
        let text = report.compose(&totals(6, [2, 0, 0])).text;
        assert_eq!(text, "hits:1|c\nopen:2|g\ntime:0.05|ms\n");
    }

    #[test]
    fn equal_names_are_added() {
        let mut totals = totals(1, [1, 0, 0]);
        totals.statistic("hits", SampleValue::Counter(2));
        let time = HistogramSnapshot {
            bounds: vec![0.000_1, 0.005],
            counts: vec![2, 0, 0],
            sum: 0.0,
            exemplars: Vec::new(),
        };
        totals.statistic("time", SampleValue::Histogram(&time));
        let text = report().compose(&totals).text;
        assert_eq!(text, format!("hits:3|c\nopen:2|g\ntime:0.05|ms|@{}\n", 1.0 / 3.0));
    }

    #[test]
    fn tags_follow_the_line_in_dogstatsd() {
        let mogrifier = Mogrifier::new("^hi(.*)$", "hi.$1", &[("part".into(), "$1".into())]);
        let mut report = StatsdReport::new(&Dialect::DogStatsD(vec![mogrifier.unwrap()]), false);
        let mut totals = Totals::default();
        totals.statistic("hits.__a=b.__c=d", SampleValue::Counter(3));
        totals.statistic("open", SampleValue::Gauge(0.0));
        assert_eq!(report.compose(&totals).text, "hi.ts:3|c|#a:b,c:d,part:ts\nopen:0|g\n");
    }
}
