//! Accepts connections, does their TLS handshake if they have TLS, and hands them to the threads that serve them.
//!
//! Each such thread has a tokio runtime, so that a request never changes threads. One runtime per core takes little
//! more than half the CPU of one runtime for all cores, since nothing is passed between threads. Such runtimes do not
//! steal work from each other, so each new connection goes to the thread with the fewest connections.

use std::fs::File;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::connections::{ConnectionHandle, Connections, TICK};
use super::listen::{BoundSocket, UnixSocketFile};
use super::stream::{DetachedStream, Stream};
use super::tls::Handshakes;
use weir_common::allocator;
use weir_common::threads;
use weir_common::throttle::Throttle;

/// The wait before the next accept if the system is out of descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// A socket that accepts connections on the current runtime.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// A Unix socket, whose file is removed when the listener is dropped.
    Unix(UnixListener, UnixSocketFile),
}

impl Listener {
    /// Registers a socket that listens with the current runtime.
    pub fn attach(socket: BoundSocket) -> io::Result<Listener> {
        Ok(match socket {
            BoundSocket::Tcp { socket, .. } => Listener::Tcp(TcpListener::from_std(socket.into())?),
            BoundSocket::Unix(socket, file) => {
                Listener::Unix(UnixListener::from_std(socket.into())?, file)
            }
        })
    }

    pub async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept().await?.0),
            Listener::Unix(listener, _) => Stream::Unix(listener.accept().await?.0),
        })
    }
}

#[derive(Clone, Debug)]
pub struct Opener {
    pub handshakes: Option<Arc<Handshakes>>,
    /// The timeout of waiting for a client to start its handshake, and of the handshake.
    pub timeout: Duration,
}

impl Opener {
    /// Does the handshake, if there is one. None if it fails, takes too long, the connection is
    /// evicted, or `shutdown` turns true before the client has sent anything.
    pub async fn open(
        &self,
        socket: Stream,
        handle: &Arc<ConnectionHandle>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Option<Stream> {
        let Some(handshakes) = &self.handshakes else { return Some(socket) };
        let handshake = async {
            // A client that sends nothing costs only its connection, one that disconnects not even that.
            tokio::select! {
                biased;
                is_open = socket.readable() => is_open.ok()?.then_some(())?,
                _ = shutdown.wait_for(|shutdown| *shutdown) => return None,
            }
            handle.set_greeted();
            handshakes.run(socket, handle.clone()).await
        };
        tokio::select! {
            biased;
            stream = timeout(self.timeout, handshake) => stream.ok().flatten(),
            () = handle.evicted() => None,
        }
    }
}

/// Accepts connections and hands them to `serve`. Never ends.
pub async fn accept(
    listener: Listener,
    connections: Arc<Connections>,
    mut serve: impl FnMut(Stream, ConnectionHandle),
) {
    let limits = connections.limits;
    let (failure_log, refusal_log) = (Throttle::default(), Throttle::default());
    let mut spares = Spares::new(limits.max);
    let mut burst = Burst::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    spares.refill();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ticks.tick() => {
                connections.tick();
                spares.refill();
                if burst.is_over(connections.ended()) {
                    // It takes time, and others connect meanwhile.
                    drop(spawn_blocking(allocator::trim));
                }
                continue;
            }
        };
        let socket = match accepted {
            Ok(socket) => {
                // If it used up a spare descriptor, another connection has to close.
                if !spares.refill() {
                    connections.evict();
                }
                socket
            }
            Err(error) => {
                if let Some(suppressed) = failure_log.pass() {
                    let listener = limits.listener;
                    tracing::warn!(%error, listener, suppressed, "cannot accept a connection");
                }
                // Other errors concern one client, and others need not wait. With a spare released
                // the next attempt succeeds; without, evict a connection, but one at a time: the
                // system reports exhaustion even when no client waits.
                if is_exhausted(&error) && !spares.release() {
                    if !connections.is_evicting() {
                        connections.evict_older();
                    }
                    sleep(ACCEPT_BACKOFF).await;
                }
                continue;
            }
        };
        match connections.admit().await {
            Some(handle) => serve(socket, handle),
            None => {
                if let Some(suppressed) = refusal_log.pass() {
                    tracing::warn!(
                        listener = limits.listener,
                        limit = limits.max,
                        setting = limits.setting,
                        suppressed,
                        "connection refused: all other connections have requests in progress"
                    );
                }
            }
        }
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// Many connections that close: the allocator keeps their memory, unless it is asked for it.
#[derive(Debug, Default)]
struct Burst {
    ticks: u32,
    /// The connections that had closed two seconds ago.
    seen: u64,
    /// The connections that have closed since memory was returned.
    pending: u64,
}

impl Burst {
    /// This many connections keep some megabytes.
    const MANY: u64 = 256;
    /// Two seconds.
    const TICKS: u32 = 8;

