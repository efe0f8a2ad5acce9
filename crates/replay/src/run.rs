//! Runs a replay: one thread reads the log line by line, another decides its requests by the rules.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use smallvec::SmallVec;

use super::distinct::Distinct;
use super::format::csv::Line;
use super::format::{InputFormat, LineReader};
use super::input::{Input, MAX_LINE_BYTES, NextLine};
use super::mapping::Mapping;
use super::progress::Progress;
use super::report::{
    Comparison, DescriptorReport, Difference, InvalidLine, LateAfter, Report, RequestSeries,
    Traffic,
};
use super::rows::released::Released;
use super::rows::{RowView, Rows, shown};
use super::side::{DifferenceTally, Side};
use super::tally::{Series, Timeline};
use super::template::{Part, Template};
use super::time::{self, stamp};
use weir_common::entry::Entry;
use weir_limit::SECOND;
use weir_limiter::Descriptor;
use weir_rules::RuleSet;

/// The most invalid lines that a report shows.
const MAX_EXAMPLES: usize = 5;

/// The most batches of rows (lines of the log) that wait to be decided.
const QUEUE: usize = 2;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A set of rules, and its name for people.
pub type NamedRules = (String, RuleSet);

/// A replay: the rules, and the counts so far.
pub struct Replay {
    mapping: Mapping,
    decider: Decider,
    traffic: Traffic,
}

struct Decider {
    domain: String,
    templates: Vec<Template>,
    /// Whether a value consists of several parts.
    joins: bool,
    rules: Side,
    other: Option<Other>,
    timeline: Timeline,
    series: Series,
    requests: u64,
    without_descriptors: u64,
    /// The missing fields, one for each template.
    missing: Vec<Missing>,
    distinct: Distinct,
}

/// The rules of `--compare`.
struct Other {
    side: Side,
    newly_denied: DifferenceTally,
    no_longer_denied: DifferenceTally,
}

/// Hands rows to the thread that decides.
struct Handing {
    rows: Released,
    sender: SyncSender<Released>,
    /// Whether the thread that decides has ended.
    has_ended: bool,
}

impl Handing {
    fn push(&mut self, row: RowView<'_>) {
        self.rows.push(row);
        if self.rows.is_full() {
            self.send();
        }
    }

    fn send(&mut self) {
        self.has_ended |= self.sender.send(std::mem::take(&mut self.rows)).is_err();
    }
}

impl Replay {
    /// Returns a replay of the lines that `mapping` turns into requests, by `rules` and, to compare, by `other`. A
    /// side keeps the states of up to `max_keys` keys.
    pub fn new(
        mut mapping: Mapping,
        rules: NamedRules,
        other: Option<NamedRules>,
        max_keys: usize,
    ) -> Replay {
        let side = |(name, rules): NamedRules| Side::new(name, rules, max_keys);
        let templates = std::mem::take(&mut mapping.descriptors);
        let traffic = Traffic { domain: mapping.domain.clone(), ..Traffic::default() };
        let decider = Decider {
            domain: mapping.domain.clone(),
            missing: vec![(0, None); templates.len()],
            distinct: Distinct::new(&templates),
            joins: templates
                .iter()
                .flat_map(|template| &template.entries)
                .any(|entry| entry.parts.len() > 1),
            templates,
            rules: side(rules),
            other: other.map(|rules| Other {
                side: side(rules),
                newly_denied: DifferenceTally::default(),
                no_longer_denied: DifferenceTally::default(),
            }),
            timeline: Timeline::default(),
            series: Series::default(),
            requests: 0,
            without_descriptors: 0,
        };
        Replay { mapping, decider, traffic }
    }

    /// Replays a log: one thread reads it, another decides. If it cannot be read to its end, the report is about
    /// what was read.
    pub fn run(mut self, mut input: Input) -> (Report, Result<(), String>) {
        self.traffic.name.clone_from(&input.name);
        let Replay { mapping, decider, traffic } = &mut self;
        let (sender, receiver) = sync_channel(QUEUE);
        let result = thread::scope(|scope| {
            let decide = move || decider.decide_all(&receiver);
            let deciding =
                thread::Builder::new().name("replay".to_owned()).spawn_scoped(scope, decide);
            let deciding = deciding.map_err(|error| format!("cannot start a thread: {error}"))?;
            let read = read(mapping, traffic, &mut input, sender);
            match deciding.join() {
                Ok(decided) => read.and(decided),
                Err(panic) => resume_unwind(panic),
            }
        });
        (self.report(), result)
    }

