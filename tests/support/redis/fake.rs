//! A cluster of one node that redirects every key to another address.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::Client;

/// A running node.
#[derive(Debug)]
pub struct Redirector {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    logins: AtomicUsize,
    redirected: AtomicUsize,
}

impl Redirector {
    /// Starts a node that answers keys with `redirect`, such as `MOVED 0 127.0.0.1:1`.
    pub fn start(redirect: &str) -> Redirector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<Shared> = Arc::default();
        let (redirect, of_thread) = (Arc::<str>::from(redirect), shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (redirect, shared) = (redirect.clone(), of_thread.clone());
                thread::spawn(move || serve(Client::serve(stream), port, &redirect, &shared));
            }
        });
        Redirector { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of logins.
    pub fn logins(&self) -> usize {
        self.shared.logins.load(Ordering::Relaxed)
    }

    /// The number of redirected commands.
    pub fn redirected(&self) -> usize {
        self.shared.redirected.load(Ordering::Relaxed)
    }
}

impl Drop for Redirector {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it notices.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(mut client: Client, port: u16, redirect: &str, shared: &Shared) {
    const ID: &str = "07c37dfeb235213a872192d90877d0cd55635b91";
    let text = |text: String| format!("${}\r\n{text}\r\n", text.len());
    while let Ok(words) = client.command() {
        let words: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = match words[..] {
            ["AUTH", ..] => {
                shared.logins.fetch_add(1, Ordering::Relaxed);
                "+OK\r\n".to_owned()
            }
            ["PING"] => "+PONG\r\n".to_owned(),
            ["TIME"] => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
            ["INFO", ..] => text("redis_version:7.0.0\r\nrole:master\r\n".to_owned()),
            ["CLUSTER", "SLOTS"] => format!(
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n{}",
                text(ID.to_owned())
            ),
            ["CLUSTER", "NODES"] => text(format!(
                "{ID} 127.0.0.1:{port}@1{port} myself,master - 0 0 1 connected 0-16383\n"
            )),
            // Permissions are tried, and what scripts can do, without a key.
            ["EVAL" | "EVALSHA", _, "0", ..] => "*0\r\n".to_owned(),
            ["EVAL" | "EVALSHA" | "INCRBY", ..] => {
                shared.redirected.fetch_add(1, Ordering::Relaxed);
                format!("-{redirect}\r\n")
            }
            _ => "+OK\r\n".to_owned(),
        };
        if client.reply(&reply).is_err() {
            return;
        }
    }
}
