//! Declares the settings `clients`, `grpc`, `http`, `resp`, `debug` and `response`: listeners, limits and responses.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::TlsSettings;
use crate::http::clients::JsonErrors;
use crate::settings::format::{Address, Bytes, Int};
use crate::settings::group::{choices, group};
use weir_common::named_enum;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ResetFormat, name {
        Seconds = "seconds",
        Unix = "unix",
    }
}

choices!(JsonErrors, ResetFormat);

group! {
    /// What clients of any listener may take.
    ClientsSettings {
        /// Timeout for a client to open a connection, to send a complete request (over HTTP its head, then
        /// its body), to read the response, and to answer a ping; 0: unlimited.
        timeout: Duration = "10s";
        // A body of HTTP counts until its response is sent.
        /// Memory of each listener for partly received requests and unread responses, and for commands of
        /// Redis clients that wait for Redis. Free for each connection: 128KiB over gRPC, 16KiB over HTTP,
        /// 64KiB of Redis clients. One connection can use an eighth. At least 2MiB for Redis clients, and
        /// two bodies of the maximum size for HTTP.
        max_buffered: Bytes<usize> = "64MiB";
    }
}

group! {
    /// The gRPC listener.
    GrpcSettings {
        /// Address of the gRPC listener.
        address: Address = ":8081";
        /// Path of a Unix socket for gRPC, instead of grpc.address. The file of a socket on which no
        /// process listens is replaced.
        uds: Option<PathBuf> = "";
        // A request from Envoy is some 100 bytes. This leaves room for long values and many
        // descriptors, and bounds the memory of a request: an entry is at least two bytes of it, and
        // 32 bytes once decoded, for a moment in a list half as long again.
        /// The largest request. Decoding a request may take 25 times its size in memory.
        max_message: Bytes<usize> = "1MiB";
        // Envoy opens one stream for each request in flight.
        /// Requests in flight on one connection.
        max_streams: Int<u32, 1, 4_294_967_295> = "1024";
        /// Concurrent connections. Near the limit a new connection replaces one without a request in
        /// progress: first one that never made any, then the one idle longest.
        max_connections: Int<usize, 1, 10_000_000> = "16_384";
        // Connections find other replicas only when they are opened.
        /// The age, give or take 10 %, at which a connection is asked to close, so that new replicas get
        /// their share; 0: unlimited.
        max_connection_age: Duration = "24h";
        /// How long calls in progress may then take until the connection is closed; 0: unlimited.
        max_connection_age_grace: Duration = "1h";
        /// Maximum number of descriptors per request.
        max_descriptors: Int<usize, 1, 100_000> = "256";
        /// Whether gRPC clients may override limits in requests.
        allow_overrides: bool = "true";
        /// Whether gRPC clients may refund hits, and settle and cancel what is reserved.
        allow_negative_hits: bool = "true";
        group tls: TlsSettings;
    }
}

group! {
    /// The HTTP listener.
    HttpSettings {
        /// Address of the HTTP listener: /json, /v1/budget, /healthcheck, /livez, /readyz and /metrics.
        address: Address = ":8080";
        /// Concurrent HTTP connections, on each of http.address and debug.address. Near the limit a new
        /// connection replaces one that has no complete request in progress.
        max_connections: Int<usize, 1, 10_000_000> = "1_024";
        /// Whether the HTTP listener serves /metrics; debug.address and metrics.prometheus.address always
        /// do.
        metrics: bool = "true";
        /// Answers to requests of /json that get no decision: reference is 400 as with
        /// envoyproxy/ratelimit; detailed is JSON with the reason, and 503 if the store failed.
        json_errors: JsonErrors = "reference";
        /// Whether clients of /json may override limits in requests.
        allow_overrides: bool = "true";
        // Envoy needs refunds, and does not use /json.
        /// Whether clients of /json may refund hits and settle what is reserved, and clients of /v1/budget settle
        /// and cancel it; the token of debug.write_token_file allows the latter, too.
        allow_negative_hits: bool = "false";
        group tls: TlsSettings;
    }
}

group! {
    /// The listener for Redis clients.
    RespSettings {
        /// Address of a listener that speaks the Redis protocol; empty: none.
        address: Option<Address> = "";
        /// File with the password that clients send with AUTH or HELLO: text without control characters;
        /// white space around it is ignored. The file is read again when it changes. Empty: clients need
        /// no password.
        password_file: Option<PathBuf> = "";
        /// Concurrent connections. Near the limit a new connection replaces an idle one.
        max_connections: Int<usize, 1, 10_000_000> = "1_024";
        /// Whether clients may refund hits and settle what is reserved.
        allow_negative_hits: bool = "false";
        group tls: TlsSettings;
    }
}

group! {
    /// The debug listener.
    DebugSettings {
        /// Address of the debug listener: rules, status, controls, log level and metrics. DEBUG_HOST
        /// or DEBUG_PORT alone opens it to other hosts, as in the reference.
        address: Address = "127.0.0.1:6070";
        /// File with a token that allows clients to read /v1. Clients send it in the header
        /// `Authorization: Bearer`. The file is read again when it changes. Without this and
        /// debug.write_token_file only clients on the same machine may use /v1.
        read_token_file: Option<PathBuf> = "";
        /// File with a token that allows clients to read and write /v1 and to change the log level,
        /// as debug.read_token_file.
        write_token_file: Option<PathBuf> = "";
        /// Whether clients on the same machine need a token, too.
        require_token: bool = "false";
        /// Hosts in URLs by which clients may reach /v1, without ports, besides localhost and loopback
        /// addresses. Others are refused: a web page could use one that leads to this port.
        allowed_hosts: Vec<String> = "";
    }
}

group! {
    /// What responses carry, and what changes the overall code.
    ResponseSettings {
        /// Whether responses carry the three rate-limit headers.
        headers: bool = "false";
        /// Name of the header with the limit.
        limit_header: String = "RateLimit-Limit";
        /// Name of the header with the remaining hits.
        remaining_header: String = "RateLimit-Remaining";
        /// Name of the header with the reset of the limit: when it is back to its full allowance, or after a
        /// denial when the same hits are allowed.
        reset_header: String = "RateLimit-Reset";
        /// What the reset header has: `seconds` from now, or the `unix` time in seconds by the clock of weir,
        /// rounded up. RateLimit and Retry-After always have the seconds from now.
        reset: ResetFormat = "seconds";
        /// Whether denied responses carry Retry-After.
        retry_after: bool = "false";
        /// Whether responses carry the structured fields RateLimit and RateLimit-Policy of
        /// draft-ietf-httpapi-ratelimit-headers-10.
        ratelimit_fields: bool = "false";
        /// Whether responses carry the request and the metadata of its rules as dynamic metadata.
        dynamic_metadata: bool = "false";
        /// Whether every request is allowed; statuses and metrics still report the real decisions.
        shadow_mode: bool = "false";
        /// Whether every rule counts as a quota: a request is over its limit only if all of its
        /// quotas are.
        quota_mode: bool = "false";
    }
}
