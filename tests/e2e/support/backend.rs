//! The backend behind Envoy: answers every request with 200 unless it is told otherwise, and counts them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::SystemTime;

/// A running backend. Stops when dropped.
#[derive(Debug)]
pub struct Backend {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the connections of a backend share.
#[derive(Debug, Default)]
pub struct Shared {
    counts: Mutex<Counts>,
    changed: Condvar,
    seen_at: Mutex<Vec<SystemTime>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    stopped: bool,
    seen: usize,
    /// Requests that are held now, and the maximum at one time.
    held: usize,
    most_held: usize,
    /// How many of the held requests to answer.
    released: usize,
}

impl Backend {
    pub fn start() -> Backend {
        Backend::answering(answer)
    }

    /// Starts a backend that passes each connection to `answer`.
    pub fn answering(answer: fn(TcpStream, &Shared)) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("has an address");
        let backend = Backend { address, shared: Arc::default() };
        let shared = backend.shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.counts().stopped {
                    return;
                }
                let shared = shared.clone();
                thread::spawn(move || answer(stream, &shared));
            }
        });
        backend
    }

    /// The number of requests received.
    pub fn seen(&self) -> usize {
        self.shared.counts().seen
    }

    /// When each of these requests was received.
    pub fn seen_at(&self) -> Vec<SystemTime> {
        self.shared.seen_at.lock().expect("no thread panics while it holds the lock").clone()
    }

    /// The number of requests that are held now.
    pub fn held(&self) -> usize {
        self.shared.counts().held
    }

    /// The maximum number of requests held at one time.
    pub fn most_held(&self) -> usize {
        self.shared.counts().most_held
    }

    /// Answers `count` of the held requests.
    pub fn release(&self, count: usize) {
        self.shared.change(|counts| counts.released += count);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.change(|counts| (counts.stopped, counts.released) = (true, usize::MAX / 2));
        // Wakes the listener, so that it notices.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn counts(&self) -> Counts {
        *self.counts.lock().expect("no thread panics while it holds the lock")
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().expect("no thread panics while it holds the lock"));
        self.changed.notify_all();
    }

    /// Counts a request.
    pub fn see(&self) {
        let mut seen_at = self.seen_at.lock().expect("no thread panics while it holds the lock");
        seen_at.push(SystemTime::now());
        drop(seen_at);
        self.change(|counts| counts.seen += 1);
    }

    /// Waits until the test releases the request.
    pub fn hold(&self) {
        self.change(|counts| {
            counts.held += 1;
            counts.most_held = counts.most_held.max(counts.held);
        });
        let counts = self.counts.lock().expect("no thread panics while it holds the lock");
        let mut counts = self
            .changed
            .wait_while(counts, |counts| counts.released == 0)
            .expect("no thread panics while it holds the lock");
        counts.released -= 1;
        counts.held -= 1;
    }
}

/// Answers the one request of a connection, which has no body. `/slow` waits until it is released;
/// `/tokens/7` returns the header `x-tokens: 7`, others 0; `/fails` returns 503 without the header.
fn answer(mut stream: TcpStream, shared: &Shared) {
    // Envoy passes on headers of any bytes.
    let text = |line: Vec<u8>| String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
    let mut lines = BufReader::new(&stream).split(b'\n').map_while(Result::ok).map(text);
    let path = lines.next().and_then(|line| line.split(' ').nth(1).map(str::to_owned));
    if let (Some(path), true) = (path, lines.any(|line| line.is_empty())) {
        shared.see();
        if path == "/slow" {
            shared.hold();
        }
        let tokens = path.strip_prefix("/tokens/").unwrap_or("0");
        let head = match path.as_str() {
            "/fails" => "503 Service Unavailable".to_owned(),
            _ => format!("200 OK\r\nx-tokens: {tokens}"),
        };
        let answer =
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 3\r\n\r\nhi\n");
        // Envoy may have disconnected.
        let _ = stream.write_all(answer.as_bytes());
    }
}
