//! Serves gRPC over the h2 crate, a task for each connection.
//!
//! `ShouldRateLimit` is told by its path before anything else, read and written without generated
//! code, and answered on the connection's own task: at once where the store does so, else as its
//! answers come. So the answers to all requests that came with one read, or that the store answered
//! together, leave with one write. Every other method goes to tonic's services.

mod budget;
mod call;
mod connection;
mod fair;
mod hold;
mod route;
mod turns;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tonic::service::Routes;

use self::budget::Budget;
use self::fair::Fair;
pub use self::turns::Turns;
use crate::connections::Handle;
use crate::service::RateLimit;
use crate::store::Store;

/// What a client may take of the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest request, in bytes.
    pub max_message: usize,
    /// The largest header list of a request, in bytes.
    pub max_headers: u32,
    /// Requests in flight on one connection.
    pub max_streams: u32,
    /// How often a connection is pinged; zero: never.
    pub keepalive: Duration,
    /// How long the answer to a ping may take; also the time for a connection to begin, and for
    /// a request to arrive whole.
    pub timeout: Duration,
}

/// What is served, and how.
#[derive(Debug)]
pub struct Grpc<S> {
    rate_limit: RateLimit<S>,
    /// Everything but `ShouldRateLimit`.
    others: Routes,
    limits: Limits,
    slow: Budget,
}

/// The path of `ShouldRateLimit`.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

impl<S: Store + 'static> Grpc<S> {
    pub fn new(rate_limit: RateLimit<S>, others: Routes, limits: Limits) -> Grpc<S> {
        Grpc { rate_limit, others: others.prepare(), limits, slow: Budget::default() }
    }

    /// Serves one connection to its end, beside the others of its thread. When `closed` turns true the client is told to go away;
    /// what it has asked by then is answered.
    pub async fn serve(
        self: &Arc<Self>,
        io: impl AsyncRead + AsyncWrite + Unpin,
        handle: &Handle,
        closed: watch::Receiver<bool>,
        turns: &Turns,
    ) {
        let turn = turns.turn();
        let mut served = pin!(connection::serve(self, Fair::new(io, turn.clone()), handle, closed));
        poll_fn(|cx| {
            turn.begin();
            served.as_mut().poll(cx)
        })
        .await;
    }

    /// Answers a request, or begins to: what is left to do is for the connection, whose calls of
    /// other methods each own a part of `others`.
    fn begin(
        self: &Arc<Self>,
        request: Request<h2::RecvStream>,
        respond: SendResponse<Bytes>,
        others: &Arc<()>,
    ) -> Option<impl Future<Output = ()> + Send + use<S>> {
        if request.uri().path() == SHOULD_RATE_LIMIT {
            return call::begin(self, request, respond);
        }
        tokio::spawn(route::forward(self.others.clone(), request, respond, others.clone()));
        None
    }
}
