//! The task that gathers events, for all subscribers.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::observer::Observed;
use super::status::status;
use super::traffic::Traffic;
use super::{Changes, EventSources, MAX_WAITING, Observer, at, frame};
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

impl Publisher {
    pub fn start<S: Store + Operations + 'static>(sources: Arc<EventSources<S>>) -> Publisher {
        let (status, events) = (watch::Sender::default(), broadcast::Sender::new(MAX_WAITING));
        let feeds = Arc::new(Feeds { status, events });
        let (changes, denials) = (sources.changes(), sources.limiter.denials().watch());
        let task = tokio::spawn(publish(sources, changes, denials, feeds.clone())).abort_handle();
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
    mut denials: DenialWatch,
    feeds: Arc<Feeds>,
) {
    let mut state = State::default();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let send = |name, event| {
        // The last subscriber may have gone.
        let _ = feeds.events.send(frame(name, &at(sources.controls.now(), event)));
    };
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (sources, last) = (sources.clone(), take(&mut state));
                let others = others(&sources).await;
                // In the background: many rules and top keys take a while to sort.
                let render = move || render(&sources, last, others.as_deref());
                let Ok(rendered) = run_blocking(render).await else { continue };
                feeds.status.send_replace(rendered.status);
                state = rendered.state;
                rendered.events.into_iter().for_each(|(name, event)| send(name, event));
            }
            (name, event) = changes.next() => send(name, event),
            denial = denials.next() => send("denial", json!(denial)),
        }
    }
}

/// Returns the top keys of other replicas, if they are shared and can be read.
async fn others<S: Store + Operations>(sources: &EventSources<S>) -> Option<Arc<Others>> {
    let store = sources.limiter.store();
    // Else each status would wait for it.
    let texts = store.replica_texts().filter(|_| store.is_connected());
    sources.limiter.top()?.others(texts).await.ok()
}

/// What a status needs of the one before.
#[derive(Default)]
struct State {
    traffic: Traffic,
    observer: Observer,
}

/// A status, encoded, and what has changed since the one before.
struct Rendered {
    status: Bytes,
    events: Vec<(&'static str, Value)>,
    state: State,
}

fn render<S: Store + Operations>(
    sources: &EventSources<S>,
    mut state: State,
    others: Option<&Others>,
) -> Rendered {
    let Observed { store, problems, events } = state.observer.observe(sources);
    let status = status(sources, &store, &problems, &mut state.traffic, others);
    let status = frame("status", &at(sources.controls.now(), status));
    Rendered { status, events, state }
}
