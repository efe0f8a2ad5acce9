//! `health`, `drain` and `runtime`: the process itself.

use std::time::Duration;

use super::group;
use crate::settings::format::Int;

group! {
    /// When health reports serving.
    HealthSettings {
        /// Whether health reports not serving until rules are loaded.
        require_rules: bool = "true";
        /// Whether health reports not serving while the rules have no domain: a management server may
        /// send none.
        require_domain: bool = "false";
        /// Whether health reports serving without rules, unless require_rules is set.
        force_start: bool = "false";
        /// Whether health reports not serving while no connection to Redis is up, for a second or
        /// longer.
        follow_store: bool = "false";
    }
}

group! {
    /// How the service stops.
    DrainSettings {
        // Time for load balancers to notice that health reports not serving.
        /// How long the service keeps accepting connections after SIGTERM. Ctrl-C skips it.
        delay: Duration = "5s";
        // Kubernetes kills a pod 30 s after SIGTERM by default.
        /// How long stopping may take in total, with the delay: the rest is for requests in flight.
        timeout: Duration = "25s";
    }
}

group! {
    /// Threads.
    RuntimeSettings {
        // Each thread has its own connection to Redis, so that a container without a CPU limit on a large
        // machine would have many.
        /// Threads that serve gRPC, and as many more for Redis clients if resp.address is set; 0: one per CPU
        /// of the cgroup's quota, rounded up, else one per core, at most 16.
        threads: Int<usize, 0, 1_024> = "0";
    }
}
