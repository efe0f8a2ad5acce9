//! A language model behind Envoy, which answers by the path of a request:
//!
//! - `/json/7`: JSON with a usage of 7 tokens; `/stream/7`: the same as events, the usage in the last one.
//! - `/slow/7`: held before the answer; `/slow-stream/7`: held after the first events.
//! - `/without-usage`, `/stream-without-usage`, `/not-json`, `/large/7` (more than Envoy's buffer).
//! - any other: 503.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::backend::{Backend, Shared};

pub fn start() -> Backend {
    Backend::answering(|stream, shared| {
        // Envoy may have disconnected.
        let _ = answer(stream, shared);
    })
}

/// Answers the one request of a connection.
fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(path) = request_path(&mut BufReader::new(&stream))? else { return Ok(()) };
    shared.see();
    let (kind, tokens) = path.rsplit_once('/').unwrap_or_default();
    let usage = format!(r#"{{"choices": [], "usage": {{"total_tokens": {tokens}}}}}"#);
    match (kind, path.as_str()) {
        ("/json", _) => json(&mut stream, "200 OK", &usage),
        ("/slow", _) => {
            shared.hold();
            json(&mut stream, "200 OK", &usage)
        }
        ("/large", _) => json(&mut stream, "200 OK", &(usage + &" ".repeat(2 << 20))),
        ("/stream", _) => {
            begin(&mut stream)?;
            end(&mut stream, Some(&usage))
        }
        ("/slow-stream", _) => {
            begin(&mut stream)?;
            shared.hold();
            end(&mut stream, Some(&usage))
        }
        (_, "/without-usage") => json(&mut stream, "200 OK", r#"{"choices": []}"#),
        (_, "/stream-without-usage") => {
            begin(&mut stream)?;
            end(&mut stream, None)
        }
        (_, "/not-json") => json(&mut stream, "200 OK", "{oops"),
        _ => json(&mut stream, "503 Service Unavailable", r#"{"error": "overloaded"}"#),
    }
}

/// Reads a request with its body. Returns its path; none if the connection ends before.
fn request_path(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        Ok(line.trim_end().to_ascii_lowercase())
    };
    let path = line()?.split(' ').nth(1).map(str::to_owned);
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let header = line()?;
        match header.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap_or(0),
            Some(("transfer-encoding", _)) => is_chunked = true,
            Some(_) => {}
            None => break,
        }
    }
    while is_chunked && line()? != "0" {}
    io::copy(&mut reader.take(length), &mut io::sink())?;
    Ok(path)
}

fn json(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends the headers of a stream and its first events.
fn begin(stream: &mut TcpStream) -> io::Result<()> {
    let event = "data: {\"choices\": [{\"delta\": \"hi\"}], \"usage\": null}\n\n";
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n{event}{event}"
    )
}

/// Sends the last events of a stream.
fn end(stream: &mut TcpStream, usage: Option<&str>) -> io::Result<()> {
    if let Some(usage) = usage {
        write!(stream, "data: {usage}\n\n")?;
    }
    write!(stream, "data: [DONE]\n\n")
}