    fn report(self) -> Report {
        let Replay { mapping, mut traffic, decider } = self;
        let Decider { timeline, rules, other, series, requests, .. } = decider;
        traffic.requests = requests;
        let field = |field: usize| mapping.fields.names[field].clone();
        traffic.descriptors = std::iter::zip(decider.templates, decider.missing)
            .enumerate()
            .map(|(number, (template, (lines_without_it, first)))| DescriptorReport {
                descriptor: template.text,
                lines_without_it,
                first_missing_field: first.map(field),
                nearly_distinct: decider.distinct.nearly_all(number),
            })
            .collect();
        traffic.without_descriptors = decider.without_descriptors;
        (traffic.first, traffic.last) =
            timeline.span().map(|(first, last)| (stamp(first), stamp(last))).unzip();
        traffic.evicted_counters =
            rules.evicted() + other.as_ref().map_or(0, |other| other.side.evicted());
        traffic.concurrency_rules = rules.concurrency_rules();
        let comparison = other.map(|other| {
            let difference = |tally: DifferenceTally, side: &Side| Difference {
                rules: side.named(&tally),
                total: tally.total.finish(&timeline, requests),
            };
            Comparison {
                newly_denied: difference(other.newly_denied, &other.side),
                no_longer_denied: difference(other.no_longer_denied, &rules),
                other: other.side.finish(&timeline, requests),
            }
        });
        Report {
            traffic,
            rules: rules.finish(&timeline, requests),
            comparison,
            series: RequestSeries {
                start: stamp(timeline.plot_start()),
                bucket_seconds: timeline.bucket_width() / SECOND,
                requests: series.finish(&timeline),
            },
        }
    }
}

fn read(
    mapping: &mut Mapping,
    traffic: &mut Traffic,
    input: &mut Input,
    sender: SyncSender<Released>,
) -> Result<(), String> {
    let mut rows = Rows::new(mapping.fields.names.len(), mapping.reorder);
    let mut handing = Handing { rows: Released::default(), sender, has_ended: false };
    let read = read_lines(mapping, traffic, input, &mut rows, &mut handing);
    rows.release_all(|row| handing.push(row));
    handing.send();
    traffic.late = rows.late;
    traffic.late_after = rows.late_after.map(|(line, time)| LateAfter { line, time: stamp(time) });
    read
}

/// Reads the lines of a log into rows; until the thread that decides has ended.
fn read_lines(
    mapping: &mut Mapping,
    traffic: &mut Traffic,
    input: &mut Input,
    rows: &mut Rows,
    handing: &mut Handing,
) -> Result<(), String> {
    let (fields, hops) = (&mapping.fields, mapping.trusted_hops);
    let mut reader = match mapping.log_format.take() {
        Some(pattern) => Some(LineReader::of_pattern(pattern, fields, hops)),
        None => mapping.format.map(|format| LineReader::new(format, fields, hops)),
    };
    let mapping = &*mapping;
    let progress = Progress::new(input);
    loop {
        let is_open_after = |is_open: bool, part: &[u8]| {
            reader.as_ref().is_some_and(|reader| reader.is_open_after(is_open, part))
        };
        let line = input.lines.next(is_open_after).map_err(|error| {
            format!("cannot read {} after line {}: {error}", input.name, traffic.lines)
        })?;
        let Some(line) = line else { return Ok(()) };
        traffic.lines += 1;
        progress.show(traffic.lines);
        let read = match line {
            NextLine::Line(line) if line.trim_ascii().is_empty() => Ok(()),
            NextLine::Line(line) => {
                // Files of some programs start with a byte order mark.
                let mark = traffic.lines == 1 && line.starts_with(BYTE_ORDER_MARK);
                let line = if mark { &line[BYTE_ORDER_MARK.len()..] } else { line };
                let format = || {
                    let format = InputFormat::guess(&input.name, line);
                    LineReader::new(format, &mapping.fields, mapping.trusted_hops)
                };
                rows.start();
                match reader.get_or_insert_with(format).read(line, &mapping.fields, rows) {
                    Ok(Line::Row) => finish(mapping, rows, traffic.lines),
                    Ok(Line::Ignored) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            NextLine::TooLong => Err(format!("longer than {MAX_LINE_BYTES} bytes")),
        };
        if let Err(error) = read {
            traffic.invalid += 1;
            if traffic.invalid_lines.len() < MAX_EXAMPLES {
                traffic.invalid_lines.push(InvalidLine { line: traffic.lines, error });
            }
        }
        if rows.is_ready() {
            rows.release(|row| handing.push(row));
            if handing.has_ended {
                return Ok(());
            }
        }
    }
}

#[inline]
fn finish(mapping: &Mapping, rows: &mut Rows, line: u64) -> Result<(), String> {
    let name = |field: usize| &mapping.fields.names[field];
    let Some(text) = rows.get(mapping.time) else {
        return Err(format!("no field `{}`: write --time FIELD", name(mapping.time)));
    };
    let Some(at) = time::read_time(text) else {
        let (name, text) = (name(mapping.time), shown(text));
        return Err(format!("field `{name}` is not a time: '{text}'; {}", time::HELP));
    };
    let hits = match mapping.hits.and_then(|field| Some((field, rows.get(field)?))) {
        // As Envoy sends it.
        None => 0,
        Some((field, text)) => {
            let hits = text.parse::<u64>().map_err(|_| {
                let (name, text) = (name(field), shown(text));
                format!("field `{name}` is not a number of hits: '{text}'; expected a whole number")
            })?;
            u32::try_from(hits).unwrap_or(u32::MAX)
        }
    };
    rows.finish(at, hits, line);
    Ok(())
}

/// Returns the values that consist of several parts, of all descriptors in order.
fn join(templates: &[Template], row: &RowView<'_>) -> Vec<Option<String>> {
    let entries = templates.iter().flat_map(|template| &template.entries);
    let several = entries.filter(|entry| entry.parts.len() > 1);
    several
        .map(|entry| entry.parts.iter().map(|part| part.text(|field| row.get(field))).collect())
        .collect()
}

/// Entries of descriptors, one descriptor after the other.
type Entries<'r> = SmallVec<[Entry<'r>; 4]>;

/// Adds the entries of a descriptor; none if the line does not have a field. `joined` has the values that consist
/// of several parts, in order. Returns whether it added them.
#[inline]
fn add_entries<'r>(
    template: &'r Template,
    row: &RowView<'r>,
    joined: &mut impl Iterator<Item = &'r Option<String>>,
    entries: &mut Entries<'r>,
) -> bool {
    let (start, mut is_complete) = (entries.len(), true);
    for entry in &template.entries {
        let value = match &*entry.parts {
            [part] => part.text(|field| row.get(field)),
            _ => joined.next().and_then(Option::as_deref),
        };
        match value {
            Some(value) => entries.push((&entry.key, value)),
            None => is_complete = false,
        }
    }
    if !is_complete {
        entries.truncate(start);
    }
    is_complete
}

