//! Declares the settings `metrics`, `tracing`, `otlp` and `log`: what weir reports about itself, and to whom.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::ClientFileSettings;
use crate::settings::format::{Address, Format, FormatKind, Int, Ratio, Secret};
use crate::settings::group::{choices, group};
use weir_telemetry::log::{LogFormat, LogLevels};
use weir_telemetry::{otlp, statsd};

group! {
    /// Metrics.
    MetricsSettings {
        /// The fraction of a limit's burst, or else of its number, above which hits count as near the limit.
        near_limit_ratio: Ratio = "0.8";
        /// Series of each metric. All others are one, with the labels `other`.
        max_series: Int<usize, 1, 1_000_000> = "10_000";
        /// Whether nothing is sent to StatsD and DogStatsD, whatever enables them. DISABLE_STATS makes
        /// USE_PROMETHEUS false too; /metrics of the HTTP and the debug listener stays.
        disable_push: bool = "false";
        /// The time between two reports to StatsD or DogStatsD.
        flush_interval: Duration = "10s";
        /// Tags of all metrics that have the names of envoyproxy/ratelimit, each as name:value.
        tags: Vec<String> = "";
        /// Whether dots in keys and values of descriptors are underscores in the label `rule` of metrics
        /// and in the names of envoyproxy/ratelimit.
        replace_dots: bool = "false";
        // The reference's local cache is off by default, so that its users do not expect them; and one of its
        // mappings counts them twice.
        /// Whether the names of envoyproxy/ratelimit include over_limit_with_local_cache: hits denied
        /// without the store.
        local_cache: bool = "false";
        group prometheus: PrometheusSettings;
        group statsd: StatsdSettings;
        group dogstatsd: DogStatsdSettings;
    }
}

group! {
    /// The listener for Prometheus.
    PrometheusSettings {
        /// Address of a listener for the metrics alone; empty: none. USE_PROMETHEUS alone sets :9090.
        address: Option<Address> = "";
        /// The path of the metrics on that listener.
        path: String = "/metrics";
        /// Whether all pages have the metrics by the names of envoyproxy/ratelimit too. USE_PROMETHEUS sets
        /// it. The pages are then in OpenMetrics only for clients that accept nothing else, and without
        /// these names.
        reference_names: bool = "false";
        /// A file that maps the statistics of envoyproxy/ratelimit to metrics and labels, in the language of
        /// statsd_exporter; none: the names that envoyproxy/ratelimit has by default.
        mapper: Option<PathBuf> = "";
        /// Whether ratelimit_service_response_time_seconds is in milliseconds, without a mapper.
        response_time_as_milliseconds: bool = "false";
    }
}

group! {
    /// StatsD.
    StatsdSettings {
        /// Whether metrics are sent to StatsD, by the names of envoyproxy/ratelimit. STATSD_HOST or
        /// STATSD_PORT enables it too, unless USE_DOG_STATSD is true.
        enabled: bool = "false";
        /// Address of the server.
        address: Address = "localhost:8125";
        /// The protocol of the connection.
        protocol: statsd::StatsdProtocol = "tcp";
        /// Whether `#`, `,`, `;`, `[` and `]` in names become `_`, as `:` and `|` do. At servers such as
        /// statsd_exporter they start tags; envoyproxy/ratelimit sends them as they are.
        replace_tag_characters: bool = "false";
    }
}

group! {
    /// DogStatsD.
    DogStatsdSettings {
        /// Whether metrics are sent to DogStatsD at metrics.statsd.address, over UDP.
        enabled: bool = "false";
        /// Names of rules that replace names of metrics. The variables DOG_STATSD_MOGRIFIER_…_PATTERN,
        /// _NAME and _TAGS define each; the first one whose pattern matches applies.
        mogrifiers: Vec<String> = "";
    }
}

group! {
    /// Traces.
    TracingSettings {
        /// Whether requests are traced: spans go to an OpenTelemetry collector by OTLP.
        enabled: bool = "false";
        /// The protocol of OTLP.
        protocol: otlp::OtlpProtocol = "http";
        /// URL of the collector; https is TLS. Empty: http://localhost:4318/v1/traces for HTTP,
        /// http://localhost:4317 for gRPC. To the URL of OTEL_EXPORTER_OTLP_ENDPOINT, /v1/traces is added for HTTP.
        endpoint: Option<String> = "";
        /// The fraction of traces that are recorded, of those that start at weir. Callers decide about
        /// theirs.
        sampling: Ratio = "1";
        /// The attribute `service.name`. If it, the namespace or the instance is not set, that of
        /// OTEL_RESOURCE_ATTRIBUTES is used.
        service_name: String = "RateLimit";
        /// The attribute `service.namespace`.
        service_namespace: String = "";
        /// The attribute `service.instance.id`; empty: a random one.
        instance_id: String = "";
    }
}

group! {
    /// The OpenTelemetry collector.
    OtlpSettings {
        flat files: ClientFileSettings;
        /// Request headers: `name=value` each, values percent-encoded.
        headers: Vec<Secret> = "";
    }
}

impl Format for LogLevels {
    type Value = LogLevels;
    const KIND: FormatKind = FormatKind::LogLevels;

    fn parse(text: &str) -> Option<LogLevels> {
        text.parse().ok()
    }
}

choices!(LogFormat, statsd::StatsdProtocol, otlp::OtlpProtocol);

group! {
    /// The log.
    LogSettings {
        /// The least severe level that is logged: off, error, warn, info, debug or trace. At debug
        /// every decision is logged. Libraries only log errors, unless they are named: info,h2=debug.
        level: LogLevels = "info";
        /// The format of log lines; reference-json has the field names and levels of
        /// envoyproxy/ratelimit.
        format: LogFormat = "text";
        /// Log up to this many denied requests per second, at level info; 0: none.
        denials: Int<u32, 0, 1_000> = "0";
    }
}
