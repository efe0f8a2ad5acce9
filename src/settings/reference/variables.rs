//! Every variable of the reference, and its effect in weir.

use super::Effect::{
    self, ByValue, Defines, Ignored, NamesRedis, NotYet, Redis, Rejected, Set, SetText, Unused,
    UnusedIf,
};
use super::Meaning::{
    AddressIfSet, Bytes, Clamped, Host, IsPositive, ListenHost, ListenOn, LogFormat, LogLevel,
    Port, Same, Source,
};
use super::go::VariableKind;
use super::{OTHERS, RedisEffect, Variable, otel};

const fn variable(
    name: &'static str,
    kind: VariableKind,
    default: &'static str,
    effect: Effect,
) -> Variable {
    Variable { name, kind, default, effect }
}

const LOG_LEVELS: &[&str] =
    &["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"];
const OTLP: Effect = NotYet("values for traces alone: protocol, security and certificates");
const TRACES: Effect = Unused("only TRACING_ENABLED turns traces on and off; they leave by OTLP");
const METRICS: Effect =
    Unused("metrics do not leave by OTLP; the collector's Prometheus receiver can read /metrics");
const TIMEOUT: Effect =
    Defines("the timeout of a batch of spans with its retries, in milliseconds");
const COMPRESSION: Effect = ByValue(&[
    ("gzip", Defines("messages are compressed")),
    ("none", Ignored("it is the default")),
    (OTHERS, Unused("weir can compress by gzip only")),
]);
const SAMPLER: Effect =
    Unused("callers decide about their traces, and TRACING_SAMPLING_RATE about others");
const USE_MEMCACHED: Effect =
    Rejected("weir does not support Memcached: remove it to count in memory");
const MEMCACHED: Effect = Unused("only BACKEND_TYPE=memcache, which is not supported, uses it");
const SOCKET: RedisEffect =
    RedisEffect::Ignored("the URL decides: host:port is TCP, and a path is a Unix socket");
const POOL: RedisEffect =
    RedisEffect::Ignored("each thread has one connection, shared by its requests");
const PIPELINE: RedisEffect =
    RedisEffect::Ignored("commands that wait while Redis answers are sent together");
const READONLY: RedisEffect =
    RedisEffect::Ignored("weir always reconnects when the server has become a replica");
/// Variables of later versions, and misspelled ones.
const UNKNOWN: Effect =
    Unused("weir does not know it: docs/settings.md lists the variables of the reference");
const STARTUP: RedisEffect = RedisEffect::Ignored(
    "weir listens at once, reports not serving until Redis answers, and keeps retrying",
);
const HEALTHY: Effect = Set(Same);

