//! HTTP requests to one server, over HTTP/1.1 or HTTP/2, with or without TLS. Redirects are not followed.

mod connection;
mod target;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use self::connection::Connection;
pub use self::target::Target;
use crate::causes::with_causes;
use crate::client_tls::ClientCertificates;
use crate::interim_responses::{self, TooMany};

/// The body of a request.
pub type Body = Full<Bytes>;

/// The version of HTTP that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
}

/// A client of one server. It has at most one connection and one request in flight; both belong to the
/// runtime that sends.
#[derive(Debug)]
pub struct HttpClient {
    target: Target,
    version: Version,
    certificates: Arc<ClientCertificates>,
    connection: Option<Connection>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0}")]
    Certificates(String),
    #[error("{}", with_causes(.0))]
    Connect(#[from] io::Error),
    #[error("{}", with_causes(.0))]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    InterimResponses(#[from] TooMany),
}

impl HttpClient {
    /// Does not connect yet. The certificates are read again before each connection with TLS.
    pub fn new(
        target: Target,
        version: Version,
        certificates: Arc<ClientCertificates>,
    ) -> HttpClient {
        HttpClient { target, version, certificates, connection: None }
    }

    /// Sends a request, whose URI is a path with its query, and returns the answer with an unread body.
    /// Has no timeout of its own. After a timeout or an error, call [`disconnect`](Self::disconnect).
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, HttpError> {
        let agent = const { HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))) };
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        match self.version {
            Version::Http1 => {
                let host = HeaderValue::from_str(self.target.authority());
                request.headers_mut().insert(HOST, host.map_err(io::Error::other)?);
            }
            Version::Http2 => {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = self.target.with_path(path).map_err(io::Error::other)?;
            }
        }
        let too_many = interim_responses::exceeded(&mut request);
        tokio::select! {
            answer = self.send_on_connection(request) => answer,
            () = too_many => Err(TooMany.into()),
        }
    }

    async fn send_on_connection(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, HttpError> {
        if let Some(connection) = &mut self.connection
            && connection.is_usable().await
        {
            match connection.send(request).await {
                Ok(answer) => return Ok(answer),
                // The server closed the connection at the same time.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        self.disconnect();
        let opened = Connection::open(&self.target, self.version, &self.certificates).await?;
        let connection = self.connection.insert(opened);
        connection.send(request).await.map_err(|error| error.into_error().into())
    }

    /// Closes the connection; the next request opens another. Whatever a server still sends must not
    /// keep a core busy.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }
}
