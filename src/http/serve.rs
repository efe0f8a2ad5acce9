//! Serves HTTP/1.1 connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::patient::Patient;

/// What a client may take of the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// How long a request's head may take to arrive, from when its connection is ready for it; and
    /// how long a client may take nothing of an answer.
    pub timeout: Duration,
}

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// How long to wait where there is no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// How long a connection may be idle from its beginning though others wait.
const TO_BEGIN: Duration = Duration::from_secs(1);

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
    let crowded = Arc::new(Notify::new());
    let accept = async {
        loop {
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(NO_ROOM).await;
                    continue;
                }
            };
            // Others wait to be accepted.
            while room.available_permits() == 0 {
                // The connection that was opened first ends with the answer it is at: now, where
                // there is none.
                crowded.notify_one();
                let _ = tokio::time::timeout(NO_ROOM, room.acquire()).await;
            }
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let (router, closed, serving) = (router.clone(), closed.clone(), serving.clone());
            let crowded = crowded.clone();
            tokio::spawn(async move {
                connection(socket, router, limits.timeout, &crowded, closed).await;
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
    crowded: &Notify,
    mut closed: watch::Receiver<bool>,
) {
    // Answers are small.
    let _ = socket.set_nodelay(true);
    // It is added to the time, which may be more than a time can be: then there is none.
    let for_head = Instant::now().checked_add(timeout).map(|_| timeout);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(for_head)
        .max_buf_size(MAX_HEAD)
        .serve_connection(
            TokioIo::new(Patient::new(socket, timeout)),
            TowerToHyperService::new(router),
        );
    let mut connection = std::pin::pin!(connection);
    let gives_way = async {
        tokio::time::sleep(TO_BEGIN).await;
        crowded.notified().await;
    };
    tokio::select! {
        // What went wrong was the client's doing.
        _ = connection.as_mut() => return,
        _ = closed.wait_for(|closed| *closed) => {}
        () = gives_way => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
