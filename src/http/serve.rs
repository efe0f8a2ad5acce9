//! Serves HTTP/1.1 connections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

/// What a client may take of the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// How long a request's head may take to arrive, from when its connection is ready for it; and
    /// how long a request may take in all.
    pub timeout: Duration,
}

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// How long to wait where the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Serves connections until `closed` turns true; then ends when all requests are answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    closed: watch::Receiver<bool>,
) {
    let (serving, mut served) = mpsc::channel::<()>(1);
    let mut until = closed.clone();
    let room = Arc::new(Semaphore::new(limits.max_connections));
    let accept = async {
        loop {
            // Others wait to be accepted.
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(NO_ROOM).await;
                    continue;
                }
            };
            let (router, closed, serving) = (router.clone(), closed.clone(), serving.clone());
            tokio::spawn(async move {
                connection(socket, router, limits.timeout, closed).await;
                drop((permit, serving));
            });
        }
    };
    tokio::select! {
        () = accept => {}
        _ = until.wait_for(|closed| *closed) => {}
    }
    drop((listener, serving));
    served.recv().await;
}

async fn connection(
    socket: TcpStream,
    router: Router,
    timeout: Duration,
    mut closed: watch::Receiver<bool>,
) {
    // Answers are small.
    let _ = socket.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeout)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // What went wrong was the client's doing.
        _ = connection.as_mut() => return,
        _ = closed.wait_for(|closed| *closed) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
