//! Serves HTTP/1.1 connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tower_service::Service;

use super::HEALTH;
use super::write_timeout::WriteTimeout;
use crate::connections::{ConnectionHandle, Connections, accept};
use crate::workers::prepare;

/// What a client may take of the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// How long a request's head may take to arrive, from when its connection is ready for it;
    /// then its body; and how long a client may take to receive an answer.
    pub timeout: Duration,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// Bytes of large bodies and answers of all clients together.
    pub max_buffered: usize,
}

/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Connections beyond the limit, which are served health alone: so a crowd of requests does not
/// keep probes from an answer.
pub const MAX_OVERFLOW_CONNECTIONS: usize = 16;

/// Serves connections until `closed` turns true; then ends when all requests are answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    connections: Arc<Connections>,
    timeout: Duration,
    closed: watch::Receiver<bool>,
) {
    let (serving, mut served) = mpsc::channel::<()>(1);
    let mut until = closed.clone();
    let spawn = |socket, handle: ConnectionHandle| {
        let (router, closed, serving) = (router.clone(), closed.clone(), serving.clone());
        tokio::spawn(async move {
            let handle = Arc::new(handle);
            connection(socket, router, timeout, handle.clone(), closed).await;
            // After the socket: its descriptor is free by now.
            drop((handle, serving));
        });
    };
    tokio::select! {
        () = accept(listener, connections, spawn) => {}
        _ = until.wait_for(|closed| *closed) => {}
    }
    drop(serving);
    served.recv().await;
}

async fn connection(
    socket: TcpStream,
    router: Router,
    timeout: Duration,
    handle: Arc<ConnectionHandle>,
    mut closed: watch::Receiver<bool>,
) {
    // Where it fails, so will the connection.
    let _ = prepare(&socket);
    // It is added to the time, which may be more than a time can be: then there is none.
    let for_head = Instant::now().checked_add(timeout).map(|_| timeout);
    let service = service_fn(|request| answer(router.clone(), request, handle.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(for_head)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(socket, timeout, handle.clone())),
            service,
        );
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        // What went wrong was the client's doing.
        _ = connection.as_mut() => return,
        // A request that has not arrived whole is dropped.
        () = handle.evicted() => return,
        _ = closed.wait_for(|closed| *closed) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Answers one request, and says so to the listener: whose request is here whole keeps its
/// connection.
async fn answer(
    mut router: Router,
    request: Request<Incoming>,
    handle: Arc<ConnectionHandle>,
) -> Result<Response, Infallible> {
    if handle.is_overflow() && request.uri().path() != HEALTH {
        let crowded = (StatusCode::SERVICE_UNAVAILABLE, [(CONNECTION, "close")]);
        return Ok(crowded.into_response());
    }
    let mut request = request.map(Body::new);
    handle.set_busy(request.body().is_end_stream());
    request.extensions_mut().insert(handle.clone());
    let response = router.call(request).await;
    handle.set_busy(false);
    handle.count_request();
    response
}
