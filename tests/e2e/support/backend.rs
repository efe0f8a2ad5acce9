//! What Envoy protects: answers every request with 200, and counts them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A running backend; stops when dropped.
#[derive(Debug)]
pub struct Backend {
    pub address: SocketAddr,
    seen: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Backend {
    pub fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let backend = Backend {
            address: listener.local_addr().expect("has an address"),
            seen: Arc::default(),
            stop: Arc::default(),
        };
        let (seen, stop) = (backend.seen.clone(), backend.stop.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let seen = seen.clone();
                thread::spawn(move || answer(stream, &seen));
            }
        });
        backend
    }

    /// How many requests came through.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes it, so that it sees.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the one request of a connection. None that comes here has a body.
fn answer(mut stream: TcpStream, seen: &AtomicUsize) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    if lines.any(|line| line.is_empty()) {
        seen.fetch_add(1, Ordering::Relaxed);
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nhi\n";
        // Envoy may be gone.
        let _ = stream.write_all(answer.as_bytes());
    }
}
