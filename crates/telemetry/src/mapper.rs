//! Maps the statistics of envoyproxy/ratelimit to Prometheus names and labels, by a mapping file of statsd_exporter.
//!
//! The first glob that matches decides, in the order of the file; if none does, the first regular
//! expression. A name without a mapping keeps its text, with an underscore for each dot.

pub(crate) mod builtin;
pub(crate) mod mapping;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use regex::Regex;

pub use self::mapping::Mapper;
use self::mapping::{
    DEFAULT_BUCKETS, DEFAULT_QUANTILES, Mapping, Observer, StatisticType, escape_name,
};
use weir_rules::Position;
use weir_rules::tree::{Content, Node};
use weir_rules::yaml::{self, SyntaxError};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct MapperError {
    line: u32,
    column: u32,
    message: String,
}

impl MapperError {
    fn at(position: Position, message: impl Into<String>) -> MapperError {
        let (line, column) = (position.line().unwrap_or(1), position.column().unwrap_or(1));
        MapperError { line, column, message: message.into() }
    }
}

/// Reads the text of a mapping file. Returns the mappings, and what has no effect.
pub fn read(text: &str) -> Result<(Mapper, Vec<String>), MapperError> {
    let root = yaml::parse(text).map_err(|SyntaxError { line, column, message, .. }| {
        MapperError { line, column, message }
    })?;
    let mut reader = Reader::default();
    let (mut defaults, mut mappings) = (None, None);
    for (key, value) in root.as_ref().map_or(Ok(&[][..]), entries)? {
        match key.text().unwrap_or_default() {
            "defaults" => defaults = Some(value),
            "mappings" => mappings = Some(value),
            unknown => reader.warn(key, format!("unknown key {unknown:?} is ignored")),
        }
    }
    if let Some(defaults) = defaults {
        reader.read_defaults(defaults)?;
    }
    let mappings = mappings.map_or(Ok(&[][..]), items)?;
    let mappings = mappings.iter().map(|mapping| reader.mapping(mapping));
    let mappings = mappings.collect::<Result<_, _>>()?;
    let observer = reader.default_options.observer(&ObserverOptions::default());
    Ok((Mapper::new(mappings, observer), reader.warnings))
}

/// Returns the regular expression of a glob, whose stars stand for one level each; none if it is not a glob.
fn glob(text: &str) -> Option<Regex> {
    let is_word = |level: &str| {
        let mut chars = level.chars();
        let is_start = |c: char| c.is_ascii_alphanumeric() || c == '_';
        chars.next().is_some_and(is_start) && chars.all(|c| is_start(c) || c == '-')
    };
    let starts_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
    if starts_with_digit || !text.split('.').all(|level| level == "*" || is_word(level)) {
        return None;
    }
    let pattern = text.replace('.', r"\.").replace('*', r"([^.]*)");
    Regex::new(&format!("^{pattern}$")).ok()
}

#[derive(Debug, Default)]
struct Reader {
    default_options: ObserverOptions,
    default_is_regex: bool,
    warnings: Vec<String>,
}

/// How timers are shown, as far as it is written.
#[derive(Debug, Default)]
struct ObserverOptions {
    is_histogram: Option<bool>,
    histogram: Option<Position>,
    summary: Option<Position>,
    buckets: Option<Arc<[f64]>>,
    quantiles: Option<Arc<[f64]>>,
}

impl ObserverOptions {
    fn observer(&self, defaults: &ObserverOptions) -> Observer {
        match self.is_histogram.or(defaults.is_histogram) {
            Some(true) => {
                let buckets = self.buckets.as_ref().or(defaults.buckets.as_ref());
                Observer::Histogram(buckets.cloned().unwrap_or_else(|| DEFAULT_BUCKETS.into()))
            }
            _ => {
                let quantiles = self.quantiles.as_ref().or(defaults.quantiles.as_ref());
                Observer::Summary(quantiles.cloned().unwrap_or_else(|| DEFAULT_QUANTILES.into()))
            }
        }
    }
}

impl Reader {
    fn warn(&mut self, node: &Node<'_>, message: String) {
        self.warnings.push(MapperError::at(node.position, message).to_string());
    }

    fn read_defaults(&mut self, node: &Node<'_>) -> Result<(), MapperError> {
        let mut options = ObserverOptions::default();
        for (key, value) in entries(node)? {
            match key.text().unwrap_or_default() {
                "match_type" => self.default_is_regex = is_regex(value)?.unwrap_or(false),
                // The order of the file always decides, and series end with their rules.
                "glob_disable_ordering" | "ttl" => {}
                _ => self.observer_key(key, value, &mut options)?,
            }
        }
        self.default_options = options;
        Ok(())
    }

