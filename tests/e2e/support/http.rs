//! A minimal HTTP/1.1 client: one request per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// Returns a header's value; names are case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

pub fn get(from: SocketAddr, path: &str) -> Answer {
    get_with(from, path, &[])
}

pub fn get_with(from: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(from, "GET", path, headers, b"").unwrap_or_else(|e| panic!("GET {path}: {e}"))
}

pub fn post(to: SocketAddr, path: &str, body: impl AsRef<[u8]>) -> Answer {
    ask(to, "POST", path, &[], body.as_ref()).unwrap_or_else(|e| panic!("POST {path}: {e}"))
}

/// Sends a request and reads the whole response.
pub fn ask(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    ask_on(stream, method, path, headers, body)
}

/// As [`ask`], on a connection with timeouts of its own.
pub fn ask_on(
    mut stream: TcpStream,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: test\r\n";
    }
    head += &format!("content-length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    read(&String::from_utf8_lossy(&bytes)).ok_or_else(|| std::io::Error::other("no HTTP answer"))
}

fn read(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (status_line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let headers = headers.lines().filter_map(|line| line.split_once(':'));
    let mut answer = Answer {
        status: status_line.split(' ').nth(1)?.parse().ok()?,
        headers: headers.map(|(name, value)| (name.into(), value.trim().into())).collect(),
        body: body.to_owned(),
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = join_chunks(body)?;
    }
    Some(answer)
}

/// Joins the chunks of a body, each of which follows a line with its length.
fn join_chunks(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body += after.get(..length)?;
        rest = after.get(length..)?.strip_prefix("\r\n")?;
    }
}
