//! The environment variables of envoyproxy/ratelimit that have an effect in weir: type, default, and effect of each.

use super::Meaning::{
    AddressIfSet, Bytes, Clamped, Host, IsPositive, ListenHost, ListenOn, LogFormat, LogLevel,
    Port, Same, Source,
};
use super::VariableEffect::{Backend, Defines, Redis, Set, SetText};
use super::go::VariableKind;
use super::{RedisEffect, Variable, VariableEffect};

const fn variable(
    name: &'static str,
    kind: VariableKind,
    default: &'static str,
    effect: VariableEffect,
) -> Variable {
    Variable { name, kind, default, effect }
}

pub fn variable_of(setting: &str) -> Option<&'static str> {
    let sets = |variable: &&Variable| matches!(variable.effect, Set(name, _) if name == setting);
    VARIABLES.iter().find(sets).map(|variable| variable.name)
}

/// Returns the variables that decide which rule files are read, and how.
pub fn about_rules(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    let is_about_files = |name: &str| name.starts_with("rules.") && !name.starts_with("rules.xds.");
    let sets =
        |variable: &Variable| matches!(variable.effect, Set(name, _) if is_about_files(name));
    env.retain(|(name, _)| {
        let variable = VARIABLES.iter().find(|variable| variable.name == name);
        name.starts_with("WEIR__RULES__") || variable.is_some_and(sets)
    });
    env
}

const LOG_LEVELS: &[&str] =
    &["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"];
const TIMEOUT: VariableEffect =
    Defines("the timeout of a batch of spans with its retries, in milliseconds");
const COMPRESSION: VariableEffect = Defines("`gzip` compresses messages");

