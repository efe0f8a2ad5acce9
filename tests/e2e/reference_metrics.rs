//! The reference's Prometheus names, as its dashboards query them.

use std::fmt::Write;

use crate::support::api::{code, request};
use crate::support::http;
use crate::support::weir::{Setup, Weir, serving};

const DOMAIN: &str = "default/eg/http";
const ROUTE: &str = "httproute/default/http-ratelimit/rule/0/match/0/ratelimit_example";
const MATCH: &str = "rule-0-match-0";

/// Rules as Envoy Gateway makes them from a policy with a global limit.
fn gateway() -> Setup {
    let rules = format!(
        "\
domain: {DOMAIN}
descriptors:
  - key: {ROUTE}
    value: {ROUTE}
    descriptors:
      - key: {MATCH}
        value: {MATCH}
        rate_limit: {{ unit: year, requests_per_unit: 3 }}
"
    );
    serving(&rules).env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0")
}

/// The mapping that Envoy Gateway mounts: rules with one key and with two, no scale, and nothing that
/// is not named.
fn gateway_mapping() -> String {
    let mut mapping = "mappings:\n".to_owned();
    let mut add = |pattern: &str, name: &str, rest: &str| {
        let _ =
            writeln!(mapping, "- {{match: {pattern:?}, name: ratelimit_service_{name}, {rest}}}");
    };
    let rule = "ratelimit.service.rate_limit";
    let keys = [(".*", ""), (".*.*", ", key2: $3")];
    for counter in ["near_limit", "over_limit", "total_hits", "within_limit"] {
        for (levels, key2) in keys {
            let labels = format!("timer_type: histogram, labels: {{domain: $1, key1: $2{key2}}}");
            add(&format!("{rule}.*{levels}.{counter}"), &format!("rate_limit_{counter}"), &labels);
        }
    }
    let method = "labels: {grpc_method: $1}";
    let counter = "match_metric_type: counter";
    let error = format!("{counter}, labels: {{err_type: $1}}");
    add("ratelimit.service.call.should_rate_limit.*", "should_rate_limit_error", &error);
    let requests = format!("{counter}, {method}");
    add("ratelimit_server.*.total_requests", "total_requests", &requests);
    let time = format!("timer_type: histogram, {method}");
    add("ratelimit_server.*.response_time", "response_time_seconds", &time);
    add("ratelimit.service.config_load_success", "config_load_success", counter);
    add("ratelimit.service.config_load_error", "config_load_error", counter);
    mapping + "- {match: ., match_type: regex, action: drop, name: dropped}\n"
}

async fn ask_five_times(weir: &Weir) {
    for _ in 0..5 {
        code(weir.grpc, request(DOMAIN, &[(ROUTE, ROUTE), (MATCH, MATCH)])).await;
    }
}

/// Returns the value of a series that has at least these labels, as a query selects it.
fn query(page: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    page.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (inner, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let has = |label: &String| inner.split(',').any(|part| part == label);
        labels.iter().all(has).then(|| value.parse().ok())?
    })
}

#[tokio::test]
async fn the_dashboard_of_envoy_gateway_shows_data() {
    let setup = gateway().file("conf.yaml", &gateway_mapping());
    let mapper = setup.path("conf.yaml");
    let weir = setup.env("PROMETHEUS_MAPPER_YAML", mapper).start();
    ask_five_times(&weir).await;
    let page = http::get(weir.http, "/metrics").body;
    let (key1, key2) = (format!("{ROUTE}_{ROUTE}"), format!("{MATCH}_{MATCH}"));
    let rule = [("domain", DOMAIN), ("key1", &key1), ("key2", &key2)];
    // The series that its panels query. Prometheus adds the label app_kubernetes_io_component.
    for (name, wanted) in [
        ("ratelimit_service_rate_limit_total_hits", 5.0),
        ("ratelimit_service_rate_limit_near_limit", 1.0),
        ("ratelimit_service_rate_limit_over_limit", 2.0),
    ] {
        assert_eq!(query(&page, name, &rule), Some(wanted), "{name}: {page}");
    }
    for name in ["process_resident_memory_bytes", "process_virtual_memory_bytes"] {
        assert!(query(&page, name, &[]).is_some_and(|bytes| bytes > 0.0), "{name}: {page}");
    }
    assert_eq!(query(&page, "go_memstats_gc_cpu_fraction", &[]), Some(0.0), "{page}");

    let method = [("grpc_method", "ShouldRateLimit")];
    assert_eq!(query(&page, "ratelimit_service_total_requests", &method), Some(5.0));
    let time = "ratelimit_service_response_time_seconds";
    let bucket = format!("{time}_bucket");
    let infinity = [method[0], ("le", "+Inf")];
    assert_eq!(query(&page, &bucket, &infinity), Some(5.0));
    // Without a scale these are milliseconds.
    let most = query(&page, &bucket, &[method[0], ("le", "0.005")]).unwrap();
    assert_eq!(most, 0.0, "nothing is answered within five microseconds: {page}");
    assert!(!page.contains("ratelimit_redis_pool"), "other names are dropped");
}

