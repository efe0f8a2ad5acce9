//! A proxy between weir and Redis that delays, stalls, cuts, resets and refuses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Listens on a port of its own and passes on to another.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    delay_micros: AtomicU64,
    stalled: AtomicBool,
    refuses: AtomicBool,
    ended: AtomicBool,
    accepted: AtomicUsize,
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
                let ways = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), false),
                    (server, client, true),
                ];
                for (from, to, is_answer) in ways {
                    let shared = shared.clone();
                    thread::spawn(move || pass(from, to, is_answer, &shared));
                }
            }
        });
        Proxy { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Answers come so much later.
    pub fn delay(&self, by: Duration) {
        self.state.delay_micros.store(by.as_micros() as u64, Ordering::Relaxed);
    }

    /// Nothing is passed on; connections stay, and new ones are taken.
    pub fn stall(&self) {
        self.state.stalled.store(true, Ordering::Relaxed);
    }

    /// New connections are reset, and those there are.
    pub fn refuse(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
        self.reset();
    }

    /// Ends all connections in good order.
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

    /// Passes on as if nothing had been.
    pub fn resume(&self) {
        self.delay(Duration::ZERO);
        self.state.stalled.store(false, Ordering::Relaxed);
        self.state.refuses.store(false, Ordering::Relaxed);
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

/// What is sent when a socket is closed while it may not linger is a reset.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_answer: bool, state: &State) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let delay = Duration::from_micros(state.delay_micros.load(Ordering::Relaxed));
        if is_answer && !delay.is_zero() {
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
        // So that the listener's thread sees that it is over.
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}
