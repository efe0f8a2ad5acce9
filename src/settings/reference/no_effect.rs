//! The environment variables of envoyproxy/ratelimit that have no effect in weir, each with the reason.

use std::collections::BTreeMap;

use super::go;
use super::variables::VARIABLES;
use crate::settings::table::Settings;
use weir_telemetry::otlp::OtlpProtocol;

/// Variables that have no effect, whatever their text.
#[derive(Debug)]
pub struct NoEffect {
    /// The names. One that ends in `*` stands for all longer names that no list has.
    pub names: &'static [&'static str],
    pub warning: Warning,
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Warning {
    /// Never: weir does what it asks for, or has no use for it.
    Never,
    Always,
    /// If the text asks for something else than what weir does with these settings.
    If(fn(&str, &Settings) -> bool),
}

use Warning::{Always, If, Never};

/// The first that matches counts.
#[rustfmt::skip]
pub const NO_EFFECT: &[NoEffect] = &[
    NoEffect { names: &["REDIS_SOCKET_TYPE", "REDIS_PERSECOND_SOCKET_TYPE"], warning: Never, reason: "the URL decides: host:port is TCP, and a path is a Unix socket" },
    NoEffect { names: &["REDIS_POOL_SIZE", "REDIS_PERSECOND_POOL_SIZE", "REDIS_POOL_ON_EMPTY_BEHAVIOR", "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR"], warning: Never, reason: "each thread has one connection, shared by its requests" },
    NoEffect { names: &["REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT", "REDIS_CLUSTER_PIPELINE_PARALLELISM", "REDIS_PERSECOND_PIPELINE_WINDOW", "REDIS_PERSECOND_PIPELINE_LIMIT", "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM"], warning: Never, reason: "commands that wait while Redis answers are sent together" },
    NoEffect { names: &["REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR"], warning: Never, reason: "weir always reconnects when the server has become a replica" },
    NoEffect { names: &["REDIS_STARTUP_INITIAL_INTERVAL", "REDIS_STARTUP_MAX_INTERVAL", "REDIS_STARTUP_MAX_ELAPSED_TIME"], warning: Never, reason: "weir listens at once, reports not serving until Redis answers, and keeps retrying" },
    NoEffect { names: &["EXPIRATION_JITTER_MAX_SECONDS"], warning: Never, reason: "a key is kept for as long as its state matters" },
    NoEffect { names: &["CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"], warning: Never, reason: "rules.xds.backoff_min and rules.xds.backoff_max set the waits between retries" },
    NoEffect { names: &["XDS_CLIENT_BACKOFF_RANDOM_FACTOR"], warning: Never, reason: "each wait is twice as long as the one before" },
    NoEffect { names: &["GRPC_SERVER_TLS_CA_CERT"], warning: Never, reason: "Envoy Gateway sets it, and the reference does not read it" },
    NoEffect { names: &["OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"], warning: Never, reason: "spans have no events and no links" },
    NoEffect { names: &["GOMAXPROCS", "GOGC"], warning: Never, reason: "they configure Go; weir has the setting runtime.threads, and no garbage collector" },
    NoEffect { names: &["ENABLE_NEGATIVE_HITS"], warning: Always, reason: "grpc.allow_negative_hits allows clients to refund hits, and is on by default" },
    NoEffect { names: &["MAX_SLEEPING_ROUTINES"], warning: Always, reason: "weir never delays an answer: it reports how long the client should wait" },
    NoEffect { names: &["MAX_CONCURRENT_REQUESTS", "REQUEST_TIMEOUT"], warning: Always, reason: "the deadline of the caller bounds a request, and clients.max_buffered the memory for all of them" },
    NoEffect { names: &["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"], warning: If(is_on), reason: "`charge: together` in a rule file charges all descriptors of a request or none" },
    NoEffect { names: &["MEMCACHE_HOST_PORT", "MEMCACHE_MAX_IDLE_CONNS", "MEMCACHE_SRV", "MEMCACHE_SRV_REFRESH", "MEMCACHE_TLS", "MEMCACHE_TLS_CLIENT_CERT", "MEMCACHE_TLS_CLIENT_KEY", "MEMCACHE_TLS_CACERT", "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION"], warning: If(is_on), reason: "only BACKEND_TYPE=memcache, which is not supported, uses it" },
    NoEffect { names: &["OTEL_SDK_DISABLED"], warning: If(|text, _| text.eq_ignore_ascii_case("true")), reason: "only TRACING_ENABLED turns traces on and off" },
    NoEffect { names: &["OTEL_TRACES_EXPORTER"], warning: If(|text, _| !text.eq_ignore_ascii_case("otlp")), reason: "traces leave by OTLP, if TRACING_ENABLED is true" },
    NoEffect { names: &["OTEL_EXPORTER_OTLP_PROTOCOL"], warning: If(asks_for_other_protocol), reason: "TRACING_EXPORTER_PROTOCOL sets the protocol, as in the reference" },
    NoEffect { names: &["OTEL_EXPORTER_OTLP_INSECURE"], warning: If(asks_for_other_security), reason: "the URL decides: https is TLS" },
    NoEffect { names: &["OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"], warning: If(asks_for_other_compression), reason: "weir can compress by gzip only" },
    NoEffect { names: &["OTEL_PROPAGATORS"], warning: If(asks_for_other_propagator), reason: "weir reads traceparent and B3 headers, whichever a request has" },
    NoEffect { names: &["OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"], warning: Always, reason: "callers decide about their traces, and TRACING_SAMPLING_RATE about others" },
    NoEffect { names: &["OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_*", "OTEL_METRIC_*"], warning: Always, reason: "metrics do not leave by OTLP; the collector's Prometheus receiver can read /metrics" },
    NoEffect { names: &["OTEL_EXPORTER_OTLP_*"], warning: Always, reason: "protocol, security and certificates are those of the variables for all signals" },
    NoEffect { names: &["OTEL_BSP_*"], warning: Always, reason: "batches have up to 512 spans, leave after a second at the latest, and wait in a queue of 4,096" },
    NoEffect { names: &["OTEL_*"], warning: Always, reason: "weir reads only the variables that docs/reference/settings.md lists" },
    // Variables of later versions, and misspelled ones.
    NoEffect { names: &["CONFIG_GRPC_*", "GRPC_CLIENT_*", "GRPC_MAX_*", "GRPC_SERVER_*", "LIMIT_*", "MEMCACHE_*", "PROMETHEUS_*", "REDIS_*", "RUNTIME_*", "STATSD_*", "TRACING_*", "USE_*", "XDS_CLIENT_*"], warning: Always, reason: "weir does not know it: docs/reference/settings.md lists the variables of the reference" },
];

