//! Reads the state of the store (counters in memory, on disk or in Redis), for `/status`, `/v1/status` and `problems`.

use serde_json::{Value, json};

use weir_store::{BackendStatus, Operations, StoreStatus};

#[derive(Clone, Debug)]
pub struct StoreState {
    pub is_connected: bool,
    pub status: StoreStatus,
}

impl StoreState {
    pub fn read(store: &impl Operations) -> StoreState {
        let mut status = StoreStatus::default();
        store.status(&mut status);
        StoreState { is_connected: store.is_connected(), status }
    }

    pub(super) fn to_json(&self, is_failing: bool) -> Value {
        let status = &self.status;
        json!({
            "backends": status.backends.iter().map(backend_status).collect::<Vec<_>>(),
            "on_failure": status.failures.as_ref().map(|failures| failures.on_failure),
            "failing": is_failing,
            "charges": status.failures.as_ref().map(|failures| failures.charges),
            "degraded_charges": status.failures.as_ref().map(|failures| {
                let counts = failures.degraded.iter();
                counts.map(|(policy, count)| ((*policy).to_owned(), (*count).into())).collect::<serde_json::Map<_, _>>()
            }),
        })
    }
}

fn backend_status(backend: &BackendStatus) -> Value {
    let mut status = json!({ "instance": backend.instance, "kind": backend.kind });
    if let Some(keys) = backend.keys {
        status["keys"] = keys.into();
    }
    if let Some(address) = &backend.address {
        status["address"] = address.as_str().into();
    }
    if let Some(saved) = &backend.saved {
        status["sync_age_seconds"] = saved.sync_age.as_secs_f64().into();
        status["not_saved_because"] = saved.not_saved_because.as_deref().into();
        status["files_lost"] = saved.files_lost.into();
    } else if backend.address.is_some() {
        status["connections"] = backend.connections.into();
        status["connections_down"] = backend.connections_down.into();
        status["connections_slow"] = backend.connections_slow.into();
        status["down_because"] = backend.down_because.map(|why| why.to_string()).into();
        status["breaker"] = breaker(backend).into();
    }
    status
}

/// A connection that is down or slow fails its charges at once: its circuit breaker is open.
fn breaker(backend: &BackendStatus) -> &'static str {
    match backend.connections_down + backend.connections_slow {
        0 => "closed",
        open if open < backend.connections => "partly open",
        _ => "open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_is_that_of_the_connections() {
        let backend = |connections, connections_down, connections_slow| {
            let rest = BackendStatus::default();
            breaker(&BackendStatus { connections, connections_down, connections_slow, ..rest })
        };
        assert_eq!(
            [
                backend(0, 0, 0),
                backend(3, 0, 0),
                backend(3, 1, 0),
                backend(3, 0, 2),
                backend(3, 2, 1)
            ],
            ["closed", "closed", "partly open", "partly open", "open"]
        );
    }
}
