//! `resp`: the listener for Redis clients.

use std::path::PathBuf;
use std::time::Duration;

use super::group;
use super::tls::RespTlsSettings;
use crate::settings::format::{Bytes, Int, OptionalAddress};

group! {
    /// The listener for Redis clients.
    RespSettings "resp" {
        /// Address of a listener that speaks the Redis protocol; empty: none.
        address: OptionalAddress = "";
        /// File with a password that clients send with AUTH or HELLO. The file is read again when it
        /// changes. Empty: clients need no password.
        password_file: Option<PathBuf> = "";
        /// Concurrent connections. Near the limit a new connection replaces an idle one.
        max_connections: Int<usize, 1, 10_000_000> = "1_024";
        /// The largest request. A connection has at most this much memory for requests.
        max_request: Bytes<usize> = "64KiB";
        /// Timeout for a client to send the rest of a request, and to read replies; 0: unlimited.
        timeout: Duration = "10s";
        /// Whether clients may give hits back.
        allow_negative_hits: bool = "false";
    }
    groups { tls: RespTlsSettings; }
}
