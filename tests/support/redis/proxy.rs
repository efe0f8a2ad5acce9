//! A proxy in front of Redis that delays, stalls, closes, resets and refuses connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards connections from a port of its own to another port.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    delay_micros: AtomicU64,
    /// One reply in this many is delayed by a random time from the range below; 0 means none.
    slow_one_in: AtomicU64,
    slow_micros: Mutex<Range<u64>>,
    stalled: AtomicBool,
    refuses: AtomicBool,
    ended: AtomicBool,
    accepted: AtomicUsize,
    slowed: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(client) = client else { continue };
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                if shared.refuses.load(Ordering::Relaxed) {
                    reset(&client);
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                for stream in [&client, &server] {
                    shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let directions = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), false),
                    (server, client, true),
                ];
                for (from, to, is_reply) in directions {
                    let shared = shared.clone();
                    thread::spawn(move || forward(from, to, is_reply, &shared));
                }
            }
        });
        Proxy { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Delays replies.
    pub fn delay(&self, by: Duration) {
        self.state.delay_micros.store(by.as_micros() as u64, Ordering::Relaxed);
    }

    /// Delays one reply in `one_in` by a random time from a range.
    pub fn slow_some(&self, one_in: u64, by: Range<Duration>) {
        let micros = |time: Duration| time.as_micros() as u64;
        *self.state.slow_micros.lock().unwrap() = micros(by.start)..micros(by.end);
        self.state.slow_one_in.store(one_in, Ordering::Relaxed);
    }

    /// The number of replies that [`slow_some`](Self::slow_some) has delayed.
    pub fn slowed(&self) -> u64 {
        self.state.slowed.load(Ordering::Relaxed)
    }

    /// Stops forwarding. Connections stay open, and new ones are accepted.
    pub fn stall(&self) {
        self.state.stalled.store(true, Ordering::Relaxed);
    }

    /// Resets all connections, and new ones.
    pub fn refuse(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
        self.reset();
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            reset(&stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Forwards normally again.
    pub fn resume(&self) {
        self.delay(Duration::ZERO);
        self.slow_some(0, Duration::ZERO..Duration::ZERO);
        self.state.stalled.store(false, Ordering::Relaxed);
        self.state.refuses.store(false, Ordering::Relaxed);
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl State {
    /// Chooses the random delay of one reply.
    fn slowness(&self) -> Duration {
        let one_in = self.slow_one_in.load(Ordering::Relaxed);
        if one_in == 0 || !random().is_multiple_of(one_in) {
            return Duration::ZERO;
        }
        self.slowed.fetch_add(1, Ordering::Relaxed);
        let range = self.slow_micros.lock().unwrap().clone();
        Duration::from_micros(range.start + random() % (range.end - range.start).max(1))
    }
}

/// A random number.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Each state has random keys.
    RandomState::new().build_hasher().finish()
}

/// Makes the socket send a reset when it is closed: it must not linger.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_reply: bool, state: &State) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let delay = Duration::from_micros(state.delay_micros.load(Ordering::Relaxed));
        let delay = if is_reply { delay + state.slowness() } else { Duration::ZERO };
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        while state.stalled.load(Ordering::Relaxed) && !state.ended.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the listener, so that it notices.
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}
