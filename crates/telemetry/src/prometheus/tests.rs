//! What is written, read back by a parser.

use proptest::prelude::*;

use super::*;
use weir_common::spans::TraceIds;

const HITS: MetricFamily = MetricFamily::counter("hits", "Hits of \"rules\" \\ all\n.", &["rule"]);
const OPEN: MetricFamily = MetricFamily::gauge("open", "Open connections", &[]);
const TIME: MetricFamily = MetricFamily::histogram("time_seconds", "Time", &["method"]);
const CPU: MetricFamily =
    MetricFamily::gauge("process_open_fds", "Open file descriptors", &[]).standard();

fn write(format: TextFormat) -> String {
    let mut writer = PrometheusWriter::new(format);
    writer.family(HITS);
    writer.sample(&[("rule", "a\"b\\c\nd")], SampleValue::Counter(u64::MAX));
    writer.family(OPEN);
    writer.sample(&[], SampleValue::Gauge(-1.5));
    writer.family(TIME);
    let snapshot = HistogramSnapshot {
        bounds: vec![0.001, 1.0],
        counts: vec![1, 2, 3],
        sum: 12.25,
        exemplars: Vec::new(),
    };
    writer.sample(&[("method", "Check")], SampleValue::Histogram(&snapshot));
    writer.family(CPU);
    writer.sample(&[], SampleValue::Gauge(17.0));
    writer.finish()
}

#[test]
fn prometheus_own_format_names_samples() {
    assert_eq!(
        write(TextFormat::Prometheus),
        r#"# HELP weir_hits_total Hits of "rules" \\ all\n.
# TYPE weir_hits_total counter
weir_hits_total{rule="a\"b\\c\nd"} 18446744073709551615
# HELP weir_open Open connections
# TYPE weir_open gauge
weir_open -1.5
# HELP weir_time_seconds Time
# TYPE weir_time_seconds histogram
weir_time_seconds_bucket{method="Check",le="0.001"} 1
weir_time_seconds_bucket{method="Check",le="1"} 3
weir_time_seconds_bucket{method="Check",le="+Inf"} 6
weir_time_seconds_sum{method="Check"} 12.25
weir_time_seconds_count{method="Check"} 6
# HELP process_open_fds Open file descriptors
# TYPE process_open_fds gauge
process_open_fds 17
"#
    );
}

#[test]
fn open_metrics_names_families_and_ends() {
    let text = write(TextFormat::OpenMetrics);
    assert!(text.starts_with(
        r#"# HELP weir_hits Hits of \"rules\" \\ all\n.
# TYPE weir_hits counter
weir_hits_total{rule="a\"b\\c\nd"} 18446744073709551615
"#
    ));
    assert!(text.contains(r#"le="1.0""#), "{text}");
    assert!(text.ends_with("process_open_fds 17\n# EOF\n"), "{text}");
}

#[test]
fn named_families_have_no_prefix_and_no_total() {
    let mut writer = PrometheusWriter::new(TextFormat::Prometheus);
    writer.named_family("ratelimit_service_total_requests", "Requests", "counter");
    writer.sample(&[("grpc_method", "Check")], SampleValue::Counter(3));
    writer.named_family("response_time_seconds", "Time", "summary");
    writer.line("", &[("quantile", "0.5")], 0.25);
    writer.line("_count", &[], 4.0);
    assert_eq!(
        writer.finish(),
        r#"# HELP ratelimit_service_total_requests Requests
# TYPE ratelimit_service_total_requests counter
ratelimit_service_total_requests{grpc_method="Check"} 3
# HELP response_time_seconds Time
# TYPE response_time_seconds summary
response_time_seconds{quantile="0.5"} 0.25
response_time_seconds_count 4
"#
    );
}

#[test]
fn numbers_are_written_as_prometheus_reads_them() {
    let cases = [
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
        (0.1, "0.1"),
        (1e21, "1000000000000000000000"),
    ];
    for (value, text) in cases {
        let mut out = String::new();
        write_float(&mut out, value);
        assert_eq!(out, text);
    }
}

/// A sample as read back: its name, its labels and its value.
type Parsed = (String, Vec<(String, String)>, String);

/// Parses a line of a sample.
fn parse(line: &str) -> Option<Parsed> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        _ => return None,
                    }),
                    (_, char) => value.push(char),
                }
            };
            labels.push((label.to_owned(), value));
            rest = after.get(end + 1..)?;
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    (!value.contains(' ')).then(|| (name.to_owned(), labels, value.to_owned()))
}

proptest! {
    /// Whatever clients send as values, the page has one line per sample, which reads as it was.
    #[test]
    fn label_values_round_trip(
        values in prop::collection::vec(("\\PC*|(?s).*", any::<u64>()), 1..5),
        open_metrics in any::<bool>(),
    ) {
        let format =
            if open_metrics { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
        let mut writer = PrometheusWriter::new(format);
        writer.family(HITS);
        for (value, count) in &values {
            let labels = [("rule", value.as_str()), ("domain", value.as_str())];
            writer.sample(&labels, SampleValue::Counter(*count));
        }
        let text = writer.finish();
        let lines = text.split_terminator('\n').filter(|line| !line.starts_with('#'));
        let read: Vec<_> = lines.map(parse).collect();
        let written = values.into_iter().map(|(value, count)| {
            let labels = vec![("rule".to_owned(), value.clone()), ("domain".to_owned(), value)];
            Some(("weir_hits_total".to_owned(), labels, count.to_string()))
        });
        prop_assert_eq!(read, written.collect::<Vec<_>>());
    }
}

#[test]
fn only_open_metrics_has_exemplars() {
    let ids = TraceIds { trace: 0x0af7_6519, span: 0xb7ad };
    let snapshot = HistogramSnapshot {
        bounds: vec![0.001],
        counts: vec![1, 2],
        sum: 12.25,
        exemplars: vec![Exemplar { bucket: 1, value: 0.25, ids }],
    };
    let write = |format| {
        let mut writer = PrometheusWriter::new(format);
        writer.family(TIME);
        writer.sample(&[("method", "Check")], SampleValue::Histogram(&snapshot));
        writer.finish()
    };
    assert!(!write(TextFormat::Prometheus).contains("trace_id"));
    let wanted = r#"
weir_time_seconds_bucket{method="Check",le="0.001"} 1
weir_time_seconds_bucket{method="Check",le="+Inf"} 3 # {trace_id="0000000000000000000000000af76519",span_id="000000000000b7ad"} 0.25
weir_time_seconds_sum{method="Check"} 12.25
"#;
    let text = write(TextFormat::OpenMetrics);
    assert!(text.contains(wanted), "{text}");
}
