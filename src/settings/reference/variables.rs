//! Every variable of the reference, and its effect in weir.

use super::Effect::{
    self, ByValue, Ignored, NamesRedis, NotYet, Redis, Refused, Set, SetText, Unused,
};
use super::Meaning::{Bytes, Host, LogFormat, LogLevel, Port, Same, Source};
use super::go::Kind;
use super::{RedisEffect, Variable};

const fn variable(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: Effect,
) -> Variable {
    Variable { name, kind, default, effect }
}

const LOG_LEVELS: &[&str] =
    &["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"];
// Ignoring it would send unencrypted what must be encrypted.
const USE_TLS: Effect = Refused(
    "this version serves gRPC without TLS only: remove it, and let a proxy in front of weir terminate \
     TLS",
);
const TLS: Effect = Unused("only GRPC_SERVER_USE_TLS=true, which is not supported yet, uses it");
const STATSD: Effect = NotYet("StatsD; read Prometheus metrics at /metrics");
const PROMETHEUS: Effect = NotYet(
    "its own Prometheus listener; the metrics are at /metrics of the HTTP and the debug port",
);
const TRACING: Effect = NotYet("tracing");
const USE_MEMCACHED: Effect =
    Refused("weir does not support Memcached: remove it to count in memory");
const MEMCACHED: Effect = Unused("only BACKEND_TYPE=memcache, which is not supported, uses it");
const SOCKET: RedisEffect =
    RedisEffect::Ignored("the URL decides: host:port is TCP, and a path is a Unix socket");
const POOL: RedisEffect =
    RedisEffect::Ignored("each thread has one connection, shared by its requests");
const PIPELINE: RedisEffect =
    RedisEffect::Ignored("commands that wait while Redis answers are sent together");
const STARTUP: RedisEffect = RedisEffect::Ignored(
    "weir listens at once, reports not serving until Redis answers, and keeps retrying",
);
const HEALTHY: Effect = Set(Same);

