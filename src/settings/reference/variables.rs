//! Every variable the reference reads, and what becomes of it here.

use super::Effect::{ByValue, Ignored, Later, NamesRedis, Redis, Refused, Set, SetText};
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
const TLS: super::Effect = Later("TLS");
const STATSD: super::Effect = Later("StatsD; read Prometheus metrics at /metrics");
const PROMETHEUS: super::Effect =
    Later("its own Prometheus listener; /metrics of the HTTP and the debug port has the metrics");
const TRACING: super::Effect = Later("tracing");
const MEMCACHED: super::Effect =
    Refused("weir does not count in Memcached: take it out to count in memory");
const SOCKET: About = About::Ignored(
    "the URL tells: host:port is TCP, and what begins with a slash is a Unix socket",
);
const POOL: About = About::Ignored("there is one connection a thread, shared by its requests");
const PIPELINE: About = About::Ignored("what waits while Redis answers goes out together");
const STARTUP: About = About::Ignored(
    "weir listens at once, says not serving until Redis answers, and never gives up",
);
const HEALTHY: super::Effect = Set(Same("health.require_domain"));
