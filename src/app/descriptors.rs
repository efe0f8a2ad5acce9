//! Shares the file descriptors that the system allows the process (RLIMIT_NOFILE) among the listeners when `App` is
//! built. Connections over gRPC then cannot use up those of the health check, which is served over HTTP.

/// File descriptors for everything but clients' connections (listeners, threads, Redis, rule files), and
/// for the few HTTP connections that are accepted beyond their limit.
const OTHER_DESCRIPTORS: usize = 256;

/// The connections that each listener may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub grpc: usize,
    pub http: usize,
    pub debug: usize,
    /// 0 if there is no such listener.
    pub resp: usize,
}

/// Shares `allowed` descriptors (`None`: unlimited) among the listeners. gRPC may have up to `grpc`
/// connections, Redis clients up to `resp`, and the HTTP and the debug listener up to `http` each.
pub(super) fn share(allowed: Option<u64>, grpc: usize, http: usize, resp: usize) -> Shares {
    let needed = grpc.saturating_add(http.saturating_mul(2)).saturating_add(resp);
    let needed = needed.saturating_add(OTHER_DESCRIPTORS);
    let allowed =
        allowed.map_or(usize::MAX, |allowed| usize::try_from(allowed).unwrap_or(usize::MAX));
    if allowed >= needed {
        return Shares { grpc, http, debug: http, resp };
    }
    let rest = allowed - OTHER_DESCRIPTORS.min(allowed / 2);
    let on_debug = http.min(rest / 8).max(1);
    let http = http.min(rest / 4).max(1);
    let resp = resp.min((rest / 4).max(1));
    let grpc = grpc.min(rest.saturating_sub(http + on_debug + resp)).max(1);
    tracing::warn!(
        allowed,
        needed,
        grpc,
        http,
        debug = on_debug,
        resp,
        "open files are limited: fewer connections than grpc.max_connections, http.max_connections and \
         resp.max_connections; raise the hard limit (ulimit -Hn) or lower these settings"
    );
    Shares { grpc, http, debug: on_debug, resp }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_apply_if_there_are_enough_descriptors() {
        let wanted = Shares { grpc: 16_384, http: 1_024, debug: 1_024, resp: 512 };
        let needed = 16_384 + 2 * 1_024 + 512 + OTHER_DESCRIPTORS as u64;
        for enough in [None, Some(u64::MAX), Some(needed)] {
            assert_eq!(share(enough, 16_384, 1_024, 512), wanted);
        }
        let fewer = share(Some(needed - 1), 16_384, 1_024, 512);
        assert!(fewer.grpc < wanted.grpc, "{fewer:?}");
        let few = share(Some(256), 16_384, 1_024, 0);
        assert_eq!(few, Shares { grpc: 80, http: 32, debug: 16, resp: 0 });
        let few = share(Some(256), 16_384, 1_024, 1_024);
        assert_eq!(few, Shares { grpc: 48, http: 32, debug: 16, resp: 32 });
    }

    proptest! {
        #[test]
        fn shares_fit_and_each_listener_has_one(
            allowed in 8_u64..100_000, grpc in 1_usize..100_000, http in 1_usize..10_000,
            resp in 0_usize..10_000,
        ) {
            let Shares { grpc: g, http: h, debug: d, resp: r } = share(Some(allowed), grpc, http, resp);
            prop_assert!(g >= 1 && h >= 1 && d >= 1 && r >= resp.min(1));
            prop_assert!(g <= grpc && h <= http && d <= http && r <= resp);
            prop_assert!((g + h + d + r) as u64 <= allowed);
        }
    }
}
