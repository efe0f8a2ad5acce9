//! `resp`: the listener for Redis clients.

use std::path::PathBuf;

use super::group;
use super::tls::RespTlsSettings;
use crate::settings::format::{Int, OptionalAddress};

group! {
    /// The listener for Redis clients.
    RespSettings "resp" {
        /// Address of a listener that speaks the Redis protocol; empty: none.
        address: OptionalAddress = "";
        /// File with the password that clients send with AUTH or HELLO: text without control characters;
        /// white space around it is ignored. The file is read again when it changes. Empty: clients need
        /// no password.
        password_file: Option<PathBuf> = "";
        /// Concurrent connections. Near the limit a new connection replaces an idle one.
        max_connections: Int<usize, 1, 10_000_000> = "1_024";
        /// Whether clients may refund hits and settle what is reserved.
        allow_negative_hits: bool = "false";
    }
    groups { tls: RespTlsSettings; }
}
