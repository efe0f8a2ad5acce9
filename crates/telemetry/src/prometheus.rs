//! Writes metrics as the text that Prometheus scrapes: its own format 0.0.4, or OpenMetrics 1.0.

mod format;
#[cfg(test)]
mod tests;

pub use format::{TextFormat, accepts_text, preferred_format};

use std::borrow::Cow;
use std::fmt::Write;

use weir_common::metrics::{
    Exemplar, HistogramSnapshot, MetricFamily, MetricSink, MetricType, SampleValue,
};

const PREFIX: &str = "weir_";

/// Writes metrics as text. Families of a [`MetricSink`] get the program's prefix, and counters `_total`; those that
/// [`named_family`](Self::named_family) starts have their names as given.
#[derive(Debug)]
pub struct PrometheusWriter {
    format: TextFormat,
    out: String,
    /// The name of the samples, without `_bucket`, `_count` and `_sum`.
    name: String,
}

impl PrometheusWriter {
    pub fn new(format: TextFormat) -> PrometheusWriter {
        PrometheusWriter { format, out: String::new(), name: String::new() }
    }

    pub fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Starts a family with exactly this name, which [`sample`](MetricSink::sample) and [`line`](Self::line) add to.
    /// Its counters have no `_total`, so that it is only valid in [`TextFormat::Prometheus`]. The name has to be valid,
    /// and the type one of those that Prometheus knows.
    pub fn named_family(&mut self, name: &str, help: &str, text_type: &str) {
        self.name = name.into();
        self.head(name, help, text_type);
    }

    /// Adds a line of a family: its name with `suffix`. For summaries, whose samples have labels of their own.
    pub fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.start_line(suffix, labels);
        write_float(&mut self.out, value);
        self.out.push('\n');
    }

    fn head(&mut self, name: &str, help: &str, text_type: &str) {
        let out = &mut self.out;
        // Writing to a string cannot fail.
        let _ = write!(out, "# HELP {name} ");
        let quotes = self.format == TextFormat::OpenMetrics;
        push_escaped(out, help, quotes);
        let _ = writeln!(out, "\n# TYPE {name} {text_type}");
    }

    /// Writes the name and the labels of a sample, and the space before its value.
    fn start_line(&mut self, suffix: &str, labels: &[(&str, &str)]) {
        let out = &mut self.out;
        out.push_str(&self.name);
        out.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            out.push(separator);
            separator = ',';
            out.push_str(name);
            out.push_str("=\"");
            push_escaped(out, value, true);
            out.push('"');
        }
        if separator == ',' {
            out.push('}');
        }
        out.push(' ');
    }

    fn integer_line(&mut self, suffix: &str, labels: &[(&str, &str)], value: u64) {
        self.start_line(suffix, labels);
        let _ = writeln!(self.out, "{value}");
    }

    /// Writes an exemplar behind the value of its bucket.
    fn exemplar(&mut self, exemplar: &Exemplar) {
        let (trace, span) = (exemplar.ids.trace_id(), exemplar.ids.span_id());
        let _ = write!(self.out, " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} ");
        write_float(&mut self.out, exemplar.value);
    }

    fn histogram(&mut self, labels: &[(&str, &str)], histogram: &HistogramSnapshot) {
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        let mut sum = 0;
        for (bucket, (bound, count)) in bounds.zip(&histogram.counts).enumerate() {
            sum += count;
            let mut le = String::new();
            write_float(&mut le, bound);
            // OpenMetrics has whole numbers with `.0`.
            if self.format == TextFormat::OpenMetrics && bound.is_finite() && !le.contains('.') {
                le.push_str(".0");
            }
            self.start_line("_bucket", &[labels, &[("le", &le)]].concat());
            let _ = write!(self.out, "{sum}");
            let exemplar = histogram.exemplars.iter().find(|exemplar| exemplar.bucket == bucket);
            if let Some(exemplar) = exemplar
                && self.format == TextFormat::OpenMetrics
            {
                self.exemplar(exemplar);
            }
            self.out.push('\n');
        }
        self.line("_sum", labels, histogram.sum);
        self.integer_line("_count", labels, sum);
    }
}

impl MetricSink for PrometheusWriter {
    fn family(&mut self, family: MetricFamily) {
        let prefix = if family.is_standard { "" } else { PREFIX };
        let base = format!("{prefix}{}", family.name);
        let (text_type, samples) = match family.metric_type {
            MetricType::Counter => ("counter", Cow::from(format!("{base}_total"))),
            MetricType::Gauge => ("gauge", (&base).into()),
            MetricType::Histogram => ("histogram", (&base).into()),
        };
        // OpenMetrics names the family, Prometheus' own format its samples.
        let head = if self.format == TextFormat::OpenMetrics { &*base } else { &*samples };
        self.head(head, family.help, text_type);
        self.name = samples.into_owned();
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        match value {
            SampleValue::Counter(value) => self.integer_line("", labels, value),
            SampleValue::FloatCounter(value) | SampleValue::Gauge(value) => {
                self.line("", labels, value);
            }
            SampleValue::Histogram(histogram) => self.histogram(labels, histogram),
        }
    }
}

/// Writes a number as Go and Prometheus read it.
fn write_float(out: &mut String, value: f64) {
    let _ = match value {
        f64::INFINITY => out.write_str("+Inf"),
        f64::NEG_INFINITY => out.write_str("-Inf"),
        // The shortest text that is read as the same number; NaN is `NaN`.
        _ => write!(out, "{value}"),
    };
}

/// Escapes backslashes, line feeds and, if `quotes`, quotes: not in the help of [`TextFormat::Prometheus`].
fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            char => out.push(char),
        }
    }
}
