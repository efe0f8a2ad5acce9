//! Every variable the reference reads, and what becomes of it here.

use super::Effect::{ByValue, Ignored, Later, NamesRedis, Redis, Refused, Set, SetText, Warned};
use super::Meaning::{Bytes, Host, LogFormat, LogLevel, Port, Same, Source};
use super::go::Kind;
use super::{About, Variable};

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
// To serve without what was asked for would show traffic that was to be encrypted.
const USE_TLS: super::Effect = Refused(
    "this version serves gRPC without TLS only: take it out, and let a proxy in front of weir end \
     TLS",
);
const TLS: super::Effect =
    Warned("only GRPC_SERVER_USE_TLS=true, which is not supported yet, uses it");
const STATSD: super::Effect = Later("StatsD; read Prometheus metrics at /metrics");
const PROMETHEUS: super::Effect =
    Later("its own Prometheus listener; /metrics of the HTTP and the debug port has the metrics");
const TRACING: super::Effect = Later("tracing");
const USE_MEMCACHED: super::Effect =
    Refused("weir does not count in Memcached: take it out to count in memory");
const MEMCACHED: super::Effect =
    Warned("only BACKEND_TYPE=memcache, which is not supported, uses it");
const SOCKET: About = About::Ignored(
    "the URL tells: host:port is TCP, and what begins with a slash is a Unix socket",
);
const POOL: About = About::Ignored("there is one connection a thread, shared by its requests");
const PIPELINE: About = About::Ignored("what waits while Redis answers goes out together");
const STARTUP: About = About::Ignored(
    "weir listens at once, says not serving until Redis answers, and never gives up",
);
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
    variable("GRPC_SERVER_USE_TLS", Kind::Bool, "false", USE_TLS),
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
        ("memcache", USE_MEMCACHED),
        ("", Ignored("weir counts in memory unless Redis is named")),
    ])),
    variable("EXPIRATION_JITTER_MAX_SECONDS", Kind::INT, "300", Ignored("a key is kept for as long as its state matters, which differs from key to key")),
    variable("LOCAL_CACHE_SIZE_IN_BYTES", Kind::INT, "0", Ignored("denials that are known to hold are always repeated without Redis, as store.deny_locally_for says")),
    variable("CACHE_KEY_PREFIX", Kind::Text, "", SetText("store.redis.key_prefix")),
    variable("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Kind::Bool, "false", Later("for all rules at once; `charge: together` in a rule file charges all descriptors of a request or none")),

    variable("REDIS_SOCKET_TYPE", Kind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", Redis(About::Same("store.redis.topology"))),
    variable("REDIS_URL", Kind::Text, "/var/run/nutcracker/ratelimit.sock", Redis(About::Url("store.redis"))),
    variable("REDIS_POOL_SIZE", Kind::INT, "10", Redis(POOL)),
    variable("REDIS_AUTH", Kind::Text, "", Redis(About::Login("store.redis"))),
    variable("REDIS_TLS", Kind::Bool, "false", Redis(About::Same("store.redis.tls.enabled"))),
    variable("REDIS_TLS_CLIENT_CERT", Kind::Text, "", Redis(About::Same("store.redis.tls.cert"))),
    variable("REDIS_TLS_CLIENT_KEY", Kind::Text, "", Redis(About::Same("store.redis.tls.key"))),
    variable("REDIS_TLS_CACERT", Kind::Text, "", Redis(About::Same("store.redis.tls.ca"))),
    variable("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Kind::Bool, "false", Redis(About::Same("store.redis.tls.skip_hostname_verification"))),
    variable("REDIS_PIPELINE_WINDOW", Kind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PIPELINE_LIMIT", Kind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_PERSECOND", Kind::Bool, "false", Redis(About::PerSecond)),
    variable("REDIS_PERSECOND_SOCKET_TYPE", Kind::Text, "unix", Redis(SOCKET)),
    variable("REDIS_PERSECOND_TYPE", Kind::AnyCase(&["SINGLE", "SENTINEL", "CLUSTER"]), "SINGLE", Redis(About::Same("store.redis.per_second.topology"))),
    variable("REDIS_PERSECOND_URL", Kind::Text, "/var/run/nutcracker/ratelimitpersecond.sock", Redis(About::Url("store.redis.per_second"))),
    variable("REDIS_PERSECOND_POOL_SIZE", Kind::INT, "10", Redis(POOL)),
    variable("REDIS_PERSECOND_AUTH", Kind::Text, "", Redis(About::Login("store.redis.per_second"))),
    variable("REDIS_PERSECOND_TLS", Kind::Bool, "false", Redis(About::Same("store.redis.per_second.tls.enabled"))),
    variable("REDIS_SENTINEL_AUTH", Kind::Text, "", Redis(About::Login("store.redis.sentinel"))),
    variable("REDIS_PERSECOND_SENTINEL_AUTH", Kind::Text, "", Redis(About::Login("store.redis.per_second.sentinel"))),
    variable("REDIS_PERSECOND_PIPELINE_WINDOW", Kind::Duration, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_PIPELINE_LIMIT", Kind::INT, "0", Redis(PIPELINE)),
    variable("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Kind::INT, "1", Redis(PIPELINE)),
    variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Kind::Bool, "false", Redis(About::Later("health that follows Redis after the start"))),
    variable("REDIS_TIMEOUT", Kind::Duration, "10s", Redis(About::Same("store.redis.connect_timeout"))),
    variable("REDIS_PERSECOND_TIMEOUT", Kind::Duration, "10s", Redis(About::Same("store.redis.per_second.connect_timeout"))),
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
