//! Finds out whether a client and a server disagree about TLS, to explain why there is no answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long connecting, and waiting for the first byte, may each take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The addresses of a name that are tried.
const MAX_ADDRESSES: usize = 2;

/// The smallest hello of a client: version 1.2, one cipher suite, no extensions. A server answers with its own
/// hello, or with an alert.
const CLIENT_HELLO: [u8; 50] = {
    let mut hello = [0; 50];
    // The record: a handshake of 45 bytes. The handshake: a client's hello of 41 bytes, then 32 random bytes, an
    // empty session, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, and no compression.
    let (start, end) = ([22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3], [0, 0, 2, 0xc0, 0x2f, 1, 0]);
    let mut i = 0;
    while i < start.len() {
        hello[i] = start[i];
        i += 1;
    }
    let mut i = 0;
    while i < end.len() {
        hello[hello.len() - end.len() + i] = end[i];
        i += 1;
    }
    hello
};

/// The types of the records that a server may answer with: an alert, a handshake.
const RECORDS: [u8; 2] = [21, 22];

/// Whether a server answers a hello of TLS. It is asked on a connection of its own.
pub(super) fn uses_tls(addresses: impl Iterator<Item = SocketAddr>) -> bool {
    let first_byte = |address: SocketAddr| -> io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&CLIENT_HELLO)?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    let answered = addresses.take(MAX_ADDRESSES).find_map(|address| first_byte(address).ok());
    answered.is_some_and(|byte| RECORDS.contains(&byte))
}

/// Whether a handshake failed because the server answered something else than TLS.
pub(super) fn is_not_tls(error: &io::Error) -> bool {
    use rustls::{Error, InvalidMessage};

    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    matches!(error, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Whether a server that answers this seems to use TLS.
    fn seems_to_use_tls(answer: &'static [u8]) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut hello = [0; CLIENT_HELLO.len()];
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(answer).unwrap();
            hello
        });
        let found = uses_tls([address].into_iter());
        assert_eq!(server.join().unwrap(), CLIENT_HELLO);
        found
    }

    #[test]
    fn a_server_that_answers_a_record_uses_tls() {
        assert!(seems_to_use_tls(&[21, 3, 3, 0, 2, 2, 40]), "an alert");
        assert!(seems_to_use_tls(&[22, 3, 3]), "a hello");
        for other in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\0\0\x12\x04", b""] {
            assert!(!seems_to_use_tls(other), "{other:?}");
        }
        assert!(!uses_tls(std::iter::empty()));
    }
}
