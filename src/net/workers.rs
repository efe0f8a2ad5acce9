//! Threads that serve connections, with one runtime each, so that a request never changes threads.
//!
//! One runtime per core costs little more than half of what one runtime for all cores costs, since
//! nothing is passed between threads. Such runtimes cannot steal work from each other, so
//! connections are balanced when they are accepted: each goes to the thread with the fewest
//! connections.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::{ConnectionHandle, Connections, DetachedSocket, Listener, Socket, accept};
use weir_common::threads;

/// The threads that serve the connections of one listener.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    sockets: mpsc::UnboundedSender<(DetachedSocket, ConnectionHandle, OpenGuard)>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

/// Counts one open connection of a worker until it is dropped.
#[derive(Debug)]
struct OpenGuard(Arc<AtomicUsize>);

impl OpenGuard {
    fn new(open: &Arc<AtomicUsize>) -> OpenGuard {
        open.fetch_add(1, Ordering::Relaxed);
        OpenGuard(open.clone())
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `threads` threads, named `name` and their number. Each calls `init` once, which returns a future to run in the
    /// background and the function that serves a connection.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn start<Background, Serve, Served>(
        name: &str,
        threads: usize,
        init: impl Fn() -> (Background, Serve) + Clone + Send + 'static,
    ) -> anyhow::Result<Workers>
    where
        Background: Future<Output = ()> + Send + 'static,
        Serve: Fn(Socket, Arc<ConnectionHandle>) -> Served,
        Served: Future<Output = ()> + Send + 'static,
    {
        let workers = (0..threads).map(|i| {
            let init = init.clone();
            #[expect(clippy::disallowed_methods, reason = "bounded by the number of connections")]
            let (sockets, handed) = mpsc::unbounded_channel();
            let ended = threads::start(&format!("{name}-{i}"), move || async move {
                let (background, serve) = init();
                tokio::spawn(background);
                work(handed, serve).await;
            })?;
            Ok(Worker { sockets, open: Arc::default(), ended })
        });
        let workers: io::Result<_> = workers.collect();
        Ok(Workers { workers: workers? })
    }

    /// Accepts connections until `closed` ends. Then calls `on_closed`, once no client can connect
    /// any more, and ends when the last connection is closed.
    pub async fn serve(
        self,
        listener: Listener,
        connections: Arc<Connections>,
        closed: impl Future<Output = ()>,
        on_closed: impl FnOnce(),
    ) {
        let mut next = 0;
        let hand_out = |socket, handle| {
            next += 1;
            self.hand_out(next, socket, handle);
        };
        tokio::select! {
            // First: clients that have connected are served, or would be reset.
            biased;
            () = accept(listener, connections, hand_out) => {}
            () = closed => {}
        }
        on_closed();
        for Worker { sockets, ended, .. } in self.workers {
            drop(sockets);
            // A thread that has panicked has no connections.
            let _ = ended.await;
        }
    }

    fn hand_out(&self, next: usize, socket: Socket, handle: ConnectionHandle) {
        // Round robin among workers with equally many connections.
        let (before, after) = self.workers.split_at(next % self.workers.len());
        let fewest = after.iter().chain(before).min_by_key(|worker| worker.open());
        let Some(worker) = fewest else { return };
        let handed = socket.prepare().and_then(|()| socket.detach());
        if let Ok(socket) = handed {
            let _ = worker.sockets.send((socket, handle, OpenGuard::new(&worker.open)));
        }
    }
}

impl Worker {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Serves the connections that are handed over, until the channel and all connections are closed.
async fn work<Served>(
    mut handed: mpsc::UnboundedReceiver<(DetachedSocket, ConnectionHandle, OpenGuard)>,
    serve: impl Fn(Socket, Arc<ConnectionHandle>) -> Served,
) where
    Served: Future<Output = ()> + Send + 'static,
{
    // The receiver ends when the last connection has dropped its sender.
    let (serving, mut served) = mpsc::channel::<()>(1);
    while let Some((socket, handle, open)) = handed.recv().await {
        let Ok(socket) = socket.attach() else { continue };
        let handle = Arc::new(handle);
        let (connection, serving) = (serve(socket, handle.clone()), serving.clone());
        tokio::spawn(async move {
            connection.await;
            // After the socket: its descriptor is free.
            drop((handle, open, serving));
        });
    }
    drop(serving);
    served.recv().await;
}
