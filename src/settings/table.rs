//! Every setting there is: its name, kind, default and meaning.

use super::value::Kind;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name: `a.b` in a settings file is `WEIR__A__B` in the environment.
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be written; empty text for none.
    pub default: &'static str,
    /// What it means, for people.
    pub about: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Setting {
    Setting { name, kind, default, about }
}

/// All settings, in the order they are shown.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting("rules.source", Kind::Choice(&["files", "xds"]), "files", "Where rules come from: files, or a management server over xDS."),
    setting("rules.paths", Kind::List, "", "Rule files, or directories of them."),
    setting("rules.merge_domains", Kind::Bool, "false", "Whether several files may add to one domain."),
    setting("rules.watch", Kind::Bool, "true", "Whether changes of rule files are taken in while the service runs."),
    // Some file systems, mostly those of networks, tell nobody of changes.
    setting("rules.poll", Kind::Duration, "30s", "How often to look for changes that nothing told of; 0: never."),
    setting("rules.ignore_dot_files", Kind::Bool, "true", "Whether files and directories whose name begins with a dot are passed over."),
    setting("rules.max_file", Kind::Bytes, "64MiB", "A larger rule file is refused."),
    setting("rules.max_log_bytes", Kind::Bytes, "16MiB", "A limit whose state may take more bytes a key is refused."),
    setting("rules.max_problems", Kind::Int(1, 10_000), "100", "Errors, and warnings, listed of each rule file, and ten times as many of all; the rest are counted."),
    setting("rules.runtime.root", Kind::Text, "", "The reference's layout of directories, used when rules.paths is empty: the root."),
    setting("rules.runtime.subdirectory", Kind::Text, "", "The directory below the root."),
    setting("rules.runtime.app_directory", Kind::Text, "config", "With watch_root a prefix of file names, else the directory below the subdirectory."),
    setting("rules.runtime.watch_root", Kind::Bool, "true", "Whether the whole subdirectory is loaded, filtered by app_directory, or app_directory alone."),
    setting("rules.xds.url", Kind::Text, "localhost:18000", "The management server, as host:port."),
    setting("rules.xds.mode", Kind::Choice(&["sotw", "delta"]), "sotw", "Whether it sends all resources each time (state of the world), or only changes."),
    setting("rules.xds.node_id", Kind::Text, "default", "What weir is called there."),
    setting("rules.xds.node_metadata", Kind::List, "", "What else it is told of weir: `key=value` each; parts without = are passed over."),
    setting("rules.xds.headers", Kind::List, "", "Headers sent along: `name:value` each."),
    // As long as a rule file may be; gRPC's own 4 MiB are some 40 000 rules.
    setting("rules.xds.max_message", Kind::Bytes, "64MiB", "A longer response is refused; 0: 4MiB."),
    setting("rules.xds.connect_timeout", Kind::Duration, "10s", "How long connecting may take."),
    // Go's servers end a connection that is pinged more often than every five minutes, unless they
    // are told otherwise. Machines that are gone are noticed sooner, by TCP.
    setting("rules.xds.keepalive", Kind::Duration, "6m", "How often the server is pinged over HTTP/2; 0: never. TCP asks every 30s in any case."),
    setting("rules.xds.backoff_min", Kind::Duration, "1s", "After a failure: the first wait before the server is called again. Each wait is twice as long as the one before."),
    setting("rules.xds.backoff_max", Kind::Duration, "60s", "The longest wait."),
    setting("rules.xds.backoff_jitter", Kind::Bool, "true", "Whether each wait is shortened by chance, by half at most."),
    setting("rules.xds.tls.enabled", Kind::Bool, "false", "Whether the server is spoken to over TLS."),
    setting("rules.xds.tls.cert", Kind::Text, "", "A file with the certificate that weir shows, where the server asks for one."),
    setting("rules.xds.tls.key", Kind::Text, "", "A file with its key."),
    setting("rules.xds.tls.ca", Kind::Text, "", "A file with those who may have signed the server's certificate; empty: whom the system trusts."),
    setting("rules.xds.tls.server_name", Kind::Text, "", "The name the server's certificate must have; empty: the host's."),
    setting("grpc.address", Kind::Address, "0.0.0.0:8081", "Where gRPC is served."),
    // A request of Envoy's is some 100 bytes; this leaves room for long values and many
    // descriptors, and bounds what a request can make the process hold: an entry is two bytes of it
    // or more, and 32 when it is read, for a moment in a list half as long again.
    setting("grpc.max_message", Kind::Bytes, "1MiB", "A larger request is refused. One that is read may take 25 times its size in memory."),
    // Envoy sends some 500 bytes.
    setting("grpc.max_headers", Kind::Bytes, "16KiB", "A request whose headers are larger in all is refused."),
    // Envoy opens one stream for each request in flight.
    setting("grpc.max_streams", Kind::Int(1, u32::MAX as u64), "1024", "Requests in flight on one connection."),
    setting("grpc.max_buffered", Kind::Bytes, "64MiB", "Memory for partly received requests and unread responses across all clients; the first 128KiB of each connection is free, and one connection can use an eighth."),
    setting("grpc.max_connections", Kind::Int(1, 10_000_000), "16_384", "Connections at a time. Near the limit a newcomer replaces a connection that has no request in progress: one that never made a request first, then the one that has been idle longest."),
    setting("grpc.keepalive", Kind::Duration, "60s", "How often a client is pinged, at least, to end connections nobody reads from; 0: never."),
    setting("grpc.timeout", Kind::Duration, "10s", "How long a client may take to open a connection, to send a complete request, to read a response, and to answer a ping; 0: unlimited."),
    setting("grpc.max_descriptors", Kind::Int(1, 100_000), "256", "A request with more descriptors is refused."),
    setting("grpc.allow_overrides", Kind::Bool, "true", "Whether a gRPC client may send limits along."),
    setting("grpc.allow_negative_hits", Kind::Bool, "true", "Whether a gRPC client may give hits back."),
    setting("http.address", Kind::Address, "0.0.0.0:8080", "Where /json, /healthcheck and /metrics are served."),
    setting("http.max_connections", Kind::Int(1, 10_000_000), "1_024", "HTTP connections at a time, on each of the two addresses. Near the limit a newcomer replaces a connection that has no complete request in progress."),
    setting("http.timeout", Kind::Duration, "10s", "How long a client may take to send a request's head, then its body, and then to receive the whole answer; 0: no limit."),
    // A body counts until its answer is sent.
    setting("http.max_buffered", Kind::Bytes, "16MiB", "Memory for the bodies and answers of /json across all clients; the first 16 KiB of each is free. A request beyond it is answered 503."),
    setting("http.allow_overrides", Kind::Bool, "true", "Whether a client of /json may send limits along."),
    // Envoy needs refunds, and does not use /json.
    setting("http.allow_negative_hits", Kind::Bool, "false", "Whether a client of /json may give hits back."),
    setting("debug.address", Kind::Address, "127.0.0.1:6070", "Where /rlconfig, /status and /metrics are served. DEBUG_HOST or DEBUG_PORT alone opens it to other hosts, as in the reference."),
    setting("response.headers", Kind::Bool, "false", "Whether responses carry the three rate-limit headers."),
    setting("response.limit_header", Kind::Text, "RateLimit-Limit", "The header with the limit."),
    setting("response.remaining_header", Kind::Text, "RateLimit-Remaining", "The header with the hits still allowed."),
    setting("response.reset_header", Kind::Text, "RateLimit-Reset", "The header with the seconds until the limit is back to its full allowance."),
    setting("response.retry_after", Kind::Bool, "false", "Whether a refusal says in Retry-After when to come again."),
    setting("response.ratelimit_fields", Kind::Bool, "false", "Whether responses carry the structured fields RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-10."),
    setting("response.dynamic_metadata", Kind::Bool, "false", "Whether responses carry the request and the rules' metadata as dynamic metadata."),
    setting("response.shadow_mode", Kind::Bool, "false", "Every request passes; statuses and counts still tell the truth."),
    setting("response.quota_mode", Kind::Bool, "false", "Every rule counts as a quota: a request is over its limit only when all of its quotas are."),
    setting("store.kind", Kind::Choice(&["memory", "redis"]), "memory", "Where counters live."),
    setting("store.budget", Kind::AutoOrDuration, "auto", "How long the store may take for one request. `auto`: what the caller's `grpc-timeout` leaves, less 3 ms, at most 50 ms; 15 ms for callers without one. A duration: that long, or the caller's `grpc-timeout` less 3 ms if that is shorter."),
    setting("store.on_failure", Kind::Choice(&["error", "allow", "deny", "local"]), "error", "What to answer when the store fails: an error, for Envoy to decide; yes; no; or by this replica's share, counted in memory. A domain may say otherwise in on_store_failure."),
    setting("store.replicas", Kind::Int(1, 1_000_000), "1", "How many replicas share the limits when each counts alone, with on_failure = local."),
    setting("store.deny_locally_for", Kind::Duration, "250ms", "How long a denial that is known to hold is repeated without asking Redis; 0: never."),
    setting("store.memory.max_keys", Kind::Int(1, 1 << 40), "10_000_000", "Keys kept at most; beyond it those that matter least are dropped."),
    setting("store.redis.topology", Kind::Choice(&["single", "sentinel", "cluster"]), "single", "What kind of servers there are."),
    setting("store.redis.url", Kind::Text, "", "Where Redis is: host:port, redis://user:password@host:port/0, rediss://… for TLS, or the path of a Unix socket. Several with commas: the sentinels, or some nodes of a cluster. Setting it makes Redis the store."),
    setting("store.redis.username", Kind::Text, "", "Who to log in as; empty: Redis's default user."),
    setting("store.redis.password", Kind::Text, "", "The password."),
    setting("store.redis.password_file", Kind::Text, "", "A file with the password, read anew for each connection."),
    setting("store.redis.db", Kind::Int(0, 1_000_000), "0", "The number of the database; a cluster has only 0."),
    setting("store.redis.key_prefix", Kind::Text, "weir:", "What all keys begin with; no braces. With layout = reference it is empty unless set."),
    setting("store.redis.layout", Kind::Choice(&["weir", "reference"]), "weir", "With reference, lone fixed windows have the reference's keys, so that both count together."),
    setting("store.redis.clock", Kind::Choice(&["server", "caller"]), "server", "Whose clock counts: Redis's, or that of each replica where scripts may not ask for the time."),
    setting("store.redis.connect_timeout", Kind::Duration, "1s", "How long connecting and logging in may take."),
    // Above the round trips that a busy cluster makes now and then, which fail no request.
    setting("store.redis.slow_after", Kind::Duration, "20ms", "A connection whose round trip takes longer is down until the server answers a PING within this time."),
    setting("store.redis.tls.enabled", Kind::Bool, "false", "Whether connections are encrypted; rediss:// says the same."),
    setting("store.redis.tls.ca", Kind::Text, "", "A file of the certificates to trust, in PEM form; empty: the system's roots."),
    setting("store.redis.tls.cert", Kind::Text, "", "A file with the client's certificate."),
    setting("store.redis.tls.key", Kind::Text, "", "A file with its key."),
    setting("store.redis.tls.skip_hostname_verification", Kind::Bool, "false", "Whether a good certificate for another host will do."),
    setting("store.redis.sentinel.master_name", Kind::Text, "", "What the sentinels call the master."),
    setting("store.redis.sentinel.username", Kind::Text, "", "Who to log in to the sentinels as."),
    setting("store.redis.sentinel.password", Kind::Text, "", "The password for the sentinels."),
    setting("store.redis.sentinel.password_file", Kind::Text, "", "A file with the password for the sentinels, read anew for each connection."),
    setting("store.redis.breaker.probe_max", Kind::Duration, "500ms", "The longest wait before a Redis that fails is tried again."),
    setting("store.redis.per_second.topology", Kind::Choice(&["single", "sentinel", "cluster"]), "single", "What kind of servers there are."),
    setting("store.redis.per_second.url", Kind::Text, "", "A Redis of their own for limits of one second, as store.redis.url; empty: they are counted with the others."),
    setting("store.redis.per_second.username", Kind::Text, "", "Who to log in as; empty: Redis's default user."),
    setting("store.redis.per_second.password", Kind::Text, "", "The password."),
    setting("store.redis.per_second.password_file", Kind::Text, "", "A file with the password, read anew for each connection."),
    setting("store.redis.per_second.db", Kind::Int(0, 1_000_000), "0", "The number of the database; a cluster has only 0."),
    setting("store.redis.per_second.connect_timeout", Kind::Duration, "1s", "How long connecting and logging in may take."),
    setting("store.redis.per_second.tls.enabled", Kind::Bool, "false", "Whether connections are encrypted; rediss:// says the same."),
    setting("store.redis.per_second.tls.ca", Kind::Text, "", "A file of the certificates to trust, in PEM form; empty: that of store.redis.tls."),
    setting("store.redis.per_second.tls.cert", Kind::Text, "", "A file with the client's certificate; empty: that of store.redis.tls."),
    setting("store.redis.per_second.tls.key", Kind::Text, "", "A file with its key; empty: that of store.redis.tls."),
    setting("store.redis.per_second.tls.skip_hostname_verification", Kind::Bool, "false", "Whether a good certificate for another host will do; unless set, as in store.redis.tls."),
    setting("store.redis.per_second.sentinel.master_name", Kind::Text, "", "What the sentinels call the master."),
    setting("store.redis.per_second.sentinel.username", Kind::Text, "", "Who to log in to the sentinels as."),
    setting("store.redis.per_second.sentinel.password", Kind::Text, "", "The password for the sentinels."),
    setting("store.redis.per_second.sentinel.password_file", Kind::Text, "", "A file with the password for the sentinels, read anew for each connection."),
    setting("health.require_rules", Kind::Bool, "true", "Whether health says not serving until rules are loaded."),
    setting("health.require_domain", Kind::Bool, "false", "Whether health says not serving while there is no domain: a management server may send none."),
    setting("health.force_start", Kind::Bool, "false", "Whether health says serving without rules, where require_rules is not set."),
    // Time for load balancers to see that health says not serving.
    setting("drain.delay", Kind::Duration, "5s", "After SIGTERM: how long to go on answering before listeners close. Ctrl-C skips it."),
    setting("drain.timeout", Kind::Duration, "30s", "How long requests in flight may take to end after that."),
    setting("runtime.threads", Kind::Int(0, 1_024), "0", "Threads that serve; 0: as many as cores."),
    setting("metrics.near_limit_ratio", Kind::Ratio, "0.8", "The part of a limit above which hits count as near it."),
    setting("log.level", Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"]), "info", "How much is logged."),
    setting("log.format", Kind::Choice(&["text", "json"]), "text", "How it is logged."),
];

/// The setting of that name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