/// The variables, in the order of the document.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    variable("HOST", VariableKind::Text, "0.0.0.0", Set(ListenHost)),
    variable("PORT", VariableKind::PORT, "8080", Set(Port)),
    variable("DEBUG_HOST", VariableKind::Text, "0.0.0.0", Set(ListenHost)),
    variable("DEBUG_PORT", VariableKind::PORT, "6070", Set(Port)),
    variable("GRPC_UDS", VariableKind::Text, "", Set(Same)),
    variable("GRPC_HOST", VariableKind::Text, "0.0.0.0", Set(ListenHost)),
    variable("GRPC_PORT", VariableKind::PORT, "8081", Set(Port)),
    variable("GRPC_MAX_CONNECTION_AGE", VariableKind::Duration, "24h", Set(Same)),
    variable("GRPC_MAX_CONNECTION_AGE_GRACE", VariableKind::Duration, "1h", Set(Same)),
    variable("GRPC_SERVER_USE_TLS", VariableKind::Bool, "false", Set(Same)),
    variable("GRPC_SERVER_TLS_CERT", VariableKind::Text, "", Set(Same)),
    variable("GRPC_SERVER_TLS_KEY", VariableKind::Text, "", Set(Same)),
    variable("GRPC_CLIENT_TLS_CACERT", VariableKind::Text, "", Set(Same)),
    variable("GRPC_CLIENT_TLS_SAN", VariableKind::Text, "", Set(Same)),
    variable("LOG_LEVEL", VariableKind::LogLevels(LOG_LEVELS), "WARN", Set(LogLevel)),
    variable("LOG_FORMAT", VariableKind::Text, "text", Set(LogFormat)),

    variable("CONFIG_TYPE", VariableKind::Word(&["FILE", "GRPC_XDS_SOTW"]), "FILE", Set(Source)),
    variable("FORCE_START_WITHOUT_INITIAL_CONFIG", VariableKind::Bool, "false", Set(Same)),
    variable("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", VariableKind::Bool, "false", HEALTHY),
    variable("CONFIG_GRPC_XDS_NODE_ID", VariableKind::Text, "default", Set(Same)),
    variable("CONFIG_GRPC_XDS_NODE_METADATA", VariableKind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_URL", VariableKind::Text, "localhost:18000", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", VariableKind::Duration, "3s", Ignored("rules.xds.backoff_min and rules.xds.backoff_max set the waits between retries")),
    variable("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", VariableKind::Map, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", VariableKind::Bool, "false", Set(Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", VariableKind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", VariableKind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", VariableKind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_SAN", VariableKind::Text, "", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", VariableKind::Duration, "10s", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_MAX_INTERVAL", VariableKind::Duration, "60s", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", VariableKind::Float, "0.5", Ignored("the reference uses it as the growth factor of its waits, which then do not grow; here each wait is twice as long as the one before")),
    variable("XDS_CLIENT_BACKOFF_JITTER", VariableKind::Bool, "true", Set(Same)),
    variable("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", VariableKind::INT, "", Set(Bytes)),

    variable("RUNTIME_ROOT", VariableKind::Text, super::DEFAULT_RUNTIME_ROOT, Set(Same)),
    variable("RUNTIME_SUBDIRECTORY", VariableKind::Text, "", Set(Same)),
    variable("RUNTIME_APPDIRECTORY", VariableKind::Text, "config", Set(Same)),
    variable("RUNTIME_WATCH_ROOT", VariableKind::Bool, "true", Set(Same)),
    variable("RUNTIME_IGNOREDOTFILES", VariableKind::Bool, "false", Set(Same)),
    variable("MERGE_DOMAIN_CONFIG", VariableKind::Bool, "false", Set(Same)),
    variable("USE_CALENDAR_MONTH_RATE_LIMIT", VariableKind::Bool, "false", Set(Same)),

    variable("LIMIT_RESPONSE_HEADERS_ENABLED", VariableKind::Bool, "false", Set(Same)),
    variable("LIMIT_LIMIT_HEADER", VariableKind::Text, "RateLimit-Limit", Set(Same)),
    variable("LIMIT_REMAINING_HEADER", VariableKind::Text, "RateLimit-Remaining", Set(Same)),
    variable("LIMIT_RESET_HEADER", VariableKind::Text, "RateLimit-Reset", Set(Same)),
    variable("RESPONSE_DYNAMIC_METADATA", VariableKind::Bool, "false", Set(Same)),
    variable("SHADOW_MODE", VariableKind::Bool, "false", Set(Same)),
    variable("QUOTA_MODE", VariableKind::Bool, "false", Set(Same)),
    variable("NEAR_LIMIT_RATIO", VariableKind::Ratio, "0.8", Set(Same)),

    variable("BACKEND_TYPE", VariableKind::Word(&["redis", "memcache", ""]), "redis", ByValue(&[
        ("redis", NamesRedis),
        ("memcache", USE_MEMCACHED),
        ("", Ignored("weir counts in memory unless Redis is configured")),
    ])),
    variable("EXPIRATION_JITTER_MAX_SECONDS", VariableKind::INT, "300", Ignored("a key is kept for as long as its state matters")),
    variable("LOCAL_CACHE_SIZE_IN_BYTES", VariableKind::INT, "0", Set(IsPositive)),
    variable("CACHE_KEY_PREFIX", VariableKind::Text, "", SetText),
    variable("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", VariableKind::Bool, "false", NotYet("for all rules at once; `charge: together` in a rule file charges all descriptors of a request or none")),

    variable("REDIS_SOCKET_TYPE", VariableKind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_TYPE", VariableKind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER", "PROXY"]), "SINGLE", Redis(RedisEffect::Same)),
    variable("REDIS_URL", VariableKind::Text, "/var/run/nutcracker/ratelimit.sock", Redis(RedisEffect::Url)),
    variable("REDIS_POOL_SIZE", VariableKind::INT, "10", Redis(POOL)),
    variable("REDIS_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_AUTH_FILE", VariableKind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS", VariableKind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CLIENT_CERT", VariableKind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CLIENT_KEY", VariableKind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CACERT", VariableKind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", VariableKind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_PIPELINE_WINDOW", VariableKind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PIPELINE_LIMIT", VariableKind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_CLUSTER_PIPELINE_PARALLELISM", VariableKind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_PERSECOND", VariableKind::Bool, "false", Redis(RedisEffect::PerSecond)),
    variable("REDIS_PERSECOND_SOCKET_TYPE", VariableKind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_PERSECOND_TYPE", VariableKind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER", "PROXY"]), "SINGLE", Redis(RedisEffect::Same)),
    variable("REDIS_PERSECOND_URL", VariableKind::Text, "/var/run/nutcracker/ratelimitpersecond.sock", Redis(RedisEffect::Url)),
    variable("REDIS_PERSECOND_POOL_SIZE", VariableKind::INT, "10", Redis(POOL)),
    variable("REDIS_PERSECOND_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_AUTH_FILE", VariableKind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_PERSECOND_TLS", VariableKind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_SENTINEL_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_SENTINEL_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_PIPELINE_WINDOW", VariableKind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_PIPELINE_LIMIT", VariableKind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", VariableKind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", VariableKind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_TIMEOUT", VariableKind::Duration, "10s", Redis(RedisEffect::Same)),
    variable("REDIS_PERSECOND_TIMEOUT", VariableKind::Duration, "10s", Redis(RedisEffect::Same)),
    variable("REDIS_POOL_ON_EMPTY_BEHAVIOR", VariableKind::Text, "WAIT", Redis(POOL)),
    variable("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", VariableKind::Text, "WAIT", Redis(POOL)),
    variable("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", VariableKind::Bool, "false", Redis(READONLY)),
    variable("REDIS_STARTUP_INITIAL_INTERVAL", VariableKind::Duration, "1s", Redis(STARTUP)),
    variable("REDIS_STARTUP_MAX_INTERVAL", VariableKind::Duration, "30s", Redis(STARTUP)),
    variable("REDIS_STARTUP_MAX_ELAPSED_TIME", VariableKind::Duration, "0", Redis(STARTUP)),

    variable("MEMCACHE_HOST_PORT", VariableKind::List, "", MEMCACHED),
    variable("MEMCACHE_MAX_IDLE_CONNS", VariableKind::INT, "2", MEMCACHED),
    variable("MEMCACHE_SRV", VariableKind::Text, "", MEMCACHED),
    variable("MEMCACHE_SRV_REFRESH", VariableKind::Duration, "0", MEMCACHED),
    variable("MEMCACHE_TLS", VariableKind::Bool, "false", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_CERT", VariableKind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_KEY", VariableKind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CACERT", VariableKind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", VariableKind::Bool, "false", MEMCACHED),

    variable("DISABLE_STATS", VariableKind::Bool, "false", Set(Same)),
    variable("USE_STATSD", VariableKind::Bool, "true", Set(Same)),
    variable("STATSD_HOST", VariableKind::Text, "localhost", Set(Host)),
    variable("STATSD_PORT", VariableKind::PORT, "8125", Set(Port)),
    variable("STATSD_PROTOCOL", VariableKind::Word(&["tcp", "udp"]), "tcp", Set(Same)),
    variable("STATS_FLUSH_INTERVAL", VariableKind::Duration, "10s", Set(Same)),
    variable("EXTRA_TAGS", VariableKind::Map, "", Set(Same)),
    variable("USE_DOG_STATSD", VariableKind::Bool, "false", Set(Same)),
    variable("USE_DOG_STATSD_MOGRIFIERS", VariableKind::List, "", Set(Same)),
    variable("USE_PROMETHEUS", VariableKind::Bool, "false", Set(ListenOn(":9090"))),
    variable("PROMETHEUS_ADDR", VariableKind::Text, ":9090", Set(AddressIfSet)),
    variable("PROMETHEUS_PATH", VariableKind::Text, "/metrics", Set(Same)),
    variable("PROMETHEUS_MAPPER_YAML", VariableKind::Text, "", Set(Same)),
    variable("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", VariableKind::Bool, "false", Set(Same)),

    variable("TRACING_ENABLED", VariableKind::Bool, "false", Set(Same)),
    variable("OTEL_SERVICE_NAME", VariableKind::Text, "", SetText),
    variable("TRACING_SERVICE_NAME", VariableKind::Text, "RateLimit", Set(Same)),
    variable("TRACING_SERVICE_NAMESPACE", VariableKind::Text, "", Set(Same)),
    variable("TRACING_SERVICE_INSTANCE_ID", VariableKind::Text, "", Set(Same)),
    variable("TRACING_EXPORTER_PROTOCOL", VariableKind::Word(&["http", "grpc"]), "http", Set(Same)),
    variable("TRACING_SAMPLING_RATE", VariableKind::Float, "1", Set(Clamped)),
    variable("OTEL_EXPORTER_OTLP_ENDPOINT", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_HEADERS", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_TIMEOUT", VariableKind::Text, "10000", TIMEOUT),
    variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", VariableKind::Text, "", TIMEOUT),
    variable("OTEL_EXPORTER_OTLP_CERTIFICATE", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_CLIENT_KEY", VariableKind::Text, "", SetText),
    variable("OTEL_EXPORTER_OTLP_PROTOCOL", VariableKind::Text, "", UnusedIf(otel::asks_for_other_protocol, "TRACING_EXPORTER_PROTOCOL sets the protocol, as in the reference")),
    variable("OTEL_EXPORTER_OTLP_INSECURE", VariableKind::Text, "", UnusedIf(otel::asks_for_other_security, "the URL decides: https is TLS")),
    variable("OTEL_EXPORTER_OTLP_COMPRESSION", VariableKind::Text, "", COMPRESSION),
    variable("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", VariableKind::Text, "", COMPRESSION),
    variable("OTEL_RESOURCE_ATTRIBUTES", VariableKind::Text, "", Defines("attributes of spans; settings and variables that name one win")),
    variable("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", VariableKind::Text, "128", Defines("how many attributes a span has")),
    variable("OTEL_SPAN_EVENT_COUNT_LIMIT", VariableKind::Text, "128", Ignored("spans have no events")),
    variable("OTEL_SPAN_LINK_COUNT_LIMIT", VariableKind::Text, "128", Ignored("spans have no links")),

    variable("OTEL_SDK_DISABLED", VariableKind::Text, "", ByValue(&[("true", TRACES)])),
    variable("OTEL_TRACES_EXPORTER", VariableKind::Text, "", ByValue(&[("otlp", Ignored("it is the only exporter")), (OTHERS, TRACES)])),
    variable("OTEL_METRICS_EXPORTER", VariableKind::Text, "", METRICS),
    variable("OTEL_PROPAGATORS", VariableKind::Text, "", UnusedIf(otel::asks_for_other_propagator, "weir reads traceparent and B3 headers, whichever a request has")),
    variable("OTEL_TRACES_SAMPLER", VariableKind::Text, "", SAMPLER),
    variable("OTEL_TRACES_SAMPLER_ARG", VariableKind::Text, "", SAMPLER),

    variable("GOMAXPROCS", VariableKind::Text, "", Ignored("it configures Go; weir has the setting runtime.threads")),
    variable("GOGC", VariableKind::Text, "", Ignored("it configures Go; weir has no garbage collector")),
];