/// The variables, in the order of the document.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    variable("HOST", VariableKind::Text, "0.0.0.0", Set("http.address", ListenHost)),
    variable("PORT", VariableKind::PORT, "8080", Set("http.address", Port)),
    variable("DEBUG_HOST", VariableKind::Text, "0.0.0.0", Set("debug.address", ListenHost)),
    variable("DEBUG_PORT", VariableKind::PORT, "6070", Set("debug.address", Port)),
    variable("GRPC_UDS", VariableKind::Text, "", Set("grpc.uds", Same)),
    variable("GRPC_HOST", VariableKind::Text, "0.0.0.0", Set("grpc.address", ListenHost)),
    variable("GRPC_PORT", VariableKind::PORT, "8081", Set("grpc.address", Port)),
    variable("GRPC_MAX_CONNECTION_AGE", VariableKind::Duration, "24h", Set("grpc.max_connection_age", Same)),
    variable("GRPC_MAX_CONNECTION_AGE_GRACE", VariableKind::Duration, "1h", Set("grpc.max_connection_age_grace", Same)),
    variable("GRPC_SERVER_USE_TLS", VariableKind::Bool, "false", Set("grpc.tls.enabled", Same)),
    variable("GRPC_SERVER_TLS_CERT", VariableKind::Text, "", Set("grpc.tls.cert", Same)),
    variable("GRPC_SERVER_TLS_KEY", VariableKind::Text, "", Set("grpc.tls.key", Same)),
    variable("GRPC_CLIENT_TLS_CACERT", VariableKind::Text, "", Set("grpc.tls.client_ca", Same)),
    variable("GRPC_CLIENT_TLS_SAN", VariableKind::Text, "", Set("grpc.tls.client_sans", Same)),
    variable("LOG_LEVEL", VariableKind::LogLevels(LOG_LEVELS), "WARN", Set("log.level", LogLevel)),
    variable("LOG_FORMAT", VariableKind::Text, "text", Set("log.format", LogFormat)),

    variable("CONFIG_TYPE", VariableKind::Word(&["FILE", "GRPC_XDS_SOTW"]), "FILE", Set("rules.source", Source)),
    variable("FORCE_START_WITHOUT_INITIAL_CONFIG", VariableKind::Bool, "false", Set("health.force_start", Same)),
    variable("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", VariableKind::Bool, "false", Set("health.require_domain", Same)),
    variable("CONFIG_GRPC_XDS_NODE_ID", VariableKind::Text, "default", Set("rules.xds.node_id", Same)),
    variable("CONFIG_GRPC_XDS_NODE_METADATA", VariableKind::Text, "", Set("rules.xds.node_metadata", Same)),
    variable("CONFIG_GRPC_XDS_SERVER_URL", VariableKind::Text, "localhost:18000", Set("rules.xds.url", Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", VariableKind::Map, "", Set("rules.xds.headers", Same)),
    variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", VariableKind::Bool, "false", Set("rules.xds.tls.enabled", Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", VariableKind::Text, "", Set("rules.xds.tls.cert", Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", VariableKind::Text, "", Set("rules.xds.tls.key", Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", VariableKind::Text, "", Set("rules.xds.tls.ca", Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_SAN", VariableKind::Text, "", Set("rules.xds.tls.server_name", Same)),
    variable("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", VariableKind::Duration, "10s", Set("rules.xds.backoff_min", Same)),
    variable("XDS_CLIENT_BACKOFF_MAX_INTERVAL", VariableKind::Duration, "60s", Set("rules.xds.backoff_max", Same)),
    variable("XDS_CLIENT_BACKOFF_JITTER", VariableKind::Bool, "true", Set("rules.xds.backoff_jitter", Same)),
    variable("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", VariableKind::INT, "", Set("rules.xds.max_message", Bytes)),

    variable("RUNTIME_ROOT", VariableKind::Text, super::DEFAULT_RUNTIME_ROOT, Set("rules.runtime.root", Same)),
    variable("RUNTIME_SUBDIRECTORY", VariableKind::Text, "", Set("rules.runtime.subdirectory", Same)),
    variable("RUNTIME_APPDIRECTORY", VariableKind::Text, "config", Set("rules.runtime.app_directory", Same)),
    variable("RUNTIME_WATCH_ROOT", VariableKind::Bool, "true", Set("rules.runtime.watch_root", Same)),
    variable("RUNTIME_IGNOREDOTFILES", VariableKind::Bool, "false", Set("rules.ignore_dot_files", Same)),
    variable("MERGE_DOMAIN_CONFIG", VariableKind::Bool, "false", Set("rules.merge_domains", Same)),
    variable("USE_CALENDAR_MONTH_RATE_LIMIT", VariableKind::Bool, "false", Set("rules.calendar_months", Same)),

    variable("LIMIT_RESPONSE_HEADERS_ENABLED", VariableKind::Bool, "false", Set("response.headers", Same)),
    variable("LIMIT_LIMIT_HEADER", VariableKind::Text, "RateLimit-Limit", Set("response.limit_header", Same)),
    variable("LIMIT_REMAINING_HEADER", VariableKind::Text, "RateLimit-Remaining", Set("response.remaining_header", Same)),
    variable("LIMIT_RESET_HEADER", VariableKind::Text, "RateLimit-Reset", Set("response.reset_header", Same)),
    variable("RESPONSE_DYNAMIC_METADATA", VariableKind::Bool, "false", Set("response.dynamic_metadata", Same)),
    variable("SHADOW_MODE", VariableKind::Bool, "false", Set("response.shadow_mode", Same)),
    variable("QUOTA_MODE", VariableKind::Bool, "false", Set("response.quota_mode", Same)),
    variable("NEAR_LIMIT_RATIO", VariableKind::Ratio, "0.8", Set("metrics.near_limit_ratio", Same)),

    variable("BACKEND_TYPE", VariableKind::Word(&["redis", "memcache", ""]), "redis", Backend),
    variable("LOCAL_CACHE_SIZE_IN_BYTES", VariableKind::INT, "0", Set("metrics.local_cache", IsPositive)),
    variable("CACHE_KEY_PREFIX", VariableKind::Text, "", SetText("store.redis.key_prefix")),

    variable("REDIS_TYPE", VariableKind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER", "PROXY"]), "SINGLE", Redis(RedisEffect::Same("store.redis.topology"))),
    variable("REDIS_URL", VariableKind::Text, "/var/run/nutcracker/ratelimit.sock", Redis(RedisEffect::Url("store.redis.url", "store.redis.sentinel.master_name"))),
    variable("REDIS_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login("store.redis.username", "store.redis.password"))),
    variable("REDIS_AUTH_FILE", VariableKind::Text, "", Redis(RedisEffect::Same("store.redis.password_file"))),
    variable("REDIS_TLS", VariableKind::Bool, "false", Redis(RedisEffect::Same("store.redis.tls.enabled"))),
    variable("REDIS_TLS_CLIENT_CERT", VariableKind::Text, "", Redis(RedisEffect::Same("store.redis.tls.cert"))),
    variable("REDIS_TLS_CLIENT_KEY", VariableKind::Text, "", Redis(RedisEffect::Same("store.redis.tls.key"))),
    variable("REDIS_TLS_CACERT", VariableKind::Text, "", Redis(RedisEffect::Same("store.redis.tls.ca"))),
    variable("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", VariableKind::Bool, "false", Redis(RedisEffect::Same("store.redis.tls.skip_hostname_verification"))),
    variable("REDIS_PERSECOND", VariableKind::Bool, "false", Redis(RedisEffect::PerSecond)),
    variable("REDIS_PERSECOND_TYPE", VariableKind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER", "PROXY"]), "SINGLE", Redis(RedisEffect::Same("store.redis.per_second.topology"))),
    variable("REDIS_PERSECOND_URL", VariableKind::Text, "/var/run/nutcracker/ratelimitpersecond.sock", Redis(RedisEffect::Url("store.redis.per_second.url", "store.redis.per_second.sentinel.master_name"))),
    variable("REDIS_PERSECOND_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login("store.redis.per_second.username", "store.redis.per_second.password"))),
    variable("REDIS_PERSECOND_AUTH_FILE", VariableKind::Text, "", Redis(RedisEffect::Same("store.redis.per_second.password_file"))),
    variable("REDIS_PERSECOND_TLS", VariableKind::Bool, "false", Redis(RedisEffect::Same("store.redis.per_second.tls.enabled"))),
    variable("REDIS_SENTINEL_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login("store.redis.sentinel.username", "store.redis.sentinel.password"))),
    variable("REDIS_PERSECOND_SENTINEL_AUTH", VariableKind::Text, "", Redis(RedisEffect::Login("store.redis.per_second.sentinel.username", "store.redis.per_second.sentinel.password"))),
    variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", VariableKind::Bool, "false", Redis(RedisEffect::Same("health.follow_store"))),
    variable("REDIS_TIMEOUT", VariableKind::Duration, "10s", Redis(RedisEffect::Same("store.redis.connect_timeout"))),
    variable("REDIS_PERSECOND_TIMEOUT", VariableKind::Duration, "10s", Redis(RedisEffect::Same("store.redis.per_second.connect_timeout"))),

    variable("DISABLE_STATS", VariableKind::Bool, "false", Set("metrics.disable_push", Same)),
    variable("USE_STATSD", VariableKind::Bool, "true", Set("metrics.statsd.enabled", Same)),
    variable("STATSD_HOST", VariableKind::Text, "localhost", Set("metrics.statsd.address", Host)),
    variable("STATSD_PORT", VariableKind::PORT, "8125", Set("metrics.statsd.address", Port)),
    variable("STATSD_PROTOCOL", VariableKind::Word(&["tcp", "udp"]), "tcp", Set("metrics.statsd.protocol", Same)),
    variable("STATS_FLUSH_INTERVAL", VariableKind::Duration, "10s", Set("metrics.flush_interval", Same)),
    variable("EXTRA_TAGS", VariableKind::Map, "", Set("metrics.tags", Same)),
    variable("SANITIZE_DESCRIPTOR_METRIC_DOTS", VariableKind::Bool, "false", Set("metrics.replace_dots", Same)),
    variable("USE_DOG_STATSD", VariableKind::Bool, "false", Set("metrics.dogstatsd.enabled", Same)),
    variable("USE_DOG_STATSD_MOGRIFIERS", VariableKind::List, "", Set("metrics.dogstatsd.mogrifiers", Same)),
    variable("USE_PROMETHEUS", VariableKind::Bool, "false", Set("metrics.prometheus.address", ListenOn(":9090"))),
    variable("PROMETHEUS_ADDR", VariableKind::Text, ":9090", Set("metrics.prometheus.address", AddressIfSet)),
    variable("PROMETHEUS_PATH", VariableKind::Text, "/metrics", Set("metrics.prometheus.path", Same)),
    variable("PROMETHEUS_MAPPER_YAML", VariableKind::Text, "", Set("metrics.prometheus.mapper", Same)),
    variable("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", VariableKind::Bool, "false", Set("metrics.prometheus.response_time_as_milliseconds", Same)),

    variable("TRACING_ENABLED", VariableKind::Bool, "false", Set("tracing.enabled", Same)),
    variable("OTEL_SERVICE_NAME", VariableKind::Text, "", SetText("tracing.service_name")),
    variable("TRACING_SERVICE_NAME", VariableKind::Text, "RateLimit", Set("tracing.service_name", Same)),
    variable("TRACING_SERVICE_NAMESPACE", VariableKind::Text, "", Set("tracing.service_namespace", Same)),
    variable("TRACING_SERVICE_INSTANCE_ID", VariableKind::Text, "", Set("tracing.instance_id", Same)),
    variable("TRACING_EXPORTER_PROTOCOL", VariableKind::Word(&["http", "grpc"]), "http", Set("tracing.protocol", Same)),
    variable("TRACING_SAMPLING_RATE", VariableKind::Float, "1", Set("tracing.sampling", Clamped)),
    variable("OTEL_EXPORTER_OTLP_ENDPOINT", VariableKind::Text, "", SetText("tracing.endpoint")),
    variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", VariableKind::Text, "", SetText("tracing.endpoint")),
    variable("OTEL_EXPORTER_OTLP_HEADERS", VariableKind::Text, "", SetText("otlp.headers")),
    variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS", VariableKind::Text, "", SetText("otlp.headers")),
    variable("OTEL_EXPORTER_OTLP_TIMEOUT", VariableKind::Text, "10000", TIMEOUT),
    variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", VariableKind::Text, "", TIMEOUT),
    variable("OTEL_EXPORTER_OTLP_CERTIFICATE", VariableKind::Text, "", SetText("otlp.ca")),
    variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", VariableKind::Text, "", SetText("otlp.cert")),
    variable("OTEL_EXPORTER_OTLP_CLIENT_KEY", VariableKind::Text, "", SetText("otlp.key")),
    variable("OTEL_EXPORTER_OTLP_COMPRESSION", VariableKind::Text, "", COMPRESSION),
    variable("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", VariableKind::Text, "", COMPRESSION),
    variable("OTEL_RESOURCE_ATTRIBUTES", VariableKind::Text, "", Defines("attributes of spans; settings and variables that name one win")),
    variable("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", VariableKind::Text, "128", Defines("how many attributes a span has")),
];