/// Returns the position of the entry of a variable, and the name that it has there.
fn find(variable: &str) -> Option<(usize, &'static str)> {
    let all = || {
        let entries = NO_EFFECT.iter().enumerate();
        entries.flat_map(|(at, entry)| entry.names.iter().map(move |name| (at, *name)))
    };
    let is_begun = |name: &str| {
        name.strip_suffix('*').is_some_and(|start| variable.starts_with(start))
            && !VARIABLES.iter().any(|known| known.name == variable)
            && !is_of_service(variable)
    };
    all().find(|(_, name)| *name == variable).or_else(|| all().find(|(_, name)| is_begun(name)))
}

/// Returns the set variables that have no effect, but ask for Redis as the others about Redis do.
pub fn naming_redis(env: &[(String, String)]) -> impl Iterator<Item = &'static str> {
    let set = env.iter().filter(|(_, text)| !text.is_empty());
    let found = set.filter_map(|(name, _)| find(name)).map(|(_, name)| name);
    found.filter(|name| name.starts_with("REDIS_") && !name.ends_with('*'))
}

/// Returns a warning for each reason why variables have no effect.
pub fn warnings(env: &[(String, String)], settings: &Settings) -> Vec<String> {
    let mut found: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (name, text) in env.iter().filter(|(_, text)| !text.is_empty()) {
        let Some((at, _)) = find(name) else { continue };
        let is_reported = match NO_EFFECT[at].warning {
            Never => false,
            Always => true,
            If(asks) => asks(text.trim(), settings),
        };
        if is_reported {
            found.entry(at).or_default().push(name);
        }
    }
    let warning = |(at, names): (usize, Vec<&str>)| {
        let verb = if names.len() == 1 { "has" } else { "have" };
        format!("{} {verb} no effect: {}", names.join(", "), NO_EFFECT[at].reason)
    };
    found.into_iter().map(warning).collect()
}

/// Whether Kubernetes and Docker set a variable of this name for a Service: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`.
fn is_of_service(name: &str) -> bool {
    let after_port = name.split_once("_PORT").map(|(_, rest)| rest);
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || after_port.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Whether a variable is not off, which is the same as unset.
fn is_on(text: &str, _: &Settings) -> bool {
    go::read_bool(text) != Some(false)
}

fn asks_for_other_protocol(text: &str, settings: &Settings) -> bool {
    match *settings.tracing.protocol {
        OtlpProtocol::Grpc => !text.eq_ignore_ascii_case("grpc"),
        OtlpProtocol::Http => !text.eq_ignore_ascii_case("http/protobuf"),
    }
}

fn asks_for_other_security(text: &str, settings: &Settings) -> bool {
    let url = settings.tracing.endpoint.as_deref().unwrap_or_default();
    let is_tls = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    is_tls == text.eq_ignore_ascii_case("true")
}

fn asks_for_other_compression(text: &str, _: &Settings) -> bool {
    !["gzip", "none"].iter().any(|known| known.eq_ignore_ascii_case(text))
}

/// Whether the headers of one of the propagators are not read. weir has no baggage to read.
fn asks_for_other_propagator(text: &str, _: &Settings) -> bool {
    const READ: [&str; 4] = ["tracecontext", "baggage", "b3", "b3multi"];
    let is_read = |name: &str| READ.iter().any(|read| read.eq_ignore_ascii_case(name));
    !text.split(',').all(|name| is_read(name.trim()))
}
