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
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// How long to wait where the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// That connections are refused is logged at most once in this time.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Bytes of answers that the system keeps of a connection for a client that does not read. It would
/// go up to megabytes, and answer for as long.
const ANSWERS: usize = 128 << 10;

/// The threads, for as long as connections come.
#[derive(Debug)]
pub struct Workers {
    each: Vec<Worker>,
    most: usize,
    counts: Counts,
}

#[derive(Debug)]
struct Worker {
    sockets: mpsc::UnboundedSender<(Socket, Open)>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

/// Counts one connection of a worker, for as long as it is there.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>, Gauge);

impl Open {
    fn new(open: &Arc<AtomicUsize>, all: &Gauge) -> Open {
        open.fetch_add(1, Ordering::Relaxed);
        all.inc();
        Open(open.clone(), all.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.dec();
    }
}

/// What is counted of connections.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub open: Gauge,
    /// Closed at once, as there were too many.
    pub refused: Counter,
}

impl Workers {
    /// Starts `threads` threads for at most `most` connections. Each calls `begin` once: it does
    /// what that gives it, and serves each of its connections as that says.
    pub fn start<Begun, Serve, Served>(
        threads: usize,
        most: usize,
        counts: Counts,
        begin: impl Fn() -> (Begun, Serve) + Clone + Send + 'static,
    ) -> anyhow::Result<Workers>
    where
        Begun: Future<Output = ()> + Send + 'static,
        Serve: Fn(TcpStream) -> Served,
        Served: Future<Output = ()> + Send + 'static,
    {
        let each = (0..threads).map(|i| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let begin = begin.clone();
            #[expect(clippy::disallowed_methods, reason = "bounded by the number of connections")]
            let (sockets, handed) = mpsc::unbounded_channel();
            let (ends, ended) = oneshot::channel();
            let work = move || {
                runtime.block_on(async {
                    let (begun, serve) = begin();
                    tokio::spawn(begun);
                    work(handed, serve).await;
                });
                // Nobody waits where the service ends without draining.
                let _ = ends.send(());
            };
            std::thread::Builder::new().name(format!("weir-{i}")).spawn(work)?;
            Ok(Worker { sockets, open: Arc::default(), ended })
        });
        let each: std::io::Result<_> = each.collect();
        Ok(Workers { each: each.context("cannot start a thread")?, most, counts })
    }

    /// Accepts connections until `closed`; then ends when the last of them has ended.
    pub async fn accept(self, listener: TcpListener, closed: impl Future<Output = ()>) {
        tokio::select! {
            () = self.hand_out(&listener) => {}
            () = closed => {}
        }
        drop(listener);
        for Worker { sockets, ended, .. } in self.each {
            drop(sockets);
            // A thread that failed has no connections.
            let _ = ended.await;
        }
    }

    async fn hand_out(&self, listener: &TcpListener) {
        let mut told = None;
        for turn in 0.. {
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Its client may have gone away; or there are no file descriptors left.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(NO_ROOM).await;
                    continue;
                }
            };
            if self.counts.open.get() >= i64::try_from(self.most).unwrap_or(i64::MAX) {
                self.counts.refused.inc();
                if is_due(&mut told, Instant::now()) {
                    let most = self.most;
                    tracing::warn!(
                        "more than {most} connections are closed at once (setting grpc.max_connections)"
                    );
                }
                continue;
            }
            // Of those with equally many, the next in turn.
            let (before, after) = self.each.split_at(turn % self.each.len());
            let fewest = after.iter().chain(before).min_by_key(|worker| worker.open());
            let Some(worker) = fewest else { return };
            let handed = prepare(&socket).and_then(|()| socket.into_std());
            if let Ok(socket) = handed {
                let _ = worker.sockets.send((socket, Open::new(&worker.open, &self.counts.open)));
            }
        }
    }
}

/// Whether to tell again, where `told` is when that was done last.
fn is_due(told: &mut Option<Instant>, now: Instant) -> bool {
    let due = told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
    if due {
        *told = Some(now);
    }
    due
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    Ok(set_socket_send_buffer_size(socket, ANSWERS)?)
}

impl Worker {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Serves what is handed over, until no more comes and all has been served.
async fn work<Served>(
    mut handed: mpsc::UnboundedReceiver<(Socket, Open)>,
    serve: impl Fn(TcpStream) -> Served,
) where
    Served: Future<Output = ()> + Send + 'static,
{
    // Closes when the last connection has dropped its end.
    let (serving, mut served) = mpsc::channel::<()>(1);
    while let Some((socket, open)) = handed.recv().await {
        let Ok(socket) = TcpStream::from_std(socket) else { continue };
        let (connection, serving) = (serve(socket), serving.clone());
        tokio::spawn(async move {
            connection.await;
            drop((open, serving));
        });
    }
    drop(serving);
    served.recv().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connections_are_told_of_now_and_then() {
        let (mut told, now) = (None, Instant::now());
        let due: Vec<u64> = (0..30)
            .filter(|second| is_due(&mut told, now + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 10, 20]);
    }
}
