//! A bound on the interim responses (1xx) of servers.
//!
//! A client has to skip interim responses, and neither hyper nor h2 counts them: a server that sends them
//! continuously would keep a core busy and, over HTTP/2, fill memory. Every client of weir accepts
//! `MAX_INTERIM` for a request; more end the call and its connection.

mod frames;
mod stream;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use hyper::ext::on_informational;
use tokio::sync::Notify;

pub use stream::BoundedStream;

/// The maximum number of interim responses to a request.
const MAX_INTERIM: u32 = 32;

/// A server sent too many interim responses.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server sent more than {MAX_INTERIM} interim responses (1xx) to a request")]
pub struct TooMany;

/// Counts the interim responses to a request of HTTP/1. The future resolves when there are too many.
pub(crate) fn exceeded<B>(request: &mut Request<B>) -> impl Future<Output = ()> + Send + use<B> {
    let (count, exceeded) = (AtomicU32::new(0), Arc::new(Notify::new()));
    let notify = exceeded.clone();
    on_informational(request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) >= MAX_INTERIM {
            notify.notify_one();
        }
    });
    async move { exceeded.notified().await }
}
