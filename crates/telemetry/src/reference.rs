//! Translates weir's metrics to the statistics of envoyproxy/ratelimit (the reference), with its dotted names. StatsD
//! sends them as they are; the pages of Prometheus show them by the names that a mapper gives them.

mod histogram;
pub mod page;
mod sanitize;

use sanitize::sanitize;
use weir_common::metrics::{MetricFamily, MetricSink, OTHER, SampleValue, UNKNOWN_METHOD};

/// Receives statistics: counters, gauges, and histograms of durations in seconds. A name may come more than once: its
/// values are to be added.
pub(crate) trait StatisticSink {
    fn statistic(&mut self, name: &str, value: SampleValue<'_>);
}

#[derive(Clone, Debug, Default)]
pub struct ReferenceOptions {
    /// What all names end with.
    pub tags: Tags,
    /// Whether there is `over_limit_with_local_cache`. The reference counts it only if its local cache is enabled.
    pub local_cache: bool,
}

/// Passes on the metrics that the reference has, by its names.
pub(crate) struct ReferenceSink<'a> {
    options: &'a ReferenceOptions,
    sink: &'a mut dyn StatisticSink,
    family: Option<Family>,
}

/// Methods that the reference does not count: streams, and those that it lacks.
const OTHER_METHODS: [&str; 8] =
    ["Watch", "List", "Reserve", "Settle", "Cancel", "ServerReflectionInfo", UNKNOWN_METHOD, OTHER];

/// A family of metrics that the reference has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// A statistic of the service.
    Service(&'static str),
    /// Errors, by the outcome of requests.
    Requests,
    /// A statistic of a rule, by domain and rule.
    Rule(&'static str),
    DomainNotFound,
    /// A statistic of a gRPC method.
    Method(&'static str),
    /// A statistic of the connections to Redis, by Redis.
    Redis(&'static str),
}

impl Family {
    fn of(metric: &str, options: &ReferenceOptions) -> Option<Family> {
        Some(match metric {
            "rule_hits" => Family::Rule("total_hits"),
            "rule_over_limit" => Family::Rule("over_limit"),
            "rule_near_limit" => Family::Rule("near_limit"),
            "rule_within_limit" => Family::Rule("within_limit"),
            "rule_shadow_mode" => Family::Rule("shadow_mode"),
            "rule_over_limit_with_local_cache" if options.local_cache => {
                Family::Rule("over_limit_with_local_cache")
            }
            "domain_not_found" => Family::DomainNotFound,
            "global_shadow_mode" => Family::Service("global_shadow_mode"),
            "config_load_success" => Family::Service("config_load_success"),
            "config_load_error" => Family::Service("config_load_error"),
            "requests" => Family::Requests,
            "grpc_requests" => Family::Method("total_requests"),
            "request_duration_seconds" => Family::Method("response_time"),
            "redis_connections" => Family::Redis("cx_active"),
            "redis_connection_recoveries" => Family::Redis("cx_total"),
            "redis_connection_failures" => Family::Redis("cx_local_close"),
            _ => return None,
        })
    }
}

impl<'a> ReferenceSink<'a> {
    pub fn new(
        options: &'a ReferenceOptions,
        sink: &'a mut dyn StatisticSink,
    ) -> ReferenceSink<'a> {
        ReferenceSink { options, sink, family: None }
    }

    /// Returns the name of a sample; none if the reference has none for it.
    fn name(&self, family: Family, labels: &[(&str, &str)]) -> Option<String> {
        let label =
            |wanted| labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let mut name = match family {
            Family::Service(statistic) => format!("ratelimit.service.{statistic}"),
            Family::Requests => {
                let statistic = match label("outcome")? {
                    "invalid" => "service_error",
                    "store_error" => "redis_error",
                    _ => return None,
                };
                format!("ratelimit.service.call.should_rate_limit.{statistic}")
            }
            Family::Rule(statistic) => {
                let (domain, rule) = (label("domain")?, label("rule")?);
                format!("ratelimit.service.rate_limit.{domain}.{rule}.{statistic}")
            }
            Family::DomainNotFound => {
                format!("ratelimit.service.rate_limit.{}.domain_not_found", label("domain")?)
            }
            Family::Method(statistic) => {
                let method = label("method").filter(|method| !OTHER_METHODS.contains(method))?;
                format!("ratelimit_server.{method}.{statistic}")
            }
            Family::Redis(statistic) => {
                let pool = match label("redis") {
                    Some("per_second") => "redis_per_second_pool",
                    _ => "redis_pool",
                };
                format!("ratelimit.{pool}.{statistic}")
            }
        };
        sanitize(&mut name);
        name.push_str(self.options.tags.suffix());
        Some(name)
    }
}

impl MetricSink for ReferenceSink<'_> {
    fn family(&mut self, family: MetricFamily) {
        self.family = Family::of(family.name, self.options);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        if let Some(family) = self.family
            && let Some(name) = self.name(family, labels)
        {
            self.sink.statistic(&name, value);
        }
    }
}

/// Tags of all statistics, as EXTRA_TAGS names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The tags, sorted by name.
    tags: Vec<(String, String)>,
    suffix: String,
}

