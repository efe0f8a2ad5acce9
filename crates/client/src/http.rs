//! Sends HTTP/1.1 requests to one server, with or without TLS. Redirects are not followed.

mod connection;
mod target;

use std::io;
use std::sync::Arc;

use http::header::{HOST, HeaderValue, USER_AGENT};
use http::{Request, Response};
use hyper::body::Incoming;

use self::connection::Connection;
pub use self::connection::{Body, ClientStream, HttpError, connect, resolve};
pub use self::target::Target;
use crate::tls::ClientCertificates;

/// A client of one server. It has at most one connection and one request in flight; both belong to the
/// runtime that sends. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpClient {
    target: Target,
    certificates: Arc<ClientCertificates>,
    connection: Option<Connection>,
}

impl HttpClient {
    /// Does not connect yet. The certificates are read again before each connection with TLS.
    pub fn new(target: Target, certificates: Arc<ClientCertificates>) -> HttpClient {
        HttpClient { target, certificates, connection: None }
    }

    /// Sends a request, whose URI is a path with its query, and returns the answer with an unread body.
    /// Has no timeout of its own. After a timeout or an error, drop the client.
    pub async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, HttpError> {
        let agent = const { HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))) };
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let host = HeaderValue::from_str(self.target.authority()).map_err(io::Error::other)?;
        request.headers_mut().insert(HOST, host);
        if let Some(connection) = &mut self.connection
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer),
                // The server closed the connection at the same time.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        self.connection = None;
        let opened = Connection::open(&self.target, &self.certificates).await?;
        let sent = self.connection.insert(opened).sender.try_send_request(request).await;
        sent.map_err(|error| error.into_error().into())
    }
}
