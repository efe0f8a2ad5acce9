//! A connection to a server.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Body, HttpError, Target, Version};
use crate::client_tls::ClientCertificates;
#[cfg(feature = "tls")]
use crate::client_tls::{ClientTls, ClientTlsError};
use crate::interim_responses::BoundedStream;
use crate::resolve::resolve;

/// The largest head of an answer.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// How often a connection of HTTP/2 that is in use is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A connection, which is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: Sender,
    tasks: Tasks,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Connection {
    /// Connects, with the certificates as they are now.
    pub(super) async fn open(
        target: &Target,
        version: Version,
        certificates: &Arc<ClientCertificates>,
    ) -> Result<Connection, HttpError> {
        if !target.is_tls {
            return Connection::over(connect(target).await?, version).await;
        }
        #[cfg(feature = "tls")]
        {
            let pem = certificates.read_in_background().await;
            let pem = pem.map_err(|error| HttpError::Certificates(error.to_string()))?;
            let tls = ClientTls::new(&pem, &target.host, false);
            let mut tls = tls.map_err(|error| match error {
                ClientTlsError::Name(_) => HttpError::Connect(io::Error::other(error)),
                ClientTlsError::Certificates(error) => HttpError::Certificates(error),
            })?;
            if version == Version::Http2 {
                tls = tls.with_http2();
            }
            let stream = tls.connect(connect(target).await?).await?;
            Connection::over(stream, version).await
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = certificates;
            Err(HttpError::Certificates(crate::client_tls::NO_TLS.to_owned()))
        }
    }

    async fn over<S>(stream: S, version: Version) -> Result<Connection, HttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tasks = Tasks::default();
        // Errors of a connection are also those of its requests.
        let sender = match version {
            Version::Http1 => {
                let mut builder = http1::Builder::new();
                builder.max_buf_size(MAX_HEAD_BYTES);
                let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
                tasks.execute(async { drop(connection.await) });
                Sender::Http1(sender)
            }
            Version::Http2 => {
                let mut builder = http2::Builder::new(tasks.clone());
                builder
                    .timer(TokioTimer::new())
                    .keep_alive_interval(KEEP_ALIVE)
                    .keep_alive_timeout(KEEP_ALIVE);
                // One request at a time.
                let stream = TokioIo::new(BoundedStream::new(stream, 1));
                let (sender, connection) = builder.handshake(stream).await?;
                tasks.execute(async { drop(connection.await) });
                Sender::Http2(sender)
            }
        };
        Ok(Connection { sender, tasks })
    }

    /// Returns whether the connection can have a request: the server has not closed it.
    pub(super) async fn is_usable(&mut self) -> bool {
        let ready = match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        };
        ready.is_ok()
    }

    /// Sends a request. An error returns the request if no part of it was sent.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        }
    }
}

impl Drop for Connection {
    /// Ends the tasks: one whose server sends continuously would not end by itself.
    fn drop(&mut self) {
        self.tasks.0.lock().abort_all();
    }
}

async fn connect(target: &Target) -> io::Result<TcpStream> {
    let addresses = resolve(&target.host, target.port).await?;
    let stream = TcpStream::connect(&*addresses).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Runs the tasks of a connection.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
