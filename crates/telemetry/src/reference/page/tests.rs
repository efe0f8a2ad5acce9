use super::*;
use crate::mapper;
use crate::prometheus::TextFormat;
use crate::reference::Tags;
use weir_common::metrics::MetricFamily;

const RULE: &[&str] = &["domain", "rule"];
const METHOD: &[&str] = &["method"];

/// Lists metrics as the service does after a few requests.
fn collect(sink: &mut dyn MetricSink) {
    let rule = |sink: &mut dyn MetricSink, domain, rule, count| {
        sink.sample(&[("domain", domain), ("rule", rule)], SampleValue::Counter(count));
    };
    sink.family(MetricFamily::counter("rule_hits", "", RULE));
    rule(sink, "shop", "user_a", 3);
    rule(sink, "shop", "user_a.path_/x.deep", 5);
    rule(sink, "shop", "user_a.path_/x.deeper", 6);
    rule(sink, "shop", "quiet", 0);
    sink.family(MetricFamily::counter("rule_over_limit", "", RULE));
    rule(sink, "shop", "user_a.path_/x.deep", 2);
    sink.family(MetricFamily::counter("rule_over_limit_with_local_cache", "", RULE));
    rule(sink, "shop", "user_a.path_/x.deep", 1);
    sink.family(MetricFamily::counter("grpc_requests", "", METHOD));
    sink.sample(&[("method", "ShouldRateLimit")], SampleValue::Counter(14));
    sink.family(MetricFamily::histogram("request_duration_seconds", "", METHOD));
    let bounds = vec![0.000_1, 0.005, 0.01, 0.025];
    let time = HistogramSnapshot {
        bounds,
        counts: vec![8, 3, 2, 1, 0],
        sum: 0.0625,
        exemplars: Vec::new(),
    };
    sink.sample(&[("method", "ShouldRateLimit")], SampleValue::Histogram(&time));
    sink.family(MetricFamily::gauge("redis_connections", "", &[]));
    sink.sample(&[], SampleValue::Gauge(2.0));
}

fn lines(page: &ReferencePage) -> Vec<String> {
    let mut writer = PrometheusWriter::new(TextFormat::Prometheus);
    page.write(collect, &mut writer);
    let text = writer.finish();
    text.lines().filter(|line| !line.starts_with("# HELP")).map(str::to_owned).collect()
}

#[test]
fn the_default_names_are_those_of_the_reference() {
    let page = ReferencePage::with_builtin(ReferenceOptions::default(), false);
    let mut lines = lines(&page);
    lines.retain(|line| !line.contains("le=\"0.05\"") && !line.contains("le=\"0.25\""));
    let time = "ratelimit_service_response_time_seconds";
    let method = "grpc_method=\"ShouldRateLimit\"";
    let bucket = |bound, count| format!("{time}_bucket{{{method},le=\"{bound}\"}} {count}");
    let buckets = [
        ("0.005", 11),
        ("0.01", 13),
        ("0.025", 14),
        ("0.1", 14),
        ("0.5", 14),
        ("1", 14),
        ("2.5", 14),
        ("5", 14),
        ("10", 14),
        ("+Inf", 14),
    ];
    let mut wanted = vec![
        "# TYPE ratelimit_redis_pool_cx_active gauge".to_owned(),
        "ratelimit_redis_pool_cx_active 2".to_owned(),
        "# TYPE ratelimit_service_rate_limit_over_limit counter".to_owned(),
        "ratelimit_service_rate_limit_over_limit\
         {domain=\"shop\",key1=\"user_a\",key2=\"path_/x\"} 2"
            .to_owned(),
        "# TYPE ratelimit_service_rate_limit_total_hits counter".to_owned(),
        "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user_a\"} 3".to_owned(),
        // Rules that differ at the third level are one series.
        "ratelimit_service_rate_limit_total_hits\
         {domain=\"shop\",key1=\"user_a\",key2=\"path_/x\"} 11"
            .to_owned(),
        format!("# TYPE {time} histogram"),
    ];
    wanted.extend(buckets.map(|(bound, count)| bucket(bound, count)));
    wanted.push(format!("{time}_sum{{{method}}} 0.0625"));
    wanted.push(format!("{time}_count{{{method}}} 14"));
    wanted.push("# TYPE ratelimit_service_total_requests counter".to_owned());
    wanted.push(format!("ratelimit_service_total_requests{{{method}}} 14"));
    assert_eq!(lines, wanted);
}