/// Variables known by the prefix of their names; the first that matches counts.
#[rustfmt::skip]
pub const FAMILIES: &[Variable] = &[
    variable("DOG_STATSD_MOGRIFIER_", VariableKind::Text, "", Defines("`…_PATTERN`, `…_NAME` and `…_TAGS` of each name in `metrics.dogstatsd.mogrifiers`")),
    variable("OTEL_EXPORTER_OTLP_METRICS_", VariableKind::Text, "", METRICS),
    variable("OTEL_METRIC_", VariableKind::Text, "", METRICS),
    variable("OTEL_EXPORTER_OTLP_", VariableKind::Text, "", OTLP),
    variable("OTEL_BSP_", VariableKind::Text, "", NotYet("the batches of spans: up to 512, at the latest after a second, of a queue of 4,096")),
    variable("OTEL_", VariableKind::Text, "", Unused("weir reads only the variables that its settings list")),
    variable("GRPC_SERVER_TLS_CA_CERT", VariableKind::Text, "", Ignored("Envoy Gateway sets it, and the reference does not read it")),
    variable("CONFIG_GRPC_", VariableKind::Text, "", UNKNOWN),
    variable("GRPC_CLIENT_", VariableKind::Text, "", UNKNOWN),
    variable("GRPC_MAX_", VariableKind::Text, "", UNKNOWN),
    variable("GRPC_SERVER_", VariableKind::Text, "", UNKNOWN),
    variable("LIMIT_", VariableKind::Text, "", UNKNOWN),
    variable("MEMCACHE_", VariableKind::Text, "", UNKNOWN),
    variable("PROMETHEUS_", VariableKind::Text, "", UNKNOWN),
    variable("REDIS_", VariableKind::Text, "", UNKNOWN),
    variable("RUNTIME_", VariableKind::Text, "", UNKNOWN),
    variable("STATSD_", VariableKind::Text, "", UNKNOWN),
    variable("TRACING_", VariableKind::Text, "", UNKNOWN),
    variable("USE_", VariableKind::Text, "", UNKNOWN),
    variable("XDS_CLIENT_", VariableKind::Text, "", UNKNOWN),
];
