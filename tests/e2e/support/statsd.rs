//! A server of StatsD that remembers the lines it receives.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use super::wait_for;

/// A server on a free port of loopback.
#[derive(Debug)]
pub struct StatsdServer {
    pub address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl StatsdServer {
    pub fn tcp() -> StatsdServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = StatsdServer::at(listener.local_addr().expect("is bound"));
        let (lines, connections) = (server.lines.clone(), server.connections.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.lock().unwrap().push(stream.try_clone().expect("a copy"));
                let lines = lines.clone();
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        lines.lock().unwrap().push(line);
                    }
                });
            }
        });
        server
    }

    pub fn udp() -> StatsdServer {
        StatsdServer::on(UdpSocket::bind("127.0.0.1:0").expect("a free port"))
    }

    /// Servers for StatsD over TCP and DogStatsD over UDP, at one address.
    pub fn tcp_and_udp() -> (StatsdServer, StatsdServer) {
        loop {
            let tcp = StatsdServer::tcp();
            // Another program may have the port of UDP.
            if let Ok(socket) = UdpSocket::bind(tcp.address) {
                return (tcp, StatsdServer::on(socket));
            }
        }
    }

    fn on(socket: UdpSocket) -> StatsdServer {
        let server = StatsdServer::at(socket.local_addr().expect("is bound"));
        let lines = server.lines.clone();
        thread::spawn(move || {
            let mut datagram = [0; 1 << 16];
            while let Ok(length) = socket.recv(&mut datagram) {
                let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
                lines.lock().unwrap().extend(text.split('\n').map(str::to_owned));
            }
        });
        server
    }

    fn at(address: SocketAddr) -> StatsdServer {
        StatsdServer { address, lines: Arc::default(), connections: Arc::default() }
    }

    /// Closes all connections.
    pub fn close_connections(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns the sum of a counter, by its name and what follows its type.
    pub fn sum(&self, name: &str, tags: &str) -> u64 {
        let value = |line: &String| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?.strip_suffix(tags)?;
            value.strip_suffix("|c")?.parse::<u64>().ok()
        };
        self.lines().iter().filter_map(value).sum()
    }

    /// Returns how many events the lines of a timer stand for.
    pub fn timed(&self, name: &str) -> f64 {
        let events = |line: &String| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            let (_, rate) = value.split_once("|ms")?;
            Some(rate.strip_prefix("|@").map_or(1.0, |rate| 1.0 / rate.parse::<f64>().unwrap()))
        };
        self.lines().iter().filter_map(events).sum()
    }

    /// Waits until a counter has this sum.
    pub fn wait_for_sum(&self, name: &str, tags: &str, wanted: u64) {
        wait_for(&format!("{name} is {wanted}"), || (self.sum(name, tags) == wanted).then_some(()));
    }
}
