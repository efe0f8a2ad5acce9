//! The mapping of statistics to Prometheus names without a mapping file: that of envoyproxy/ratelimit (the reference).

use regex::Regex;

use super::glob;
use super::mapping::{
    DEFAULT_BUCKETS, DEFAULT_QUANTILES, Mapper, Mapping, Observer, StatisticType,
};

/// The counters of a rule that are mapped; `over_limit_with_local_cache` is not.
const RULE_COUNTERS: [&str; 5] =
    ["near_limit", "over_limit", "total_hits", "within_limit", "shadow_mode"];

/// Returns the mapping. Response times are in seconds, or in milliseconds under the same name.
pub(crate) fn builtin(response_time_as_milliseconds: bool) -> Mapper {
    let summary = Observer::Summary(DEFAULT_QUANTILES.into());
    let histogram = Observer::Histogram(DEFAULT_BUCKETS.into());
    let mapping = |regex: Option<Regex>, name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        regex.map(|regex| Mapping {
            is_glob: regex.as_str().ends_with('$'),
            regex,
            statistic_type: Some(StatisticType::Counter),
            drop: false,
            name: format!("ratelimit_service_{name}"),
            labels: labels.collect(),
            help: "".into(),
            scale: 1.0,
            observer: summary.clone(),
        })
    };
    let mut mappings = Vec::new();
    for counter in RULE_COUNTERS {
        let name = format!("rate_limit_{counter}");
        let one_key = glob(&format!("ratelimit.service.rate_limit.*.*.{counter}"));
        mappings.extend(mapping(one_key, &name, &[("domain", "$1"), ("key1", "$2")]));
        // Not anchored, as in the reference: keys after the second are dropped, and so are the differences
        // between rules that have the first two keys in common. It matches
        // `over_limit_with_local_cache` too, so that these hits count twice.
        let more_keys = format!(
            r"ratelimit\.service\.rate_limit\.([^.]*)\.([^.]*)\.([^.]*)(?:\..*)?\.{counter}"
        );
        let labels = [("domain", "$1"), ("key1", "$2"), ("key2", "$3")];
        mappings.extend(mapping(Regex::new(&more_keys).ok(), &name, &labels));
    }
    let errors = glob("ratelimit.service.call.should_rate_limit.*");
    mappings.extend(mapping(errors, "should_rate_limit_error", &[("err_type", "$1")]));
    let method = [("grpc_method", "$1")];
    let requests = glob("ratelimit_server.*.total_requests");
    mappings.extend(mapping(requests, "total_requests", &method));
    let time = glob("ratelimit_server.*.response_time");
    mappings.extend(mapping(time, "response_time_seconds", &method).map(|mapping| Mapping {
        statistic_type: None,
        scale: if response_time_as_milliseconds { 1.0 } else { 0.001 },
        observer: histogram,
        ..mapping
    }));
    for name in ["config_load_success", "config_load_error"] {
        mappings.extend(mapping(glob(&format!("ratelimit.service.{name}")), name, &[]));
    }
    Mapper::new(mappings, summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::mapping::Series;

    fn map(name: &str) -> Series {
        builtin(false).map(name, StatisticType::Counter).unwrap()
    }

    /// Returns a series as Prometheus shows it.
    fn shown(name: &str) -> String {
        let series = map(name);
        let labels = series.labels.iter().map(|(name, value)| format!("{name}=\"{value}\""));
        format!("{}{{{}}}", series.name, labels.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn all_mappings_are_valid() {
        assert_eq!(builtin(false).mappings.len(), 2 * RULE_COUNTERS.len() + 5);
        assert_eq!(builtin(false).mappings.iter().filter(|it| it.is_glob).count(), 10);
    }

    #[test]
    fn rules_are_mapped_to_labels_by_their_first_two_keys() {
        for (name, series) in [
            (
                "ratelimit.service.rate_limit.basic.key1_one.total_hits",
                "ratelimit_service_rate_limit_total_hits{domain=\"basic\",key1=\"key1_one\"}",
            ),
            (
                "ratelimit.service.rate_limit.basic.key1_one.key2.shadow_mode",
                "ratelimit_service_rate_limit_shadow_mode\
                 {domain=\"basic\",key1=\"key1_one\",key2=\"key2\"}",
            ),
            (
                "ratelimit.service.rate_limit.basic.a.b.c.d.near_limit",
                "ratelimit_service_rate_limit_near_limit{domain=\"basic\",key1=\"a\",key2=\"b\"}",
            ),
            (
                "ratelimit.service.rate_limit.basic.a.b.over_limit_with_local_cache",
                "ratelimit_service_rate_limit_over_limit{domain=\"basic\",key1=\"a\",key2=\"b\"}",
            ),
            (
                "ratelimit.service.rate_limit.basic.a.over_limit_with_local_cache",
                "ratelimit_service_rate_limit_basic_a_over_limit_with_local_cache{}",
            ),
            (
                "ratelimit.service.rate_limit.nobody.domain_not_found",
                "ratelimit_service_rate_limit_nobody_domain_not_found{}",
            ),
            // A dot in a value is a level.
            (
                "ratelimit.service.rate_limit.a.host_example.com.within_limit",
                "ratelimit_service_rate_limit_within_limit\
                 {domain=\"a\",key1=\"host_example\",key2=\"com\"}",
            ),
        ] {
            assert_eq!(shown(name), series, "{name}");
        }
    }

    #[test]
    fn everything_else_has_the_names_of_the_reference() {
        for (name, series) in [
            (
                "ratelimit.service.call.should_rate_limit.redis_error",
                "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"}",
            ),
            (
                "ratelimit_server.ShouldRateLimit.total_requests",
                "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}",
            ),
            ("ratelimit.service.config_load_success", "ratelimit_service_config_load_success{}"),
            ("ratelimit.service.global_shadow_mode", "ratelimit_service_global_shadow_mode{}"),
            ("ratelimit.redis_pool.cx_active", "ratelimit_redis_pool_cx_active{}"),
        ] {
            assert_eq!(shown(name), series, "{name}");
        }
    }

    #[test]
    fn response_times_are_in_seconds_unless_milliseconds_are_asked_for() {
        let time = "ratelimit_server.ShouldRateLimit.response_time";
        let series = builtin(false).map(time, StatisticType::Timer).unwrap();
        assert_eq!(series.name, "ratelimit_service_response_time_seconds");
        assert_eq!(series.observer, Observer::Histogram(DEFAULT_BUCKETS.into()));
        assert_eq!(series.scale, 0.001);
        assert_eq!(builtin(true).map(time, StatisticType::Timer).unwrap().scale, 1.0);
    }

    #[test]
    fn timers_without_a_mapping_are_summaries() {
        let series = builtin(false).map("other.time", StatisticType::Timer).unwrap();
        assert_eq!(series.name, "other_time");
        assert_eq!(series.observer, Observer::Summary(DEFAULT_QUANTILES.into()));
    }
}