    /// Takes, at each tick, how many connections have closed so far. Returns whether many have, and hardly any do so now.
    fn is_over(&mut self, ended: u64) -> bool {
        self.ticks += 1;
        if self.ticks < Burst::TICKS {
            return false;
        }
        self.ticks = 0;
        let closed = ended - self.seen;
        self.seen = ended;
        self.pending += closed;
        let is_over = self.pending >= Burst::MANY && closed < Burst::MANY / 8;
        if is_over {
            self.pending = 0;
        }
        is_over
    }
}

/// File descriptors in reserve, for newcomers when no others are left.
#[derive(Debug)]
struct Spares {
    count: usize,
    open: Vec<File>,
}

impl Spares {
    const MAX: usize = 4;

    /// Returns the spares of a listener with up to `connections`: none if there are few descriptors, which readers of
    /// rules and others need.
    fn new(connections: usize) -> Spares {
        Spares { count: Spares::MAX.min(connections / 16), open: Vec::new() }
    }

    /// Reopens released descriptors. Returns false if the system has none left.
    fn refill(&mut self) -> bool {
        while self.open.len() < self.count {
            let Ok(spare) = File::open("/dev/null") else { return false };
            self.open.push(spare);
        }
        true
    }

    /// Closes one descriptor. Returns false if none is left.
    fn release(&mut self) -> bool {
        self.open.pop().is_some()
    }
}

/// The threads that serve the connections of one listener.
#[derive(Debug)]
pub struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    sockets: mpsc::UnboundedSender<(DetachedStream, ConnectionHandle, Arc<()>)>,
    /// Cloned by each open connection.
    open: Arc<()>,
    ended: oneshot::Receiver<()>,
}

impl Workers {
    /// Starts `threads` threads, named `name` and their number. Each calls `init` once, which returns a future to run in the
    /// background and the function that serves a connection.
    pub fn start<Background, Serve, Served>(
        name: &str,
        threads: usize,
        init: impl Fn() -> (Background, Serve) + Clone + Send + 'static,
    ) -> anyhow::Result<Workers>
    where
        Background: Future<Output = ()> + Send + 'static,
        Serve: Fn(Stream, Arc<ConnectionHandle>) -> Served,
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
        Ok(Workers(workers.collect::<io::Result<_>>()?))
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
        for Worker { sockets, ended, .. } in self.0 {
            drop(sockets);
            // A thread that has panicked has no connections.
            let _ = ended.await;
        }
    }

    fn hand_out(&self, next: usize, socket: Stream, handle: ConnectionHandle) {
        // Round robin among workers with equally many connections.
        let (before, after) = self.0.split_at(next % self.0.len());
        let fewest =
            after.iter().chain(before).min_by_key(|worker| Arc::strong_count(&worker.open));
        let Some(worker) = fewest else { return };
        let handed = socket.prepare().and_then(|()| socket.detach());
        if let Ok(socket) = handed {
            let _ = worker.sockets.send((socket, handle, worker.open.clone()));
        }
    }
}

/// Serves the connections that are handed over, until the channel and all connections are closed.
async fn work<Served>(
    mut handed: mpsc::UnboundedReceiver<(DetachedStream, ConnectionHandle, Arc<()>)>,
    serve: impl Fn(Stream, Arc<ConnectionHandle>) -> Served,
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

#[cfg(test)]
mod tests {
    use super::Burst;

    /// Returns how often memory is returned while these numbers of connections close, each in two seconds.
    fn trims(closed: &[u64]) -> usize {
        let (mut burst, mut ended, mut trims) = (Burst::default(), 0, 0);
        for count in closed {
            ended += count;
            trims += (0..Burst::TICKS).filter(|_| burst.is_over(ended)).count();
        }
        trims
    }

    #[test]
    fn memory_is_returned_once_after_a_burst() {
        assert_eq!(trims(&[0, 8_000, 0, 0, 0]), 1);
        assert_eq!(trims(&[4_000, 4_000, 20, 0, 0]), 1, "after its end");
        assert_eq!(trims(&[8_000, 0, 8_000, 0]), 2);
    }

    #[test]
    fn connections_that_come_and_go_return_it_now_and_then() {
        assert_eq!(trims(&[0; 100]), 0);
        assert_eq!(trims(&[16; 64]), 4);
        assert_eq!(trims(&[1_000; 64]), 0, "while many close");
    }
}