#[tokio::test]
async fn the_default_names_are_on_every_page_of_prometheus_own_format() {
    let mut weir = gateway().start();
    ask_five_times(&weir).await;
    let address = weir.until_said("Listening for metrics on '").unwrap();
    let own = address.trim_end_matches('\'').parse().unwrap();
    // As Prometheus asks by default: it prefers a format that these names cannot be written in.
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    for listener in [weir.http, weir.debug, own] {
        let answer = http::get_with(listener, "/metrics", &accept);
        let format = Some("text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(answer.header("content-type"), format);
        let page = answer.body;
        let keys = [("domain", DOMAIN), ("key2", &format!("{MATCH}_{MATCH}"))];
        let hits = query(&page, "ratelimit_service_rate_limit_total_hits", &keys);
        assert_eq!(hits, Some(5.0), "{page}");
        let loaded = query(&page, "ratelimit_service_config_load_success", &[]);
        assert_eq!(loaded, Some(1.0), "{page}");
        // Its rate has the first error.
        assert_eq!(query(&page, "ratelimit_service_config_load_error", &[]), Some(0.0), "{page}");
        let weirs = query(&page, "weir_config_load_success_total", &[]);
        assert_eq!(weirs, Some(1.0), "{page}");
        let method = [("grpc_method", "ShouldRateLimit"), ("le", "10")];
        let time = "ratelimit_service_response_time_seconds_bucket";
        assert_eq!(query(&page, time, &method), Some(5.0), "{page}");
    }
    let only = [("accept", "application/openmetrics-text")];
    let page = http::get_with(weir.http, "/metrics", &only).body;
    assert!(page.ends_with("# EOF\n") && !page.contains("ratelimit_service"), "{page}");
}

#[tokio::test]
async fn without_use_prometheus_there_are_no_names_of_the_reference() {
    let weir = gateway().env("USE_PROMETHEUS", "false").start();
    ask_five_times(&weir).await;
    let page = http::get(weir.http, "/metrics").body;
    assert!(page.contains("weir_rule_hits") && !page.contains("ratelimit_service"), "{page}");
}

#[tokio::test]
async fn a_bad_mapping_file_is_reported_and_the_default_names_stay() {
    let bad = gateway().file("conf.yaml", "mappings: [{match: a}]");
    let bad_path = bad.path("conf.yaml");
    let missing = gateway();
    let missing_path = missing.path("none.yaml");
    // A directory cannot be read.
    let unreadable = gateway().file("directory/conf.yaml", "");
    let unreadable_path = unreadable.path("directory");
    for (setup, path, line) in [
        (bad, bad_path, " WARN cannot use the mapping of metrics: using the default file="),
        (
            unreadable,
            unreadable_path,
            " WARN cannot use the mapping of metrics: using the default file=",
        ),
        (missing, missing_path, " INFO no mapping of metrics: using the default file="),
    ] {
        let mut weir = setup.env("PROMETHEUS_MAPPER_YAML", path).start();
        weir.until_said(line).unwrap();
        ask_five_times(&weir).await;
        let page = http::get(weir.http, "/metrics").body;
        assert!(page.contains("ratelimit_service_rate_limit_total_hits{"), "{page}");
    }
}
