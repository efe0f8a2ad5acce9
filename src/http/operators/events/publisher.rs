//! The task that gathers events, for all subscribers.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::status::{StoreState, status};
use super::traffic::Traffic;
use super::{EventSources, MAX_WAITING, frame};
use crate::loader::Reload;
use weir_common::threads::run_blocking;
use weir_limiter::DenialWatch;
use weir_limiter::top::Others;
use weir_store::{Operations, Store};

/// How often there is a status, and how often the store is checked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Renders events until it is dropped.
pub(super) struct Publisher {
    feeds: Arc<Feeds>,
    task: AbortHandle,
}

/// What subscribers receive, encoded.
struct Feeds {
    /// The last status; empty before the first.
    status: watch::Sender<Bytes>,
    events: broadcast::Sender<Bytes>,
}

/// What happens between two statuses.
struct Changes {
    denials: DenialWatch,
    reloads: broadcast::Receiver<Reload>,
    controls: watch::Receiver<u64>,
}

impl Publisher {
    pub fn start<S: Store + Operations + 'static>(sources: Arc<EventSources<S>>) -> Publisher {
        let (status, events) = (watch::Sender::default(), broadcast::Sender::new(MAX_WAITING));
        let feeds = Arc::new(Feeds { status, events });
        let changes = Changes {
            denials: sources.limiter.denials().watch(),
            reloads: sources.loader.watch(),
            controls: sources.controls.subscribe(),
        };
        let task = tokio::spawn(publish(sources, changes, feeds.clone())).abort_handle();
        Publisher { feeds, task }
    }

    /// Returns what receives the statuses and the other events.
    pub fn subscribe(&self) -> (watch::Receiver<Bytes>, broadcast::Receiver<Bytes>) {
        (self.feeds.status.subscribe(), self.feeds.events.subscribe())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renders events. Never ends.
async fn publish<S: Store + Operations + 'static>(
    sources: Arc<EventSources<S>>,
    mut changes: Changes,
    feeds: Arc<Feeds>,
) {
    let (mut traffic, mut was_connected) = (Traffic::default(), None);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let (name, event) = tokio::select! {
            _ = ticks.tick() => {
                let (sources, last_traffic) = (sources.clone(), take(&mut traffic));
                let others = others(&sources).await;
                let render = move || render_status(&sources, last_traffic, others.as_deref());
                // In the background: many rules and top keys take a while to sort.
                let Ok(rendered) = run_blocking(render).await else { continue };
                feeds.status.send_replace(rendered.frame);
                traffic = rendered.traffic;
                let is_connected = rendered.store.is_connected;
                if was_connected.replace(is_connected).unwrap_or(is_connected) == is_connected {
                    continue;
                }
                ("store", store_changed(&rendered.store))
            }
            Ok(()) = changes.controls.changed() => ("controls", json!({})),
            // The next status shows what those have done that were missed, if any were.
            Ok(reload) = changes.reloads.recv() => ("reload", json!(reload)),
            denial = changes.denials.next() => ("denial", json!(denial)),
        };
        // The last subscriber may have gone.
        let _ = feeds.events.send(frame(name, &at_now(&sources, event)));
    }
}

/// Returns the top keys of other replicas, if they are shared and can be read.
async fn others<S: Store + Operations>(sources: &EventSources<S>) -> Option<Arc<Others>> {
    let store = sources.limiter.store();
    // Else each status would wait for it.
    let texts = store.replica_texts().filter(|_| store.is_connected());
    sources.limiter.top()?.others(texts).await.ok()
}

/// A status, and what the next one needs of it.
struct Rendered {
    frame: Bytes,
    traffic: Traffic,
    store: StoreState,
}

fn render_status<S: Store + Operations>(
    sources: &EventSources<S>,
    mut traffic: Traffic,
    others: Option<&Others>,
) -> Rendered {
    let store = StoreState::read(sources.limiter.store());
    let status = at_now(sources, status(sources, &store, &mut traffic, others));
    Rendered { frame: frame("status", &status), traffic, store }
}

fn store_changed(store: &StoreState) -> Value {
    let errors = store.status.backends.iter().filter_map(|backend| backend.down_because);
    let error = errors.map(|error| error.to_string()).next();
    json!({ "up": store.is_connected, "error": error.filter(|_| !store.is_connected) })
}

/// Adds the time, as RFC 3339 writes it.
fn at_now<S>(sources: &EventSources<S>, mut event: Value) -> Value {
    let micros = i64::try_from(sources.controls.now()).unwrap_or(i64::MAX);
    event["at"] = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX).to_string().into();
    event
}