    /// Reads a key that mappings and defaults have in common.
    fn observer_key(
        &mut self,
        key: &Node<'_>,
        value: &Node<'_>,
        options: &mut ObserverOptions,
    ) -> Result<(), MapperError> {
        match key.text().unwrap_or_default() {
            "observer_type" => {
                options.is_histogram = is_histogram(value)?.or(options.is_histogram);
            }
            // The older names: the newer ones win, wherever they are.
            "timer_type" => options.is_histogram = options.is_histogram.or(is_histogram(value)?),
            "buckets" => options.buckets = options.buckets.take().or(buckets(value)?),
            "quantiles" => options.quantiles = options.quantiles.take().or(self.quantiles(value)?),
            "histogram_options" => {
                options.histogram = Some(key.position);
                for (key, value) in entries(value)? {
                    match key.text().unwrap_or_default() {
                        "buckets" => options.buckets = buckets(value)?.or(options.buckets.take()),
                        unknown => self.warn(key, format!("key {unknown:?} has no effect")),
                    }
                }
            }
            "summary_options" => {
                options.summary = Some(key.position);
                for (key, value) in entries(value)? {
                    match key.text().unwrap_or_default() {
                        "quantiles" => {
                            let quantiles = self.quantiles(value)?;
                            options.quantiles = quantiles.or(options.quantiles.take());
                        }
                        // They limit the memory of samples; there are none.
                        "max_age" | "age_buckets" | "buf_cap" => {}
                        unknown => self.warn(key, format!("key {unknown:?} has no effect")),
                    }
                }
            }
            unknown => self.warn(key, format!("unknown key {unknown:?} is ignored")),
        }
        Ok(())
    }

    /// Reads a list of quantiles with their errors; none if it is empty.
    fn quantiles(&mut self, node: &Node<'_>) -> Result<Option<Arc<[f64]>>, MapperError> {
        let mut quantiles = Vec::new();
        for item in items(node)? {
            let mut quantile = None;
            for (key, value) in entries(item)? {
                match key.text().unwrap_or_default() {
                    "quantile" => quantile = Some(number(value)?),
                    // Quantiles are estimated from buckets, which have errors of their own.
                    "error" => {}
                    unknown => self.warn(key, format!("unknown key {unknown:?} is ignored")),
                }
            }
            match quantile {
                Some(quantile) if (0.0..=1.0).contains(&quantile) => quantiles.push(quantile),
                _ => {
                    let message = "a quantile without a number: write quantile: with a number \
                                   from 0 to 1";
                    return Err(MapperError::at(item.position, message));
                }
            }
        }
        Ok((!quantiles.is_empty()).then(|| quantiles.into()))
    }

    fn mapping(&mut self, node: &Node<'_>) -> Result<Mapping, MapperError> {
        let mut pattern = None;
        let (mut name, mut help) = (String::new(), "");
        let (mut regex, mut drop, mut scale) = (None, false, 1.0);
        let (mut labels, mut statistic_type) = (Vec::new(), None);
        let mut options = ObserverOptions::default();
        for (key, value) in entries(node)? {
            match key.text().unwrap_or_default() {
                "match" => pattern = Some((value, text(value)?)),
                "name" => name = checked_name(value)?,
                "help" => help = text(value)?,
                "labels" => labels = read_labels(value)?,
                "match_type" => regex = is_regex(value)?,
                "action" => drop = word(value, &[("map", false), ("drop", true)])?.unwrap_or(false),
                "match_metric_type" => statistic_type = read_type(value)?,
                "scale" => scale = number(value)?,
                // Series end with their rules, and statistics have no labels to honor.
                "ttl" | "honor_labels" => {}
                _ => self.observer_key(key, value, &mut options)?,
            }
        }
        let Some((pattern_node, pattern)) = pattern else {
            return Err(MapperError::at(node.position, "a mapping without match: add match"));
        };
        if name.is_empty() && !drop {
            return Err(MapperError::at(node.position, "a mapping without name: add name"));
        }
        let is_histogram = options.is_histogram.or(self.default_options.is_histogram);
        let contradiction = match (is_histogram, options.is_histogram) {
            (Some(true), _) => options.summary.map(|at| (at, "summary_options in a histogram")),
            (_, Some(false)) => options.histogram.map(|at| (at, "histogram_options in a summary")),
            _ => None,
        };
        if let Some((position, what)) = contradiction {
            return Err(MapperError::at(position, format!("{what}: remove one of them")));
        }
        let is_glob = !regex.unwrap_or(self.default_is_regex);
        let regex = match is_glob {
            true => glob(pattern).ok_or_else(|| {
                "not a glob: write levels with dots between them, each a name or *, or \
                 match_type: regex"
                    .to_owned()
            }),
            false => Regex::new(pattern)
                .map_err(|error| format!("invalid regular expression: {}", cause(&error))),
        };
        Ok(Mapping {
            regex: regex.map_err(|message| MapperError::at(pattern_node.position, message))?,
            is_glob,
            statistic_type,
            drop,
            name,
            labels,
            help: help.into(),
            scale,
            observer: options.observer(&self.default_options),
        })
    }
}

