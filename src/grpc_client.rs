//! Connections to gRPC servers. tonic's own would have no bound on interim responses: TLS is done here,
//! because that bound needs the plain bytes.

#[cfg(feature = "tls")]
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error};
use tower_service::Service;

#[cfg(feature = "tls")]
pub use tls::{GrpcTls, GrpcTlsError};
use weir_common::interim_responses::BoundedStream;
use weir_common::resolve::resolve;

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub struct Server {
    pub endpoint: Endpoint,
    /// The path of a Unix socket, instead of the endpoint's address.
    pub unix: Option<PathBuf>,
    pub tls: Option<GrpcTls>,
    /// The maximum number of requests in flight.
    pub parallel: u16,
}

impl Server {
    /// Connects, within the endpoint's timeout.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or verified.
    pub async fn connect(self) -> Result<Channel, Error> {
        let Server { endpoint, unix, tls, parallel } = self;
        let mut http = HttpConnector::new_with_resolver(Resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(endpoint.get_connect_timeout());
        http.set_keepalive(endpoint.get_tcp_keepalive());
        endpoint.connect_with_connector(Connector { http, unix, tls, parallel }).await
    }
}

/// Creates the endpoint of `host:port`. Its requests have the scheme https with TLS.
///
/// # Errors
///
/// It is not an address.
pub fn endpoint(authority: &str, is_tls: bool) -> Result<Endpoint, Error> {
    // With the scheme https, the endpoint would want TLS of its own.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
    let uri = Uri::builder().scheme("https").authority(authority).path_and_query("/").build();
    Ok(match uri {
        Ok(uri) if is_tls => endpoint.origin(uri),
        _ => endpoint,
    })
}

/// Any stream to a server.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

#[derive(Clone, Debug)]
struct Connector {
    http: HttpConnector<Resolver>,
    unix: Option<PathBuf>,
    tls: Option<GrpcTls>,
    parallel: u16,
}

type Connected = TokioIo<BoundedStream<Box<dyn Stream>>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = Connected;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Connected, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Connector { mut http, unix, tls, parallel } = self.clone();
        Box::pin(async move {
            let stream: Box<dyn Stream> = match (unix, tls) {
                (Some(path), _) => Box::new(UnixStream::connect(path).await?),
                (None, None) => Box::new(http.call(uri).await?.into_inner()),
                (None, Some(tls)) => {
                    Box::new(tls.connect(http.call(uri).await?.into_inner()).await?)
                }
            };
            Ok(TokioIo::new(BoundedStream::new(stream, parallel)))
        })
    }
}

/// Finds the addresses of hosts.
#[derive(Clone, Debug)]
struct Resolver;

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The connector sets the port.
        Box::pin(async move { Ok(resolve(name.as_str(), 0).await?.into_iter()) })
    }
}

/// TLS of clients, of which there is no value in a build without TLS.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub enum GrpcTls {}

#[cfg(not(feature = "tls"))]
impl GrpcTls {
    /// Connects with TLS; never called, because there is no value to call it with.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn connect(self, _: tokio::net::TcpStream) -> std::io::Result<tokio::net::TcpStream> {
        match self {}
    }
}
