//! Threads that serve connections: one runtime each, so that a request never changes threads.
//!
//! A runtime of its own for each core costs little more than half of what one runtime for all
//! cores does, as nothing is handed from thread to thread. What such runtimes cannot do is to take
//! work from each other, so connections are spread when they come: each goes to the thread that
//! has fewest.

use std::future::Future;
use std::io;
use std::net::TcpStream as Socket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::connections::{ConnectionHandle, Connections, accept};
use crate::threads;

/// Bytes of answers that the system keeps of a connection for a client that does not read. It would
/// go up to megabytes, and answer for as long.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// The threads, for as long as connections come.
#[derive(Debug)]
pub struct Workers {
    each: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    sockets: mpsc::UnboundedSender<(Socket, ConnectionHandle, Open)>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

/// Counts one connection of a worker, for as long as it is there.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: &Arc<AtomicUsize>) -> Open {
        open.fetch_add(1, Ordering::Relaxed);
        Open(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `threads` threads. Each calls `begin` once: it does what that gives it, and serves
    /// each of its connections as that says.
    pub fn start<Begun, Serve, Served>(
        threads: usize,
        begin: impl Fn() -> (Begun, Serve) + Clone + Send + 'static,
    ) -> anyhow::Result<Workers>
    where
        Begun: Future<Output = ()> + Send + 'static,
        Serve: Fn(TcpStream, Arc<ConnectionHandle>) -> Served,
        Served: Future<Output = ()> + Send + 'static,
    {
        let each = (0..threads).map(|i| {
            let begin = begin.clone();
            #[expect(clippy::disallowed_methods, reason = "bounded by the number of connections")]
            let (sockets, handed) = mpsc::unbounded_channel();
            let ended = threads::start(&format!("weir-{i}"), move || async move {
                let (begun, serve) = begin();
                tokio::spawn(begun);
                work(handed, serve).await;
            })?;
            Ok(Worker { sockets, open: Arc::default(), ended })
        });
        let each: io::Result<_> = each.collect();
        Ok(Workers { each: each.context("cannot start a thread")? })
    }

    /// Accepts connections until `closed`; then ends when the last of them has ended.
    pub async fn serve(
        self,
        listener: TcpListener,
        connections: Arc<Connections>,
        closed: impl Future<Output = ()>,
    ) {
        let mut turn = 0;
        let hand_out = |socket, handle| {
            turn += 1;
            self.hand_out(turn, socket, handle);
        };
        tokio::select! {
            () = accept(listener, connections, hand_out) => {}
            () = closed => {}
        }
        for Worker { sockets, ended, .. } in self.each {
            drop(sockets);
            // A thread that failed has no connections.
            let _ = ended.await;
        }
    }

    fn hand_out(&self, turn: usize, socket: TcpStream, handle: ConnectionHandle) {
        // Of those with equally many, the next in turn.
        let (before, after) = self.each.split_at(turn % self.each.len());
        let fewest = after.iter().chain(before).min_by_key(|worker| worker.open());
        let Some(worker) = fewest else { return };
        let handed = prepare(&socket).and_then(|()| socket.into_std());
        if let Ok(socket) = handed {
            let _ = worker.sockets.send((socket, handle, Open::new(&worker.open)));
        }
    }
}

/// Sends answers at once, and bounds what the system keeps of them.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    Ok(set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)?)
}

impl Worker {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Serves what is handed over, until no more comes and all has been served.
async fn work<Served>(
    mut handed: mpsc::UnboundedReceiver<(Socket, ConnectionHandle, Open)>,
    serve: impl Fn(TcpStream, Arc<ConnectionHandle>) -> Served,
) where
    Served: Future<Output = ()> + Send + 'static,
{
    // Closes when the last connection has dropped its end.
    let (serving, mut served) = mpsc::channel::<()>(1);
    while let Some((socket, handle, open)) = handed.recv().await {
        let Ok(socket) = TcpStream::from_std(socket) else { continue };
        let handle = Arc::new(handle);
        let (connection, serving) = (serve(socket, handle.clone()), serving.clone());
        tokio::spawn(async move {
            connection.await;
            // After the socket: its descriptor is free by now.
            drop((handle, open, serving));
        });
    }
    drop(serving);
    served.recv().await;
}
