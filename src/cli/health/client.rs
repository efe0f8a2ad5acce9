//! One request over HTTP/1.1. Redirects are not followed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::HealthArgs;
use super::target::Target;

/// The largest answer. That of weir has a few lines.
const MAX_BODY_BYTES: usize = 16 << 10;

/// The largest head of an answer.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}")]
    Certificates(String),
    #[error("not within {0:?}: raise --timeout")]
    TimedOut(Duration),
    #[error("{0}")]
    Connect(#[from] io::Error),
    #[error("{}", with_sources(.0))]
    Http(#[from] hyper::Error),
    #[error("more than {MAX_BODY_BYTES} bytes")]
    TooLarge,
}

/// Returns an error with its causes, which the text of hyper's leaves out.
fn with_sources(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Sends the request and reads the answer, on this thread.
///
/// # Errors
///
/// There is none in time.
pub(super) fn fetch(target: &Target, args: &HealthArgs) -> Result<Answer, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let timeout = args.timeout;
    let fetched = runtime
        .block_on(async { tokio::time::timeout(timeout, connect_and_ask(target, args)).await });
    // A thread that resolves a name may still run.
    runtime.shutdown_background();
    fetched.unwrap_or(Err(FetchError::TimedOut(timeout)))
}

async fn connect_and_ask(target: &Target, args: &HealthArgs) -> Result<Answer, FetchError> {
    if !target.is_tls {
        return ask(target, connect(target).await?).await;
    }
    #[cfg(feature = "tls")]
    {
        let config = super::tls::config(args).map_err(FetchError::Certificates)?;
        ask(target, super::tls::handshake(target, config, connect(target).await?).await?).await
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = args;
        Err(FetchError::Certificates(crate::client_tls::NO_TLS.to_owned()))
    }
}

async fn connect(target: &Target) -> io::Result<TcpStream> {
    TcpStream::connect((target.host.as_str(), target.port)).await
}

async fn ask<S>(target: &Target, stream: S) -> Result<Answer, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    // Errors of the connection are also those of the request.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(target.path())
        .header(HOST, target.authority())
        .header(USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(String::new())
        .map_err(io::Error::other)?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Answer { status: head.status, body: read(body).await? })
}

async fn read(mut body: Incoming) -> Result<String, FetchError> {
    let mut read = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let data = frame?.into_data().unwrap_or_default();
        if read.len() + data.len() > MAX_BODY_BYTES {
            return Err(FetchError::TooLarge);
        }
        read.extend_from_slice(&data);
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}
