//! `/v1/events`: what happens now, as server-sent events.
//!
//! While anyone subscribes, one task gathers events and renders each once for all subscribers: a
//! `status` every second, and between them denials, reloads, changes of controls, whether the store can be
//! reached, and problems.
//!
//! **Bounded.** There are [`MAX_SUBSCRIBERS`] at most. Events wait in one queue for all, which keeps the
//! last [`MAX_WAITING`]: a subscriber that reads slowly misses older ones, and gets their number. Of the
//! status only the newest waits. A subscriber that reads nothing is closed after the timeout of HTTP.

mod changes;
mod observer;
mod publisher;
mod status;
#[cfg(test)]
mod tests;
mod traffic;

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures_util::stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};

use self::changes::Changes;
pub(super) use self::observer::Observer;
use self::publisher::Publisher;
use super::error::ApiError;
use super::problems::{Problem, ProblemSources, problems};
use super::query::Query;
use super::store_state::StoreState;
use crate::connections::ConnectionHandle;
use crate::health::Health;
use crate::loader::Loader;
use crate::service::Rules;
use crate::tls::Identities;
use weir_limit::Micros;
use weir_limiter::Limiter;
use weir_limiter::controls::Controls;
use weir_store::{Operations, Store};

/// The most subscribers at a time.
pub const MAX_SUBSCRIBERS: usize = 16;

/// The most events that wait for a subscriber.
const MAX_WAITING: usize = 256;

/// What the events are about.
pub struct EventSources<S> {
    pub limiter: Arc<Limiter<S>>,
    pub rules: Rules,
    pub controls: Arc<Controls>,
    pub loader: Arc<Loader>,
    pub health: Arc<Health>,
    pub identities: Arc<Identities>,
    pub started: Instant,
}

/// The events, and their subscribers.
struct Events<S> {
    sources: Arc<EventSources<S>>,
    max_subscribers: usize,
    places: Arc<Semaphore>,
    /// Runs while anyone subscribes.
    publisher: Mutex<Weak<Publisher>>,
    ends: Ends,
}

/// When events end.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Turns true when the listeners close.
    pub closed: watch::Receiver<bool>,
    /// Changes when a token is replaced, by which a subscriber may have come.
    pub replaced_tokens: watch::Receiver<u64>,
}

impl Ends {
    /// Resolves when it is time.
    async fn ended(&mut self) {
        // A sender that is gone means that the process ends.
        tokio::select! {
            _ = self.closed.wait_for(|closed| *closed) => {}
            _ = self.replaced_tokens.changed() => {}
        }
    }
}

impl<S: Store> EventSources<S> {
    /// Returns what changes from now on, but for denials.
    pub(super) fn changes(&self) -> Changes {
        Changes { reloads: self.loader.watch(), controls: self.controls.subscribe() }
    }

    /// Returns all problems, with the store in this state.
    fn problems(&self, store: &StoreState) -> Vec<Problem> {
        let EventSources { loader, controls, identities, .. } = self;
        problems(&ProblemSources { loader, controls, identities, store })
    }
}

impl<S> fmt::Debug for EventSources<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSources").finish_non_exhaustive()
    }
}

/// Returns the handler, for up to `max_subscribers` at a time.
pub fn events<S: Store + Operations + 'static>(
    sources: Arc<EventSources<S>>,
    max_subscribers: usize,
    ends: Ends,
) -> MethodRouter {
    get(answer::<S>).with_state(Arc::new(Events::new(sources, max_subscribers, ends)))
}

impl<S: Store + Operations + 'static> Events<S> {
    fn new(sources: Arc<EventSources<S>>, max_subscribers: usize, ends: Ends) -> Events<S> {
        Events {
            sources,
            max_subscribers,
            places: Arc::new(Semaphore::new(max_subscribers)),
            publisher: Mutex::default(),
            ends,
        }
    }

    /// Adds a subscriber; none if there is no room.
    fn subscribe(&self) -> Option<Subscriber> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let mut running = self.publisher.lock();
        let publisher = running.upgrade().unwrap_or_else(|| {
            let publisher = Arc::new(Publisher::start(self.sources.clone()));
            *running = Arc::downgrade(&publisher);
            publisher
        });
        let mut ends = self.ends.clone();
        ends.replaced_tokens.mark_unchanged();
        Some(Subscriber::new(publisher, place, ends))
    }
}

/// Answers with the events from now on.
async fn answer<S: Store + Operations + 'static>(
    State(events): State<Arc<Events<S>>>,
    connection: Option<Extension<Arc<ConnectionHandle>>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    Query::read(&uri, &[])?;
    let subscriber = events.subscribe().ok_or_else(|| {
        let error = format!("there are {} subscribers already", events.max_subscribers);
        let help = "close one of them, or try again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error, help)
    })?;
    if let Some(Extension(connection)) = connection {
        connection.set_streaming();
    }
    let frames = stream::unfold(subscriber, |mut subscriber| async move {
        let frame = subscriber.next().await?;
        Some((Ok::<_, Infallible>(frame), subscriber))
    });
    // The connection has no other use after the end.
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CONNECTION, "close")];
    Ok((headers, Body::from_stream(frames)).into_response())
}

/// One subscriber. Its place is free, and the publisher ends after the last one, when it is dropped.
struct Subscriber {
    status: watch::Receiver<Bytes>,
    events: broadcast::Receiver<Bytes>,
    /// Events that it has missed.
    dropped: u64,
    ends: Ends,
    _publisher: Arc<Publisher>,
    _place: OwnedSemaphorePermit,
}

impl Subscriber {
    fn new(publisher: Arc<Publisher>, place: OwnedSemaphorePermit, ends: Ends) -> Subscriber {
        let (mut status, events) = publisher.subscribe();
        // One who joins others gets the last status at once. There is none before the first.
        if !status.borrow_and_update().is_empty() {
            status.mark_changed();
        }
        Subscriber { status, events, dropped: 0, ends, _publisher: publisher, _place: place }
    }

    /// Returns the next event, encoded; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            biased;
            () = self.ends.ended() => None,
            // Before the others: there is one a second, so it cannot keep them waiting for long.
            changed = self.status.changed() => {
                changed.ok()?;
                Some(self.status.borrow_and_update().clone())
            }
            event = self.events.recv() => match event {
                Ok(event) => Some(event),
                Err(RecvError::Lagged(missed)) => {
                    self.dropped = self.dropped.saturating_add(missed);
                    Some(frame("dropped", &json!({ "dropped": self.dropped })))
                }
                Err(RecvError::Closed) => None,
            },
        }
    }
}

/// Adds a time to an event, as RFC 3339 writes it.
pub(super) fn at(time: Micros, mut event: Value) -> Value {
    let micros = i64::try_from(time).unwrap_or(i64::MAX);
    event["at"] = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX).to_string().into();
    event
}

/// Encodes an event. Its JSON is one line: line breaks in texts are escaped.
fn frame(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