/// Returns why a regular expression is invalid: the last line of the error. The others show where.
pub(crate) fn cause(error: &regex::Error) -> String {
    let message = error.to_string();
    message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Returns the entries of a map; none for null.
fn entries<'n, 'a>(node: &'n Node<'a>) -> Result<&'n [(Node<'a>, Node<'a>)], MapperError> {
    match node.content() {
        Content::Map(entries) => Ok(entries),
        Content::Scalar(text) if is_null(text) => Ok(&[]),
        _ => Err(MapperError::at(node.position, "not a map: write keys with their values")),
    }
}

/// Returns the items of a list; none for null.
fn items<'n, 'a>(node: &'n Node<'a>) -> Result<&'n [Node<'a>], MapperError> {
    match node.content() {
        Content::List(items) => Ok(items),
        Content::Scalar(text) if is_null(text) => Ok(&[]),
        _ => Err(MapperError::at(node.position, "not a list: write - before each item")),
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

fn text<'n>(node: &'n Node<'_>) -> Result<&'n str, MapperError> {
    node.text().ok_or_else(|| MapperError::at(node.position, "not text: write one value"))
}

fn number(node: &Node<'_>) -> Result<f64, MapperError> {
    let number = text(node)?.replace('_', "").parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| MapperError::at(node.position, "not a number"))
}

/// Reads the upper bounds of buckets; none if there are none.
fn buckets(node: &Node<'_>) -> Result<Option<Arc<[f64]>>, MapperError> {
    let buckets = items(node)?.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    if !buckets.is_sorted_by(|a, b| a < b) {
        let message = "buckets are not in ascending order: sort them";
        return Err(MapperError::at(node.position, message));
    }
    Ok((!buckets.is_empty()).then(|| buckets.into()))
}

/// Reads one of the given words; none if it is empty.
fn word<T: Copy>(node: &Node<'_>, words: &[(&str, T)]) -> Result<Option<T>, MapperError> {
    let text = text(node)?;
    let value = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if value.is_none() && !text.is_empty() {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("{text:?} is unknown: write one of {}", words.join(", "));
        return Err(MapperError::at(node.position, message));
    }
    Ok(value)
}

fn is_histogram(node: &Node<'_>) -> Result<Option<bool>, MapperError> {
    word(node, &[("histogram", true), ("summary", false)])
}

fn is_regex(node: &Node<'_>) -> Result<Option<bool>, MapperError> {
    word(node, &[("glob", false), ("regex", true)])
}

fn read_type(node: &Node<'_>) -> Result<Option<StatisticType>, MapperError> {
    use StatisticType::{Counter, Gauge, Timer};
    word(node, &[("counter", Counter), ("gauge", Gauge), ("observer", Timer), ("timer", Timer)])
}

/// Reads a name of Prometheus, which may contain references to groups.
fn checked_name(node: &Node<'_>) -> Result<String, MapperError> {
    let name = text(node)?;
    let plain = name.replace(['$', '{', '}'], "_");
    if escape_name(&plain) != plain && !name.starts_with('$') {
        let message = format!("{name:?} is not a name of Prometheus: use letters, digits and _");
        return Err(MapperError::at(node.position, message));
    }
    Ok(name.to_owned())
}

fn read_labels(node: &Node<'_>) -> Result<Vec<(String, String)>, MapperError> {
    let mut labels = Vec::new();
    for (key, value) in entries(node)? {
        let name = text(key)?;
        if name.is_empty() || escape_name(name) != name {
            let message = format!("{name:?} is not a label: use letters, digits and _");
            return Err(MapperError::at(key.position, message));
        }
        labels.push((name.to_owned(), text(value)?.to_owned()));
    }
    labels.sort();
    labels.dedup_by(|b, a| a.0 == b.0);
    Ok(labels)
}
