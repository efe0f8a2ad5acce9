//! Servers whose replies are endless, huge or nested.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;

use super::servers::Client;
use super::*;
use crate::SharedTable;

/// More than any reply may have, and more than the sockets of a connection buffer.
const HUGE: usize = 256 << 20;

/// A server that answers one command badly: with the start of a reply, and then for as long as it can
/// with a part that repeats.
struct BadServer {
    port: u16,
    sent: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl BadServer {
    fn start(bad: &'static str, start: &str, part: &str) -> BadServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sent, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (start, part) = (start.to_owned(), part.repeat(65_536 / part.len()));
        let (of_thread, stop) = (sent.clone(), ended.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (start, part, sent) = (start.clone(), part.clone(), of_thread.clone());
                thread::spawn(move || serve(Client::serve(stream), bad, &start, &part, &sent));
            }
        });
        BadServer { port, sent, ended }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for BadServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(mut client: Client, bad: &str, start: &str, part: &str, sent: &AtomicU64) {
    while let Ok(words) = client.command() {
        let command = words[0].to_ascii_uppercase();
        let reply = match command.as_str() {
            // Permissions are tried, which all are there.
            "EVAL" | "EVALSHA" if words[2] == "0" => "*0\r\n",
            _ if bad.split(' ').any(|word| word == command) => {
                let mut more = client.reply(start);
                let mut count = 0;
                while more.is_ok() && count < HUGE {
                    more = client.reply(part);
                    count += part.len();
                    sent.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
                return;
            }
            "PING" => "+PONG\r\n",
            "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n",
            "INFO" => "$19\r\nredis_version:7.0.0\r\n",
            // The time, and a count of none.
            "EVAL" | "EVALSHA" => "$14\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n",
            _ => "+OK\r\n",
        };
        if client.reply(reply).is_err() {
            return;
        }
    }
}

#[test]
fn an_endless_reply_ends_the_connection_and_the_policy_answers() {
    let cases = [
        ("a line", "+", "a"),
        ("a text", "$209715200\r\n", "a"),
        ("nested arrays", "", "*1\r\n"),
        ("arrays in an array", "*1000000\r\n", "*1\r\n:1\r\n"),
        ("elements", "*100000000\r\n", ":1\r\n"),
        ("replies", "", "+OK\r\n"),
    ];
    for (case, start, part) in cases {
        let server = BadServer::start("EVAL EVALSHA", start, part);
        runtime().block_on(async {
            let store = connected(options(local(server.port))).await;
            let answer = try_take(&store, "a", &plan(5, Unit::Day)).await;
            assert!(answer.is_err(), "{case}: {answer:?}");
            until(case, async || store.shared.counts.down.load(Ordering::Relaxed) > 0).await;
        });
        assert!(server.sent() < HUGE as u64 / 4, "{case}: {} bytes", server.sent());
    }
}

#[test]
fn a_huge_reply_to_info_is_an_error_that_says_so() {
    let server = BadServer::start("INFO", "$104857600\r\n", "a");
    runtime().block_on(async {
        let options = options(local(server.port));
        let Topology::Single(endpoint) = &options.topology else { unreachable!() };
        let mut link = handshake::connect(&options.access, endpoint).await.unwrap();
        let error = examine::examine(&mut link, false, "weir:").await.unwrap_err().to_string();
        let wanted = "a reply is larger than the 1121280 bytes that its command allows; \
                      the connection is closed";
        assert!(error.contains(wanted), "{error}");
    });
    assert!(server.sent() < HUGE as u64 / 4, "{} bytes", server.sent());
}

#[test]
fn a_huge_row_of_the_table_ends_no_connection_of_charges() {
    let start = "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nx\r\n$209715200\r\n";
    let server = BadServer::start("HSCAN", start, "a");
    runtime().block_on(async {
        let store = connected(options(local(server.port))).await;
        assert!(store.rows().await.is_err());
        assert!(try_take(&store, "a", &plan(5, Unit::Day)).await.is_ok());
        assert_eq!(store.connections_down().1, 0);
    });
    assert!(server.sent() < HUGE as u64 / 4, "{} bytes", server.sent());
}
