//! Sends one HTTP/1.1 request, with or without TLS, for the commands of operators and `weir health`.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::header::{CONNECTION, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use weir_client::http::{Body, HttpClient, HttpError, Target};
use weir_client::tls::{ClientCertificates, ClientFiles, PemFile};
use weir_common::duration::{MAX_DURATION, read_duration};

/// How to verify a server with TLS.
#[derive(Debug, Default, Args)]
pub struct TlsFiles {
    /// CA certificates to verify a server with TLS. Default: the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate, for a server that requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// A request, and how long and how large its answer may be.
#[derive(Debug)]
pub struct Call<'a> {
    pub method: Method,
    pub target: &'a Target,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: String,
    pub tls: &'a TlsFiles,
    /// Timeout of the whole call.
    pub timeout: Duration,
    pub max_answer_bytes: usize,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: String,
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{0}; if the server uses TLS, write https:// in the URL")]
    WithoutTls(HttpError),
    #[error("the server does not use TLS: write http:// in the URL")]
    NoTls,
    #[error("not within {0:?}: raise --timeout")]
    TimedOut(Duration),
    #[error("more than {0} bytes")]
    TooLarge(usize),
}

impl FetchError {
    /// Explains why there is no answer from `server`; `start` is what to do if nothing listens there.
    pub fn explain(self, server: impl Display, start: &str) -> String {
        match self {
            FetchError::Http(HttpError::Certificates(error)) => error,
            FetchError::Http(HttpError::Connect(error))
                if error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                format!("no answer from {server}: connection refused; {start}")
            }
            error => format!("no answer from {server}: {error}"),
        }
    }
}

impl TlsFiles {
    pub fn are_given(&self) -> bool {
        [&self.ca, &self.cert, &self.key].iter().any(|file| file.is_some())
    }

    pub fn certificates(&self) -> ClientCertificates {
        let file = |setting, path: &Option<_>| path.clone().map(|path| PemFile { setting, path });
        ClientCertificates::new(ClientFiles {
            ca: file("--ca", &self.ca),
            cert: file("--cert", &self.cert),
            key: file("--key", &self.key),
        })
    }
}

/// Sends the request and reads the answer, on this thread.
pub fn send(call: Call<'_>) -> Result<Answer, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(HttpError::from)?;
    let (timeout, target) = (call.timeout, call.target);
    let answered = runtime.block_on(async { tokio::time::timeout(timeout, ask(call)).await });
    // A thread that resolves a name may still run.
    runtime.shutdown_background();
    match answered.unwrap_or(Err(FetchError::TimedOut(timeout))) {
        Err(FetchError::Http(HttpError::Connect(error))) if is_not_tls(&error) => {
            Err(FetchError::NoTls)
        }
        Err(FetchError::Http(error @ HttpError::Http(_))) if !target.is_tls => {
            Err(FetchError::WithoutTls(error))
        }
        answered => answered,
    }
}

/// Whether a handshake failed because the server answered something else than TLS.
pub fn is_not_tls(error: &io::Error) -> bool {
    use rustls::{Error, InvalidMessage};

    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    matches!(error, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

async fn ask(call: Call<'_>) -> Result<Answer, FetchError> {
    let certificates = Arc::new(call.tls.certificates());
    let mut client = HttpClient::new(call.target.clone(), certificates);
    let mut request = Request::builder()
        .method(call.method)
        .uri(call.target.path())
        .header(CONNECTION, "close")
        .body(Body::from(call.body))
        .map_err(|error| HttpError::Connect(io::Error::other(error)))?;
    request.headers_mut().extend(call.headers.into_iter().map(|(name, value)| (Some(name), value)));
    let (head, body) = client.send(request).await?.into_parts();
    Ok(Answer { status: head.status, body: read(body, call.max_answer_bytes).await? })
}

async fn read(body: Incoming, max_bytes: usize) -> Result<String, FetchError> {
    let read = Limited::new(body, max_bytes).collect().await;
    let read = read.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => FetchError::Http(HttpError::from(*error)),
        Err(_) => FetchError::TooLarge(max_bytes),
    })?;
    Ok(String::from_utf8_lossy(&read.to_bytes()).into_owned())
}

pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let help =
        || format!("write a duration above zero, such as 500ms, 10s or 5m, up to {MAX_DURATION}");
    read_duration(text).filter(|timeout| !timeout.is_zero()).ok_or_else(help)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Sends a request to a server that gives this answer. Returns the result and the request.
    fn sent(answer: &'static str, max_answer_bytes: usize) -> (Result<Answer, FetchError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("http://{}/v1/a?b=c", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut bytes) = (Vec::new(), [0; 1_024]);
            while !request.ends_with(b"body") {
                let length = stream.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..length]);
            }
            // The client may have read enough.
            let _ = stream.write_all(answer.as_bytes());
            String::from_utf8(request).unwrap()
        });
        let answer = send(Call {
            method: Method::PUT,
            target: &target.parse().unwrap(),
            headers: vec![(http::header::ACCEPT, HeaderValue::from_static("a/b"))],
            body: "body".to_owned(),
            tls: &TlsFiles::default(),
            timeout: Duration::from_secs(30),
            max_answer_bytes,
        });
        (answer, server.join().unwrap())
    }

    #[test]
    fn requests_have_their_headers_and_answers_a_bound() {
        let text = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n12345";
        let (answer, request) = sent(text, 5);
        let answer = answer.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::NOT_FOUND, "12345"));
        assert!(request.starts_with("PUT /v1/a?b=c HTTP/1.1\r\n"), "{request}");
        for part in ["accept: a/b\r\n", "content-length: 4\r\n", "host: 127.0.0.1:"] {
            assert!(request.contains(part), "{request}");
        }
        assert!(matches!(sent(text, 4).0, Err(FetchError::TooLarge(4))));
        // A redirect is an answer like others.
        let redirect = "HTTP/1.1 302 Found\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(sent(redirect, 5).0.unwrap().status, StatusCode::FOUND);
    }

    #[test]
    fn timeouts_are_durations_above_zero() {
        assert_eq!(parse_timeout("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "0s", "2", "-1s"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }
}
