//! `metrics.statsd` and `metrics.dogstatsd`: where metrics are sent by the names of the reference.

use crate::settings::format::{Address, Choice};
use crate::settings::table::group;

/// The protocol that StatsD is sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdProtocol {
    Tcp,
    Udp,
}

impl Choice for StatsdProtocol {
    const CHOICES: &'static [(&'static str, StatsdProtocol)] =
        &[("tcp", StatsdProtocol::Tcp), ("udp", StatsdProtocol::Udp)];
}

group! {
    /// StatsD.
    StatsdSettings "metrics.statsd" {
        /// Whether metrics are sent to StatsD, by the names of envoyproxy/ratelimit. STATSD_HOST or
        /// STATSD_PORT enables it too, unless USE_DOG_STATSD is true.
        enabled: bool = "false", reference ["USE_STATSD"];
        /// Address of the server.
        address: Address = "localhost:8125", reference ["STATSD_HOST", "STATSD_PORT"];
        /// The protocol of the connection.
        protocol: StatsdProtocol = "tcp", reference ["STATSD_PROTOCOL"];
    }
}

group! {
    /// DogStatsD.
    DogStatsdSettings "metrics.dogstatsd" {
        /// Whether metrics are sent to DogStatsD at metrics.statsd.address, over UDP.
        enabled: bool = "false", reference ["USE_DOG_STATSD"];
        /// Names of rules that replace names of metrics. The variables DOG_STATSD_MOGRIFIER_…_PATTERN,
        /// _NAME and _TAGS define each; the first one whose pattern matches applies.
        mogrifiers: Vec<String> = "", reference ["USE_DOG_STATSD_MOGRIFIERS"];
    }
}
