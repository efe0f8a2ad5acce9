//! Every variable the reference reads, and what becomes of it here.

use super::Effect::{ByValue, Ignored, Later, NamesRedis, Refused, Set};
use super::Meaning::{Bytes, Host, LogFormat, LogLevel, Port, Same, Source};
use super::Variable;
use super::go::Kind;

const fn variable(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: super::Effect,
) -> Variable {
    Variable { name, kind, default, effect }
}

const LOG_LEVELS: &[&str] =
    &["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"];
const TLS: super::Effect = Later("TLS");
const STATSD: super::Effect = Later("StatsD; read Prometheus metrics at /metrics");
const PROMETHEUS: super::Effect =
    Later("its own Prometheus listener; /metrics of the HTTP and the debug port has the metrics");
const TRACING: super::Effect = Later("tracing");
const MEMCACHED: super::Effect =
    Refused("weir does not count in Memcached: take it out to count in memory");
const HEALTHY: super::Effect = Set(Same("health.require_domain"));

/// The variables, in the order of the document.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    variable("HOST", Kind::Text, "0.0.0.0", Set(Host("http.address"))),
    variable("PORT", Kind::PORT, "8080", Set(Port("http.address"))),
    variable("DEBUG_HOST", Kind::Text, "0.0.0.0", Set(Host("debug.address"))),
    variable("DEBUG_PORT", Kind::PORT, "6070", Set(Port("debug.address"))),
    // Where a socket only some may open was meant, a port open to all would be worse than nothing.
    variable("GRPC_UDS", Kind::Text, "", Refused("this version serves gRPC over TCP only: take it out and set GRPC_HOST and GRPC_PORT")),
    variable("GRPC_HOST", Kind::Text, "0.0.0.0", Set(Host("grpc.address"))),
    variable("GRPC_PORT", Kind::PORT, "8081", Set(Port("grpc.address"))),
    variable("GRPC_MAX_CONNECTION_AGE", Kind::Duration, "24h", Later("ending old connections")),
    variable("GRPC_MAX_CONNECTION_AGE_GRACE", Kind::Duration, "1h", Later("ending old connections")),
    variable("GRPC_SERVER_USE_TLS", Kind::Bool, "false", TLS),
    variable("GRPC_SERVER_TLS_CERT", Kind::Text, "", TLS),
    variable("GRPC_SERVER_TLS_KEY", Kind::Text, "", TLS),
    variable("GRPC_CLIENT_TLS_CACERT", Kind::Text, "", TLS),
    variable("GRPC_CLIENT_TLS_SAN", Kind::Text, "", TLS),
    variable("LOG_LEVEL", Kind::AnyCase(LOG_LEVELS), "WARN", Set(LogLevel)),
    variable("LOG_FORMAT", Kind::Text, "text", Set(LogFormat)),

    variable("CONFIG_TYPE", Kind::Word(&["FILE", "GRPC_XDS_SOTW"]), "FILE", Set(Source)),
    variable("FORCE_START_WITHOUT_INITIAL_CONFIG", Kind::Bool, "false", Set(Same("health.force_start"))),
    variable("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Kind::Bool, "false", HEALTHY),
    variable("CONFIG_GRPC_XDS_NODE_ID", Kind::Text, "default", Set(Same("rules.xds.node_id"))),
    variable("CONFIG_GRPC_XDS_NODE_METADATA", Kind::Text, "", Set(Same("rules.xds.node_metadata"))),
    variable("CONFIG_GRPC_XDS_SERVER_URL", Kind::Text, "localhost:18000", Set(Same("rules.xds.url"))),
    variable("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Kind::Duration, "3s", Ignored("the server is called again as rules.xds.backoff_min and rules.xds.backoff_max say")),
    variable("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Kind::Map, "", Set(Same("rules.xds.headers"))),
    variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", Kind::Bool, "false", Set(Same("rules.xds.tls.enabled"))),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Kind::Text, "", Set(Same("rules.xds.tls.cert"))),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Kind::Text, "", Set(Same("rules.xds.tls.key"))),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Kind::Text, "", Set(Same("rules.xds.tls.ca"))),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Kind::Text, "", Set(Same("rules.xds.tls.server_name"))),
    variable("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Kind::Duration, "10s", Set(Same("rules.xds.backoff_min"))),
    variable("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Kind::Duration, "60s", Set(Same("rules.xds.backoff_max"))),
    variable("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Kind::Float, "0.5", Ignored("the reference takes it for the growth of its waits, which then do not grow; here each wait is twice as long as the one before")),
    variable("XDS_CLIENT_BACKOFF_JITTER", Kind::Bool, "true", Set(Same("rules.xds.backoff_jitter"))),
    variable("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Kind::INT, "", Set(Bytes("rules.xds.max_message"))),

    variable("RUNTIME_ROOT", Kind::Text, super::DEFAULT_RUNTIME_ROOT, Set(Same("rules.runtime.root"))),
    variable("RUNTIME_SUBDIRECTORY", Kind::Text, "", Set(Same("rules.runtime.subdirectory"))),
    variable("RUNTIME_APPDIRECTORY", Kind::Text, "config", Set(Same("rules.runtime.app_directory"))),
    variable("RUNTIME_WATCH_ROOT", Kind::Bool, "true", Set(Same("rules.runtime.watch_root"))),
    variable("RUNTIME_IGNOREDOTFILES", Kind::Bool, "false", Set(Same("rules.ignore_dot_files"))),
    variable("MERGE_DOMAIN_CONFIG", Kind::Bool, "false", Set(Same("rules.merge_domains"))),

    variable("LIMIT_RESPONSE_HEADERS_ENABLED", Kind::Bool, "false", Set(Same("response.headers"))),
    variable("LIMIT_LIMIT_HEADER", Kind::Text, "RateLimit-Limit", Set(Same("response.limit_header"))),
    variable("LIMIT_REMAINING_HEADER", Kind::Text, "RateLimit-Remaining", Set(Same("response.remaining_header"))),
    variable("LIMIT_RESET_HEADER", Kind::Text, "RateLimit-Reset", Set(Same("response.reset_header"))),
    variable("RESPONSE_DYNAMIC_METADATA", Kind::Bool, "false", Set(Same("response.dynamic_metadata"))),
    variable("SHADOW_MODE", Kind::Bool, "false", Set(Same("response.shadow_mode"))),
    variable("QUOTA_MODE", Kind::Bool, "false", Set(Same("response.quota_mode"))),
    variable("NEAR_LIMIT_RATIO", Kind::Ratio, "0.8", Set(Same("metrics.near_limit_ratio"))),

    variable("BACKEND_TYPE", Kind::Word(&["redis", "memcache", ""]), "redis", ByValue(&[
        ("redis", NamesRedis),
        ("memcache", MEMCACHED),
        ("", Ignored("weir counts in memory unless Redis is named")),
    ])),
    variable("EXPIRATION_JITTER_MAX_SECONDS", Kind::INT, "300", Ignored("in memory no load comes of keys that end together")),
    variable("LOCAL_CACHE_SIZE_IN_BYTES", Kind::INT, "0", Ignored("in memory there is no store to spare")),
    variable("CACHE_KEY_PREFIX", Kind::Text, "", Ignored("keys in memory are shared with nobody")),
    variable("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Kind::Bool, "false", Later("not counting hits over a limit for all rules at once")),

    variable("REDIS_SOCKET_TYPE", Kind::Text, "unix", NamesRedis),
    variable("REDIS_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", NamesRedis),
    variable("REDIS_URL", Kind::Text, "/var/run/nutcracker/ratelimit.sock", NamesRedis),
    variable("REDIS_POOL_SIZE", Kind::INT, "10", NamesRedis),
    variable("REDIS_AUTH", Kind::Text, "", NamesRedis),
    variable("REDIS_TLS", Kind::Bool, "false", NamesRedis),
    variable("REDIS_TLS_CLIENT_CERT", Kind::Text, "", NamesRedis),
    variable("REDIS_TLS_CLIENT_KEY", Kind::Text, "", NamesRedis),
    variable("REDIS_TLS_CACERT", Kind::Text, "", NamesRedis),
    variable("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Kind::Bool, "false", NamesRedis),
    variable("REDIS_PIPELINE_WINDOW", Kind::Duration, "0", NamesRedis),
    variable("REDIS_PIPELINE_LIMIT", Kind::INT, "0", NamesRedis),
    variable("REDIS_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", NamesRedis),
    variable("REDIS_PERSECOND", Kind::Bool, "false", NamesRedis),
    variable("REDIS_PERSECOND_SOCKET_TYPE", Kind::Text, "unix", NamesRedis),
    variable("REDIS_PERSECOND_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", NamesRedis),
    variable("REDIS_PERSECOND_URL", Kind::Text, "/var/run/nutcracker/ratelimitpersecond.sock", NamesRedis),
    variable("REDIS_PERSECOND_POOL_SIZE", Kind::INT, "10", NamesRedis),
    variable("REDIS_PERSECOND_AUTH", Kind::Text, "", NamesRedis),
    variable("REDIS_PERSECOND_TLS", Kind::Bool, "false", NamesRedis),
    variable("REDIS_SENTINEL_AUTH", Kind::Text, "", NamesRedis),
    variable("REDIS_PERSECOND_SENTINEL_AUTH", Kind::Text, "", NamesRedis),
    variable("REDIS_PERSECOND_PIPELINE_WINDOW", Kind::Duration, "0", NamesRedis),
    variable("REDIS_PERSECOND_PIPELINE_LIMIT", Kind::INT, "0", NamesRedis),
    variable("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", NamesRedis),
    variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Kind::Bool, "false", NamesRedis),
    variable("REDIS_TIMEOUT", Kind::Duration, "10s", NamesRedis),
    variable("REDIS_PERSECOND_TIMEOUT", Kind::Duration, "10s", NamesRedis),
    variable("REDIS_POOL_ON_EMPTY_BEHAVIOR", Kind::Text, "WAIT", NamesRedis),
    variable("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Kind::Text, "WAIT", NamesRedis),
    variable("REDIS_STARTUP_INITIAL_INTERVAL", Kind::Duration, "1s", NamesRedis),
    variable("REDIS_STARTUP_MAX_INTERVAL", Kind::Duration, "30s", NamesRedis),
    variable("REDIS_STARTUP_MAX_ELAPSED_TIME", Kind::Duration, "0", NamesRedis),

    variable("MEMCACHE_HOST_PORT", Kind::List, "", MEMCACHED),
    variable("MEMCACHE_MAX_IDLE_CONNS", Kind::INT, "2", MEMCACHED),
    variable("MEMCACHE_SRV", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_SRV_REFRESH", Kind::Duration, "0", MEMCACHED),
    variable("MEMCACHE_TLS", Kind::Bool, "false", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_CERT", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_KEY", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CACERT", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Kind::Bool, "false", MEMCACHED),

    variable("DISABLE_STATS", Kind::Bool, "false", Ignored("nothing is sent anywhere; /metrics stays there to be read")),
    variable("USE_STATSD", Kind::Bool, "true", STATSD),
    variable("STATSD_HOST", Kind::Text, "localhost", STATSD),
    variable("STATSD_PORT", Kind::PORT, "8125", STATSD),
    variable("STATSD_PROTOCOL", Kind::Word(&["tcp", "udp"]), "tcp", STATSD),
    variable("STATS_FLUSH_INTERVAL", Kind::Duration, "10s", STATSD),
    variable("EXTRA_TAGS", Kind::Map, "", Later("tags on metrics")),
    variable("USE_DOG_STATSD", Kind::Bool, "false", STATSD),
    variable("USE_DOG_STATSD_MOGRIFIERS", Kind::List, "", STATSD),
    variable("USE_PROMETHEUS", Kind::Bool, "false", PROMETHEUS),
    variable("PROMETHEUS_ADDR", Kind::Text, ":9090", PROMETHEUS),
    variable("PROMETHEUS_PATH", Kind::Text, "/metrics", PROMETHEUS),
    variable("PROMETHEUS_MAPPER_YAML", Kind::Text, "", PROMETHEUS),
    variable("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Kind::Bool, "false", PROMETHEUS),

    variable("TRACING_ENABLED", Kind::Bool, "false", TRACING),
    variable("TRACING_SERVICE_NAME", Kind::Text, "RateLimit", TRACING),
    variable("TRACING_SERVICE_NAMESPACE", Kind::Text, "", TRACING),
    variable("TRACING_SERVICE_INSTANCE_ID", Kind::Text, "", TRACING),
    variable("TRACING_EXPORTER_PROTOCOL", Kind::Word(&["http", "grpc"]), "http", TRACING),
    variable("TRACING_SAMPLING_RATE", Kind::Float, "1", TRACING),

    variable("GOMAXPROCS", Kind::Text, "", Ignored("Go's own; the setting runtime.threads is weir's")),
    variable("GOGC", Kind::Text, "", Ignored("Go's own; weir has no garbage to collect")),
];

/// Variables known by how their names begin.
pub const FAMILIES: &[(&str, super::Effect)] =
    &[("DOG_STATSD_MOGRIFIER_", STATSD), ("OTEL_EXPORTER_OTLP_", TRACING)];
