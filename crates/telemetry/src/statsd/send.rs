//! Sends the lines of a report to StatsD over TCP or UDP.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::sync::watch;
use tokio::time::sleep;

use super::report::StatsdBatch;
use weir_common::named_enum;
use weir_common::throttle::Throttle;

/// The timeout of finding the address and connecting, and of sending a report.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of a step at the end of the exporter. The step under way, the last report and closing the connection
/// fit into the time that a shutdown has for all telemetry.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

/// The largest datagram: what fits into an Ethernet frame, with room for tunnels.
const MAX_DATAGRAM_BYTES: usize = 1_432;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StatsdProtocol, name {
        Tcp = "tcp",
        Udp = "udp",
    }
}

/// A connection that is made when it is needed.
#[derive(Debug)]
pub struct Sender {
    address: String,
    protocol: StatsdProtocol,
    tcp: Option<TcpStream>,
    ending: watch::Receiver<bool>,
    /// Lines that no datagram had room for.
    skipped: u64,
    failure_log: Throttle,
    skip_log: Throttle,
}

impl Sender {
    pub fn new(address: &str, protocol: StatsdProtocol, ending: watch::Receiver<bool>) -> Sender {
        // An empty host is this one, as in Go.
        let host = if address.starts_with(':') { "localhost" } else { "" };
        let address = format!("{host}{address}");
        Sender {
            address,
            protocol,
            tcp: None,
            ending,
            skipped: 0,
            failure_log: Throttle::new(LOG_INTERVAL),
            skip_log: Throttle::new(LOG_INTERVAL),
        }
    }

    /// Sends a batch. Returns the number of lines that were sent or skipped.
    pub async fn send(&mut self, batch: &StatsdBatch) -> usize {
        if batch.lines.is_empty() {
            return 0;
        }
        let mut sent = 0;
        let result = match self.protocol {
            StatsdProtocol::Tcp => self.send_tcp(batch, &mut sent).await,
            StatsdProtocol::Udp => self.send_udp(batch, &mut sent).await,
        };
        if let Err(error) = result {
            self.tcp = None;
            if let Some(suppressed) = self.failure_log.pass() {
                tracing::warn!(addr = %self.address, %error, suppressed, "cannot send metrics");
            }
        }
        sent
    }

    async fn send_tcp(&mut self, batch: &StatsdBatch, sent: &mut usize) -> io::Result<()> {
        // What is written to a connection that the server has closed is lost without an error.
        let open = self.tcp.take().filter(is_open);
        let stream = match open {
            Some(stream) => stream,
            None => within(&self.ending, TcpStream::connect(&self.address)).await?,
        };
        let mut written = 0;
        let write = write(&stream, batch.text.as_bytes(), &mut written);
        let result = within(&self.ending, write).await;
        *sent = batch.lines.partition_point(|line| line.end <= written);
        // After an error the server may have part of a line.
        result?;
        self.tcp = Some(stream);
        Ok(())
    }

    async fn send_udp(&mut self, batch: &StatsdBatch, sent: &mut usize) -> io::Result<()> {
        // The name is looked up each time: its address may change.
        let socket = within(&self.ending, connect_udp(&self.address)).await?;
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
            match within(&self.ending, socket.send(datagram)).await {
                // It would not fit the next time either.
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    self.skip(lines, datagram.len());
                }
                result => drop(result?),
            }
            (*sent, start) = (*sent + lines, end);
        }
        Ok(())
    }

    fn skip(&mut self, lines: usize, bytes: usize) {
        self.skipped += lines as u64;
        if let Some(suppressed) = self.skip_log.pass() {
            let (addr, skipped) = (&self.address, self.skipped);
            tracing::warn!(%addr, bytes, skipped, suppressed, "a metric is too long for a datagram");
        }
    }

    /// Closes the connection, after the server has got everything that was sent.
    pub async fn close(self) {
        if let Some(mut stream) = self.tcp {
            // The server may have closed it.
            let _ = within(&self.ending, stream.shutdown()).await;
        }
    }
}

