//! Declares the settings `top`, `controls`, `health`, `drain` and `runtime`: operators, shutdown and the process.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::format::Int;
use crate::settings::group::{choices, group};
use weir_quotas::Fallback;

group! {
    /// Blocks, allowances and limits that operators set at run time.
    ControlsSettings {
        /// File that keeps controls over a restart. Without it they end with the process, unless counters
        /// are in Redis, which then has them too. Its directory must be writable, for a copy.
        file: Option<PathBuf> = "";
    }
}

group! {
    /// Top keys.
    TopSettings {
        /// Descriptor keys whose values are shown as hashes in the lists of top keys and in changes, such
        /// as api_key.
        redact: Vec<String> = "";
        /// Whether each replica shows the lists of all, shared in Redis with one command a second each.
        share: bool = "false";
    }
}

choices!(Fallback);

group! {
    /// Quotas for Envoys that count themselves.
    RlqsSettings {
        /// Whether the gRPC port serves Envoy's Rate Limit Quota Service. Experimental.
        enabled: bool = "false";
        /// What Envoys do with the requests of a bucket that no grant decides yet: where they `allow` them, as without
        /// `no_assignment_behavior`, weir charges them afterwards.
        fallback: Fallback = "allow";
        /// What Envoys are ordered to do with buckets whose rule cannot be divided: `allow` or `deny` all.
        unsupported: Fallback = "deny";
        /// Streams that are open at the same time, one for each Envoy and domain.
        max_streams: Int<usize, 1, 100_000> = "1024";
        /// Buckets of one stream. Further ones are denied.
        max_stream_buckets: Int<usize, 1, 1_000_000> = "10000";
        /// Buckets of all streams. Further ones are denied.
        max_buckets: Int<usize, 1, 10_000_000> = "200000";
    }
}

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