/// The variables, in the order of the document.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    variable("HOST", Kind::Text, "0.0.0.0", Set(Host)),
    variable("PORT", Kind::PORT, "8080", Set(Port)),
    variable("DEBUG_HOST", Kind::Text, "0.0.0.0", Set(Host)),
    variable("DEBUG_PORT", Kind::PORT, "6070", Set(Port)),
    // A port is open to more clients than the socket that was asked for.
    variable("GRPC_UDS", Kind::Text, "", Refused("this version serves gRPC over TCP only: remove it and set GRPC_HOST and GRPC_PORT")),
    variable("GRPC_HOST", Kind::Text, "0.0.0.0", Set(Host)),
    variable("GRPC_PORT", Kind::PORT, "8081", Set(Port)),
    variable("GRPC_MAX_CONNECTION_AGE", Kind::Duration, "24h", NotYet("closing old connections")),
    variable("GRPC_MAX_CONNECTION_AGE_GRACE", Kind::Duration, "1h", NotYet("closing old connections")),
    variable("GRPC_SERVER_USE_TLS", Kind::Bool, "false", USE_TLS),
    variable("GRPC_SERVER_TLS_CERT", Kind::Text, "", TLS),
    variable("GRPC_SERVER_TLS_KEY", Kind::Text, "", TLS),
    variable("GRPC_CLIENT_TLS_CACERT", Kind::Text, "", TLS),
    variable("GRPC_CLIENT_TLS_SAN", Kind::Text, "", TLS),
    variable("LOG_LEVEL", Kind::AnyCase(LOG_LEVELS), "WARN", Set(LogLevel)),
    variable("LOG_FORMAT", Kind::Text, "text", Set(LogFormat)),

    variable("CONFIG_TYPE", Kind::Word(&["FILE", "GRPC_XDS_SOTW"]), "FILE", Set(Source)),
    variable("FORCE_START_WITHOUT_INITIAL_CONFIG", Kind::Bool, "false", Set(Same)),
    variable("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Kind::Bool, "false", HEALTHY),
    variable("CONFIG_GRPC_XDS_NODE_ID", Kind::Text, "default", Set(Same)),
    variable("CONFIG_GRPC_XDS_NODE_METADATA", Kind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_URL", Kind::Text, "localhost:18000", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Kind::Duration, "3s", Ignored("rules.xds.backoff_min and rules.xds.backoff_max set the waits between retries")),
    variable("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Kind::Map, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", Kind::Bool, "false", Set(Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Kind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Kind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Kind::Text, "", Set(Same)),
    variable("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Kind::Text, "", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Kind::Duration, "10s", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Kind::Duration, "60s", Set(Same)),
    variable("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Kind::Float, "0.5", Ignored("the reference uses it as the growth factor of its waits, which then do not grow; here each wait is twice as long as the one before")),
    variable("XDS_CLIENT_BACKOFF_JITTER", Kind::Bool, "true", Set(Same)),
    variable("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Kind::INT, "", Set(Bytes)),

    variable("RUNTIME_ROOT", Kind::Text, super::DEFAULT_RUNTIME_ROOT, Set(Same)),
    variable("RUNTIME_SUBDIRECTORY", Kind::Text, "", Set(Same)),
    variable("RUNTIME_APPDIRECTORY", Kind::Text, "config", Set(Same)),
    variable("RUNTIME_WATCH_ROOT", Kind::Bool, "true", Set(Same)),
    variable("RUNTIME_IGNOREDOTFILES", Kind::Bool, "false", Set(Same)),
    variable("MERGE_DOMAIN_CONFIG", Kind::Bool, "false", Set(Same)),

    variable("LIMIT_RESPONSE_HEADERS_ENABLED", Kind::Bool, "false", Set(Same)),
    variable("LIMIT_LIMIT_HEADER", Kind::Text, "RateLimit-Limit", Set(Same)),
    variable("LIMIT_REMAINING_HEADER", Kind::Text, "RateLimit-Remaining", Set(Same)),
    variable("LIMIT_RESET_HEADER", Kind::Text, "RateLimit-Reset", Set(Same)),
    variable("RESPONSE_DYNAMIC_METADATA", Kind::Bool, "false", Set(Same)),
    variable("SHADOW_MODE", Kind::Bool, "false", Set(Same)),
    variable("QUOTA_MODE", Kind::Bool, "false", Set(Same)),
    variable("NEAR_LIMIT_RATIO", Kind::Ratio, "0.8", Set(Same)),

    variable("BACKEND_TYPE", Kind::Word(&["redis", "memcache", ""]), "redis", ByValue(&[
        ("redis", NamesRedis),
        ("memcache", USE_MEMCACHED),
        ("", Ignored("weir counts in memory unless Redis is configured")),
    ])),
    variable("EXPIRATION_JITTER_MAX_SECONDS", Kind::INT, "300", Ignored("a key is kept for as long as its state matters")),
    variable("LOCAL_CACHE_SIZE_IN_BYTES", Kind::INT, "0", Ignored("known denials are always repeated without Redis, for store.deny_locally_for")),
    variable("CACHE_KEY_PREFIX", Kind::Text, "", SetText),
    variable("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Kind::Bool, "false", NotYet("for all rules at once; `charge: together` in a rule file charges all descriptors of a request or none")),

    variable("REDIS_SOCKET_TYPE", Kind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", Redis(RedisEffect::Same)),
    variable("REDIS_URL", Kind::Text, "/var/run/nutcracker/ratelimit.sock", Redis(RedisEffect::Url)),
    variable("REDIS_POOL_SIZE", Kind::INT, "10", Redis(POOL)),
    variable("REDIS_AUTH", Kind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_TLS", Kind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CLIENT_CERT", Kind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CLIENT_KEY", Kind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_CACERT", Kind::Text, "", Redis(RedisEffect::Same)),
    variable("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Kind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_PIPELINE_WINDOW", Kind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PIPELINE_LIMIT", Kind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_PERSECOND", Kind::Bool, "false", Redis(RedisEffect::PerSecond)),
    variable("REDIS_PERSECOND_SOCKET_TYPE", Kind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_PERSECOND_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", Redis(RedisEffect::Same)),
    variable("REDIS_PERSECOND_URL", Kind::Text, "/var/run/nutcracker/ratelimitpersecond.sock", Redis(RedisEffect::Url)),
    variable("REDIS_PERSECOND_POOL_SIZE", Kind::INT, "10", Redis(POOL)),
    variable("REDIS_PERSECOND_AUTH", Kind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_TLS", Kind::Bool, "false", Redis(RedisEffect::Same)),
    variable("REDIS_SENTINEL_AUTH", Kind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_SENTINEL_AUTH", Kind::Text, "", Redis(RedisEffect::Login)),
    variable("REDIS_PERSECOND_PIPELINE_WINDOW", Kind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_PIPELINE_LIMIT", Kind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Kind::Bool, "false", Redis(RedisEffect::NotYet("health that follows Redis after the start"))),
    variable("REDIS_TIMEOUT", Kind::Duration, "10s", Redis(RedisEffect::Same)),
    variable("REDIS_PERSECOND_TIMEOUT", Kind::Duration, "10s", Redis(RedisEffect::Same)),
    variable("REDIS_POOL_ON_EMPTY_BEHAVIOR", Kind::Text, "WAIT", Redis(POOL)),
    variable("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Kind::Text, "WAIT", Redis(POOL)),
    variable("REDIS_STARTUP_INITIAL_INTERVAL", Kind::Duration, "1s", Redis(STARTUP)),
    variable("REDIS_STARTUP_MAX_INTERVAL", Kind::Duration, "30s", Redis(STARTUP)),
    variable("REDIS_STARTUP_MAX_ELAPSED_TIME", Kind::Duration, "0", Redis(STARTUP)),

    variable("MEMCACHE_HOST_PORT", Kind::List, "", MEMCACHED),
    variable("MEMCACHE_MAX_IDLE_CONNS", Kind::INT, "2", MEMCACHED),
    variable("MEMCACHE_SRV", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_SRV_REFRESH", Kind::Duration, "0", MEMCACHED),
    variable("MEMCACHE_TLS", Kind::Bool, "false", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_CERT", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CLIENT_KEY", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_CACERT", Kind::Text, "", MEMCACHED),
    variable("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Kind::Bool, "false", MEMCACHED),

    variable("DISABLE_STATS", Kind::Bool, "false", Ignored("weir sends no metrics; /metrics stays available")),
    variable("USE_STATSD", Kind::Bool, "true", STATSD),
    variable("STATSD_HOST", Kind::Text, "localhost", STATSD),
    variable("STATSD_PORT", Kind::PORT, "8125", STATSD),
    variable("STATSD_PROTOCOL", Kind::Word(&["tcp", "udp"]), "tcp", STATSD),
    variable("STATS_FLUSH_INTERVAL", Kind::Duration, "10s", STATSD),
    variable("EXTRA_TAGS", Kind::Map, "", NotYet("tags on metrics")),
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

    variable("GOMAXPROCS", Kind::Text, "", Ignored("it configures Go; weir has the setting runtime.threads")),
    variable("GOGC", Kind::Text, "", Ignored("it configures Go; weir has no garbage collector")),
];

/// Variables known by the prefix of their names.
pub const FAMILIES: &[Variable] = &[
    variable("DOG_STATSD_MOGRIFIER_", Kind::Text, "", STATSD),
    variable("OTEL_EXPORTER_OTLP_", Kind::Text, "", TRACING),
];