impl Tags {
    /// Reads tags as `name:value`; a tag without a colon has an empty value.
    pub fn new(tags: &[impl AsRef<str>]) -> Tags {
        let parts = tags.iter().map(|tag| {
            let (name, value) = tag.as_ref().split_once(':').unwrap_or((tag.as_ref(), ""));
            (name.to_owned(), value.to_owned())
        });
        let mut tags: Vec<_> = parts.collect();
        tags.sort();
        let serialized = tags.iter().map(|(name, value)| {
            let value = value.replace(['.', ':', '|'], "_");
            format!(".__{name}={value}")
        });
        let suffix = serialized.collect();
        Tags { tags, suffix }
    }

    /// The end of all names: `.__name=value` for each tag.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// The names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Names(Vec<String>);

    impl StatisticSink for Names {
        fn statistic(&mut self, name: &str, _: SampleValue<'_>) {
            self.0.push(name.to_owned());
        }
    }

    fn name(
        options: &ReferenceOptions,
        metric: &'static str,
        labels: &[(&str, &str)],
    ) -> Option<String> {
        let mut names = Names::default();
        let mut sink = ReferenceSink::new(options, &mut names);
        sink.family(MetricFamily::counter(metric, "", &[]));
        sink.sample(labels, SampleValue::Counter(1));
        names.0.pop()
    }

    #[test]
    fn metrics_have_the_names_of_the_reference() {
        let options = ReferenceOptions { local_cache: true, ..ReferenceOptions::default() };
        let rule = [("domain", "shop"), ("rule", "key1_a:b.ip_10.0.0.1")];
        let prefix = "ratelimit.service.rate_limit.shop.key1_a_b.ip_10_0_0_1";
        for (metric, statistic) in [
            ("rule_hits", "total_hits"),
            ("rule_over_limit", "over_limit"),
            ("rule_near_limit", "near_limit"),
            ("rule_within_limit", "within_limit"),
            ("rule_over_limit_with_local_cache", "over_limit_with_local_cache"),
            ("rule_shadow_mode", "shadow_mode"),
        ] {
            assert_eq!(name(&options, metric, &rule), Some(format!("{prefix}.{statistic}")));
        }
        for (metric, label, wanted) in [
            (
                "domain_not_found",
                ("domain", "x"),
                "ratelimit.service.rate_limit.x.domain_not_found",
            ),
            ("global_shadow_mode", ("", ""), "ratelimit.service.global_shadow_mode"),
            ("config_load_error", ("", ""), "ratelimit.service.config_load_error"),
            (
                "requests",
                ("outcome", "invalid"),
                "ratelimit.service.call.should_rate_limit.service_error",
            ),
            (
                "requests",
                ("outcome", "store_error"),
                "ratelimit.service.call.should_rate_limit.redis_error",
            ),
            ("grpc_requests", ("method", "Check"), "ratelimit_server.Check.total_requests"),
            (
                "request_duration_seconds",
                ("method", "ShouldRateLimit"),
                "ratelimit_server.ShouldRateLimit.response_time",
            ),
            ("redis_connections", ("", ""), "ratelimit.redis_pool.cx_active"),
            (
                "redis_connection_failures",
                ("redis", "per_second"),
                "ratelimit.redis_per_second_pool.cx_local_close",
            ),
        ] {
            assert_eq!(name(&options, metric, &[label]).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn metrics_that_the_reference_lacks_are_skipped() {
        let options = ReferenceOptions::default();
        assert_eq!(name(&options, "requests", &[("outcome", "ok")]), None);
        assert_eq!(name(&options, "store_evictions", &[]), None);
        for method in ["Watch", "Settle", UNKNOWN_METHOD] {
            assert_eq!(name(&options, "grpc_requests", &[("method", method)]), None);
        }
        let rule = [("domain", "d"), ("rule", "r")];
        assert_eq!(name(&options, "rule_over_limit_with_local_cache", &rule), None);
    }

    #[test]
    fn tags_end_all_names() {
        let tags = Tags::new(&["foo:b.a|r", "a:b"]);
        let options = ReferenceOptions { tags, local_cache: false };
        let name = name(&options, "config_load_success", &[]);
        let wanted = "ratelimit.service.config_load_success.__a=b.__foo=b_a_r";
        assert_eq!(name.as_deref(), Some(wanted));
    }
}
