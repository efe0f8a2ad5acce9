//! A server that does what no good server does, on threads of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::wait_for;

/// Interim responses in one write.
const BURST: usize = 100;

/// What the server does after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Sends interim responses of HTTP/1.1 until the client closes the connection.
    InterimHttp1,
    /// Sends interim responses of HTTP/2 until the client closes the connection.
    InterimHttp2,
    /// Answers pings only.
    Silent,
}

/// A running server.
#[derive(Debug)]
pub struct Hostile {
    pub address: SocketAddr,
    closed: Arc<AtomicUsize>,
}

impl Hostile {
    pub fn start(behavior: Behavior) -> Hostile {
        Hostile::start_with(behavior, |socket| socket)
    }

    /// Starts a server over TLS with this certificate.
    #[cfg(feature = "tls")]
    pub fn start_tls(behavior: Behavior, identity: &super::certificates::Identity) -> Hostile {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let chain = CertificateDer::pem_slice_iter(identity.cert.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        config.alpn_protocols = vec!["h2".into()];
        let config = Arc::new(config);
        Hostile::start_with(behavior, move |socket| {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            rustls::StreamOwned::new(connection, socket)
        })
    }

    fn start_with<S: Read + Write>(
        behavior: Behavior,
        accept: impl Fn(TcpStream) -> S + Clone + Send + 'static,
    ) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::new(AtomicUsize::new(0));
        let count = closed.clone();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (accept, count) = (accept.clone(), count.clone());
                thread::spawn(move || {
                    // An error is the end of the connection.
                    if serve(behavior, accept(socket)) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Hostile { address, closed }
    }

    /// Waits until clients have closed connections after their requests.
    pub fn wait_until_closed(&self, connections: usize) {
        wait_for("the client closes its connection", || {
            (self.closed.load(Ordering::Relaxed) >= connections).then_some(())
        });
    }
}

/// Serves a connection to its end. Returns whether there was a request.
fn serve(behavior: Behavior, mut socket: impl Read + Write) -> bool {
    let asked = match behavior {
        Behavior::InterimHttp1 => read_head(&mut socket).map(|()| 0),
        Behavior::InterimHttp2 | Behavior::Silent => read_request(&mut socket),
    };
    let Some(stream) = asked else { return false };
    let burst = match behavior {
        Behavior::InterimHttp1 => b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(BURST),
        Behavior::InterimHttp2 => interim(stream).repeat(BURST),
        Behavior::Silent => {
            while let Some((head, payload)) = read_frame(&mut socket) {
                // PING, which is acknowledged.
                if head[3] == 6 && head[4] == 0 {
                    let answer = [&[0, 0, 8, 6, 1, 0, 0, 0, 0], &payload[..]].concat();
                    let _ = socket.write_all(&answer).and_then(|()| socket.flush());
                }
            }
            return true;
        }
    };
    while socket.write_all(&burst).and_then(|()| socket.flush()).is_ok() {}
    true
}

/// Reads the head of a request of HTTP/1.1.
fn read_head(socket: &mut impl Read) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(())
}

/// Sends the settings of HTTP/2, and reads up to the first request. Returns its stream.
fn read_request(socket: &mut (impl Read + Write)) -> Option<u32> {
    socket.read_exact(&mut [0; 24]).ok()?;
    socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).ok()?;
    socket.flush().ok()?;
    loop {
        let (head, _) = read_frame(socket)?;
        // HEADERS.
        if head[3] == 1 {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

/// Reads a frame: its head and its payload.
fn read_frame(socket: &mut impl Read) -> Option<([u8; 9], Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    socket.read_exact(&mut payload).ok()?;
    Some((head, payload))
}

/// The frame of an interim response.
fn interim(stream: u32) -> Vec<u8> {
    let mut frame = vec![0, 0, 5, 1, 4];
    frame.extend_from_slice(&stream.to_be_bytes());
    // `:status`, from the static table, and its value as it is.
    frame.extend_from_slice(&[8, 3]);
    frame.extend_from_slice(b"103");
    frame
}
