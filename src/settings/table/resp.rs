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
        /// File with the password that clients send with AUTH or HELLO: text without control characters;
        /// white space around it is ignored. The file is read again when it changes. Empty: clients need
        /// no password.
        password_file: Option<PathBuf> = "";
        /// Concurrent connections. Near the limit a new connection replaces an idle one.
        max_connections: Int<usize, 1, 10_000_000> = "1_024";
        /// The largest request, 4KiB to 16MiB. Before a client has sent the password, 16KiB at most.
        max_request: Bytes<usize> = "64KiB";
        /// Memory for partly received requests, unread replies and commands that wait for Redis across all
        /// clients; the first 64KiB of requests and replies of each connection is free, and one connection
        /// can use an eighth. Beyond it, commands of a pipeline wait for those before them, and a client
        /// with large requests or unread replies is disconnected. At least 32 times resp.max_request.
        max_buffered: Bytes<usize> = "16MiB";
        /// Timeout for a client to send the rest of a request, and to read replies; 0: unlimited.
        timeout: Duration = "10s";
        /// Whether clients may refund hits and settle what is reserved.
        allow_negative_hits: bool = "false";
    }
    groups { tls: RespTlsSettings; }
}
