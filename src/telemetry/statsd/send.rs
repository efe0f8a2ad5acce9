//! Sends lines over TCP or UDP.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use super::Protocol;
use super::report::Batch;
use crate::throttle::Throttle;

/// The timeout of finding the address and connecting, and of sending a report.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest datagram: what fits into an Ethernet frame, with room for tunnels.
const MAX_DATAGRAM_BYTES: usize = 1_432;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A connection that is made when it is needed.
#[derive(Debug)]
pub struct Sender {
    address: String,
    protocol: Protocol,
    tcp: Option<TcpStream>,
    throttle: Throttle,
}

impl Sender {
    pub fn new(address: &str, protocol: Protocol) -> Sender {
        // An empty host is this one, as in Go.
        let host = if address.starts_with(':') { "localhost" } else { "" };
        let address = format!("{host}{address}");
        Sender { address, protocol, tcp: None, throttle: Throttle::new(LOG_INTERVAL) }
    }

    /// Sends a batch. Returns the number of lines that were sent.
    pub async fn send(&mut self, batch: &Batch) -> usize {
        if batch.lines.is_empty() {
            return 0;
        }
        let mut sent = 0;
        let result = match self.protocol {
            Protocol::Tcp => self.send_tcp(batch, &mut sent).await,
            Protocol::Udp => self.send_udp(batch, &mut sent).await,
        };
        if let Err(error) = result {
            self.tcp = None;
            if let Some(suppressed) = self.throttle.pass() {
                tracing::warn!(addr = %self.address, %error, suppressed, "cannot send metrics");
            }
        }
        sent
    }

    async fn send_tcp(&mut self, batch: &Batch, sent: &mut usize) -> io::Result<()> {
        // What is written to a connection that the server has closed is lost without an error.
        let open = self.tcp.take().filter(is_open);
        let stream = match open {
            Some(stream) => stream,
            None => within(TcpStream::connect(&self.address)).await?,
        };
        let mut written = 0;
        let result = within(write(&stream, batch.text.as_bytes(), &mut written)).await;
        *sent = batch.lines.partition_point(|line| line.end <= written);
        // After an error the server may have part of a line.
        result?;
        self.tcp = Some(stream);
        Ok(())
    }

    async fn send_udp(&mut self, batch: &Batch, sent: &mut usize) -> io::Result<()> {
        // The name is looked up each time: its address may change.
        let socket = within(connect_udp(&self.address)).await?;
        let mut start = 0;
        while let Some(line) = batch.lines.get(*sent) {
            let room = start + MAX_DATAGRAM_BYTES;
            let more = batch.lines[*sent..].partition_point(|line| line.end <= room);
            // A longer line is sent by itself.
            let (lines, end) = match more {
                0 => (1, line.end),
                lines => (lines, batch.lines[*sent + lines - 1].end),
            };
            // Without the last line feed.
            let datagram = &batch.text.as_bytes()[start..end - 1];
            within(socket.send(datagram)).await?;
            (*sent, start) = (*sent + lines, end);
        }
        Ok(())
    }

    /// Closes the connection, after the server has got everything that was sent.
    pub async fn close(self) {
        if let Some(mut stream) = self.tcp {
            // The server may have closed it.
            let _ = within(stream.shutdown()).await;
        }
    }
}

async fn within<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(TIMEOUT, future).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
}

/// Whether the server has neither closed the connection nor sent an error. What it sends is dropped.
fn is_open(stream: &TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match stream.try_read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Writes all bytes. `written` is their number so far, also if the future is dropped.
async fn write(stream: &TcpStream, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        stream.writable().await?;
        match stream.try_write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => *written += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn connect_udp(address: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(address).await? {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net;

    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::telemetry::reference::{StatisticSink, StatisticValue};
    use crate::telemetry::statsd::report::Report;
    use crate::telemetry::statsd::totals::Totals;
    use crate::telemetry::statsd::{Dialect, Protocol};

    /// Returns a batch of counters that are this long each.
    fn batch(lines: usize, length: usize) -> Batch {
        let mut totals = Totals::default();
        for line in 0..lines {
            totals.statistic(&format!("{line:0length$}"), StatisticValue::Counter(1));
        }
        Report::new(Dialect::StatsD).compose(&totals)
    }

    #[tokio::test]
    async fn a_closed_connection_is_replaced_before_anything_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut sender = Sender::new(&address, Protocol::Tcp);
        for _ in 0..2 {
            assert_eq!(sender.send(&batch(3, 2)).await, 3);
            let (stream, _) = listener.accept().await.unwrap();
            let mut lines = BufReader::new(stream).lines();
            for name in ["00", "01", "02"] {
                assert_eq!(lines.next_line().await.unwrap(), Some(format!("{name}:1|c")));
            }
            drop(lines);
            // Until this end has seen that.
            let stream = sender.tcp.as_ref().unwrap();
            stream.readable().await.unwrap();
        }
    }

    #[tokio::test]
    async fn without_a_server_nothing_is_sent() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut sender = Sender::new(&address, Protocol::Tcp);
        assert_eq!(sender.send(&batch(3, 2)).await, 0);
    }

    #[tokio::test]
    async fn datagrams_contain_whole_lines() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let mut sender = Sender::new(&address, Protocol::Udp);
        for (lines, length) in [(100, 40), (3, 2_000), (1, 1)] {
            let batch = batch(lines, length);
            assert_eq!(sender.send(&batch).await, lines);
            let (mut received, mut buffer) = (Vec::new(), [0; 4_096]);
            while received.len() < lines {
                let bytes = server.recv(&mut buffer).await.unwrap();
                assert!(bytes <= MAX_DATAGRAM_BYTES.max(length + 4), "{bytes}");
                let text = str::from_utf8(&buffer[..bytes]).unwrap();
                received.extend(text.split('\n').map(str::to_owned));
            }
            assert_eq!(received.join("\n") + "\n", batch.text);
        }
    }
}