#[test]
fn counters_of_the_service_start_at_zero_and_those_of_rules_with_their_first_hit() {
    let collect = |sink: &mut dyn MetricSink| {
        let counters: [(_, &[(&str, &str)]); 4] = [
            ("config_load_error", &[]),
            ("requests", &[("outcome", "store_error")]),
            ("rule_hits", &[("domain", "shop"), ("rule", "user")]),
            ("grpc_requests", &[("method", "Check")]),
        ];
        for (name, labels) in counters {
            sink.family(MetricFamily::counter(name, "", &[]));
            sink.sample(labels, SampleValue::Counter(0));
        }
    };
    let mut writer = PrometheusWriter::new(TextFormat::Prometheus);
    ReferencePage::with_builtin(ReferenceOptions::default(), false).write(collect, &mut writer);
    let text = writer.finish();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let errors = "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 0";
    assert_eq!(lines, ["ratelimit_service_config_load_error 0", errors]);
}

#[test]
fn denials_by_the_local_cache_count_twice_below_the_first_level() {
    let options = ReferenceOptions { local_cache: true, ..ReferenceOptions::default() };
    let lines = lines(&ReferencePage::with_builtin(options, false));
    let over = "ratelimit_service_rate_limit_over_limit\
                {domain=\"shop\",key1=\"user_a\",key2=\"path_/x\"} 3";
    assert!(lines.iter().any(|line| line == over), "{lines:?}");
}

#[test]
fn tags_are_labels_of_the_default_names() {
    let tags = Tags::new(&["env:pro.d"]);
    let page = ReferencePage::with_builtin(ReferenceOptions { tags, local_cache: false }, false);
    let hits = "ratelimit_service_rate_limit_total_hits\
                {domain=\"shop\",env=\"pro.d\",key1=\"user_a\"} 3";
    assert!(lines(&page).iter().any(|line| line == hits));
}

#[test]
fn a_mapping_file_sees_tags_in_names() {
    let mapping = r"mappings:
- match: (total_hits|total_requests).__env=(.*)
  match_type: regex
  name: all
  scale: 10
  help: Everything
  labels: {env: $2}
- match: ratelimit_server.*.*
  name: time_$1
- {match: ., match_type: regex, action: drop, name: dropped}
";
    let (mapper, _) = mapper::read(mapping).unwrap();
    let tags = Tags::new(&["env:pro.d"]);
    let page = ReferencePage::new(ReferenceOptions { tags, local_cache: false }, mapper);
    assert_eq!(lines(&page), ["# TYPE all counter", "all{env=\"pro_d\"} 280"]);
}

#[test]
fn timers_without_buckets_are_summaries_in_milliseconds() {
    let (mapper, _) = mapper::read("mappings: [{match: a, name: a}]").unwrap();
    let page = ReferencePage::new(ReferenceOptions::default(), mapper);
    let lines = lines(&page);
    let name = "ratelimit_server_ShouldRateLimit_response_time";
    let start = lines.iter().position(|line| *line == format!("# TYPE {name} summary")).unwrap();
    let [half, nine, most, sum, count] = &lines[start + 1..start + 6] else { panic!("{lines:?}") };
    assert!(half.starts_with(&format!("{name}{{quantile=\"0.5\"}} 0.0")), "{half}");
    assert!(nine.starts_with(&format!("{name}{{quantile=\"0.9\"}} ")), "{nine}");
    assert!(most.starts_with(&format!("{name}{{quantile=\"0.99\"}} 22.")), "{most}");
    assert_eq!([sum, count], [&format!("{name}_sum 62.5"), &format!("{name}_count 14")]);
}

#[test]
fn a_family_keeps_its_first_type_and_own_families_are_never_repeated() {
    let mapping = "mappings:
- {match: ratelimit_server.*.*, name: same}
- {match: ratelimit.redis_pool.*, name: weir_requests_total}
- {match: ., match_type: regex, action: drop, name: dropped}
";
    let (mapper, _) = mapper::read(mapping).unwrap();
    let page = ReferencePage::new(ReferenceOptions::default(), mapper);
    assert_eq!(lines(&page), ["# TYPE same counter", "same 14"]);
}

#[test]
fn names_are_mapped_once() {
    let page = ReferencePage::with_builtin(ReferenceOptions::default(), false);
    let first = lines(&page);
    let address = |page: &ReferencePage| {
        let name = "ratelimit_server.ShouldRateLimit.total_requests";
        let cached = page.series.lock().get(name, |_| panic!("is known"));
        cached.map(|series| Arc::as_ptr(&series))
    };
    let before = address(&page);
    assert_eq!(lines(&page), first);
    assert_eq!(address(&page), before);
}