/// The lines that lack a field of a descriptor, and the field that the first such line lacks.
type Missing = (u64, Option<usize>);

#[cold]
fn count_missing(templates: &[Template], row: &RowView<'_>, counts: &mut [Missing]) {
    for (template, (lines, first)) in std::iter::zip(templates, counts) {
        let mut parts = template.entries.iter().flat_map(|entry| &entry.parts);
        let is_missing = |part: &&Part| part.text(|field| row.get(field)).is_none();
        let field = parts.find(is_missing).and_then(Part::field);
        if let Some(field) = field {
            *lines += 1;
            first.get_or_insert(field);
        }
    }
}

impl Decider {
    fn decide_all(&mut self, rows: &Receiver<Released>) -> Result<(), String> {
        rows.iter().try_for_each(|rows| rows.iter().try_for_each(|row| self.decide(row)))
    }

    fn decide(&mut self, row: RowView<'_>) -> Result<(), String> {
        let joined = if self.joins { join(&self.templates, &row) } else { Vec::new() };
        let (mut joined, mut entries) = (joined.iter(), Entries::new());
        let mut ends: SmallVec<[usize; 4]> = SmallVec::new();
        for (number, template) in self.templates.iter().enumerate() {
            // As Envoy does, a descriptor with a missing value is not sent.
            let start = entries.len();
            let is_sent = add_entries(template, &row, &mut joined, &mut entries);
            if is_sent {
                ends.push(entries.len());
            }
            if is_sent && self.distinct.is_open() {
                let entries = &entries[start..];
                let replaced = self.rules.key_values(&self.domain, entries);
                let counted = self.rules.counted(&self.domain, entries);
                self.distinct.add(number, counted, &replaced);
            }
        }
        if ends.len() < self.templates.len() {
            count_missing(&self.templates, &row, &mut self.missing);
        }
        if ends.is_empty() {
            self.without_descriptors += 1;
            return Ok(());
        }
        let mut start = 0;
        let mut descriptors: SmallVec<[Descriptor<'_>; 2]> = SmallVec::new();
        for end in ends {
            let entries = &entries[start..end];
            descriptors.push(Descriptor { entries, ..Descriptor::default() });
            start = end;
        }
        self.requests += 1;
        self.distinct.next();
        let timeline = &mut self.timeline;
        timeline.advance(row.time);
        self.series.add(timeline);
        let outcome = self.rules.decide(&self.domain, &descriptors, row.hits, timeline)?;
        if let Some(Other { side, newly_denied, no_longer_denied }) = &mut self.other {
            let by_other = side.decide(&self.domain, &descriptors, row.hits, timeline)?;
            match (outcome.is_denied, by_other.is_denied) {
                (false, true) => {
                    side.count_difference(&by_other, &descriptors, timeline, newly_denied);
                }
                (true, false) => {
                    let rules = &mut self.rules;
                    rules.count_difference(&outcome, &descriptors, timeline, no_longer_denied);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