/// Resolves to an error after a timeout, which is shorter once the exporter ends.
async fn within<T>(
    ending: &watch::Receiver<bool>,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut ending = ending.clone();
    let timed_out = async {
        tokio::select! {
            () = sleep(TIMEOUT) => {}
            _ = ending.wait_for(|ending| *ending) => sleep(LAST_TIMEOUT).await,
        }
    };
    tokio::select! {
        biased;
        result = future => result,
        () = timed_out => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether the server has neither closed the connection nor sent an error. What it sends is dropped. The system is
/// asked, since the runtime may not have heard of it yet.
fn is_open(stream: &TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match rustix::io::read(stream, &mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error == Errno::AGAIN,
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
    use tokio::time::{self, Instant};

    use super::*;
    use crate::reference::StatisticSink;
    use crate::statsd::Dialect;
    use crate::statsd::report::{StatsdReport, Totals};
    use weir_common::metrics::SampleValue;

    /// Returns a batch of counters that are this long each.
    fn batch(lines: usize, length: usize) -> StatsdBatch {
        let mut totals = Totals::default();
        for line in 0..lines {
            totals.statistic(&format!("{line:0length$}"), SampleValue::Counter(1));
        }
        StatsdReport::new(&Dialect::StatsD, false).compose(&totals)
    }

    fn sender(address: &str, protocol: StatsdProtocol) -> (Sender, watch::Sender<bool>) {
        let (end, ending) = watch::channel(false);
        (Sender::new(address, protocol, ending), end)
    }

    #[tokio::test]
    async fn a_closed_connection_is_replaced_before_anything_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mut sender, _end) = sender(&address, StatsdProtocol::Tcp);
        for _ in 0..2 {
            assert_eq!(sender.send(&batch(3, 2)).await, 3);
            let (stream, _) = listener.accept().await.unwrap();
            let mut lines = BufReader::new(stream).lines();
            for name in ["00", "01", "02"] {
                assert_eq!(lines.next_line().await.unwrap(), Some(format!("{name}:1|c")));
            }
            // The runtime has not heard of it when the next batch is sent.
            drop(lines);
        }
    }

    #[tokio::test]
    async fn what_is_under_way_at_the_end_is_soon_abandoned() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mut sender, end) = sender(&address, StatsdProtocol::Tcp);
        assert_eq!(sender.send(&batch(1, 2)).await, 1);
        // More than the system buffers, and nobody reads it.
        let batch = batch(2_000, 10_000);
        time::pause();
        let start = Instant::now();
        let ends = async {
            sleep(LAST_TIMEOUT).await;
            end.send_replace(true);
        };
        let (sent, ()) = tokio::join!(sender.send(&batch), ends);
        assert!(sent < 2_000, "{sent}");
        assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_line_that_no_datagram_has_room_for_is_skipped() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let (mut sender, _end) = sender(&address, StatsdProtocol::Udp);
        let mut totals = Totals::default();
        for name in ["a", &"b".repeat(70_000), "c"] {
            totals.statistic(name, SampleValue::Counter(1));
        }
        assert_eq!(
            sender.send(&StatsdReport::new(&Dialect::StatsD, false).compose(&totals)).await,
            3
        );
        assert_eq!(sender.skipped, 1);
        let mut buffer = [0; 100];
        for line in ["a:1|c", "c:1|c"] {
            let bytes = server.recv(&mut buffer).await.unwrap();
            assert_eq!(str::from_utf8(&buffer[..bytes]), Ok(line));
        }
    }

    #[tokio::test]
    async fn without_a_server_nothing_is_sent() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let (mut sender, _end) = sender(&address, StatsdProtocol::Tcp);
        assert_eq!(sender.send(&batch(3, 2)).await, 0);
    }

    #[tokio::test]
    async fn datagrams_contain_whole_lines() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let (mut sender, _end) = sender(&address, StatsdProtocol::Udp);
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
