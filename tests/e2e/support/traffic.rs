//! Clients that send requests at a steady rate, each on one connection, and count the answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// How many requests had each outcome: a status, or an error of the connection.
pub type Outcomes = BTreeMap<String, u64>;

/// Clients that run until they are [stopped](Traffic::stop), or dropped.
#[derive(Debug)]
pub struct Traffic {
    stopped: Arc<AtomicBool>,
    outcomes: Arc<Mutex<Outcomes>>,
    clients: Vec<JoinHandle<()>>,
}

impl Traffic {
    pub fn start(to: SocketAddr, clients: u32, per_second: u32) -> Traffic {
        let (stopped, outcomes) = (Arc::<AtomicBool>::default(), Arc::<Mutex<_>>::default());
        let client = |_| {
            let (stopped, outcomes) = (stopped.clone(), outcomes.clone());
            thread::spawn(move || send(to, per_second, &stopped, &outcomes))
        };
        let clients = (0..clients).map(client).collect();
        Traffic { stopped, outcomes, clients }
    }

    pub fn outcomes(&self) -> Outcomes {
        self.outcomes.lock().unwrap().clone()
    }

    /// Stops the clients. Returns the outcomes of all requests.
    pub fn stop(mut self) -> Outcomes {
        self.stopped.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("the client ran to its end");
        }
        self.outcomes()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

fn send(to: SocketAddr, per_second: u32, stopped: &AtomicBool, outcomes: &Mutex<Outcomes>) {
    let gap = Duration::from_secs(1) / per_second;
    let (mut connection, mut due) = (None, Instant::now());
    while !stopped.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due = Instant::now().max(due + gap);
        let outcome = request(&mut connection, to).unwrap_or_else(|error| {
            connection = None;
            error.to_string()
        });
        *outcomes.lock().unwrap().entry(outcome).or_default() += 1;
    }
}

/// Sends a request and returns the status of its answer.
fn request(
    connection: &mut Option<BufReader<TcpStream>>,
    to: SocketAddr,
) -> std::io::Result<String> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            connection.insert(BufReader::new(stream))
        }
    };
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")?;
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            return Err(std::io::Error::other("closed"));
        }
        let line = line.trim_end();
        match line.split_once(": ") {
            _ if line.is_empty() => break,
            Some(("content-length", value)) => length = value.parse().expect("a length"),
            _ if status.is_none() => status = line.split(' ').nth(1).map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    status.ok_or_else(|| std::io::Error::other("no status"))
}
