//! The connections to a collector.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower_service::Service;

use super::{Destination, Protocol};
use weir_common::interim_responses::BoundedStream;

/// How often a connection that is in use is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A client whose connections can be closed.
#[derive(Debug)]
pub(super) struct Connections {
    client: HttpClient,
    tasks: Tasks,
}

#[derive(Debug)]
enum HttpClient {
    Http(Client<HttpsConnector<HttpConnector>, Body>),
    Grpc(Client<BoundedConnector, Body>),
}

impl Connections {
    /// Prepares connections on the current runtime.
    pub(super) fn new(to: &Destination, tls: Arc<ClientConfig>) -> Connections {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(to.timeout));
        let connector = HttpsConnector::from((http, tls));
        let tasks = Tasks::default();
        let mut builder = Client::builder(tasks.clone());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE);
        let client = match to.protocol {
            Protocol::Http => HttpClient::Http(builder.build(connector)),
            Protocol::Grpc => {
                HttpClient::Grpc(builder.http2_only(true).build(BoundedConnector(connector)))
            }
        };
        Connections { client, tasks }
    }

    pub(super) async fn request(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Error> {
        match &self.client {
            HttpClient::Http(client) => client.request(request).await,
            HttpClient::Grpc(client) => client.request(request).await,
        }
    }
}

impl Drop for Connections {
    /// Closes the connections: one whose server sends continuously would not end by itself.
    fn drop(&mut self) {
        self.tasks.0.lock().abort_all();
    }
}

/// Runs the tasks of connections.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Opens connections for HTTP/2.
#[derive(Clone, Debug)]
struct BoundedConnector(HttpsConnector<HttpConnector>);

type HttpsStream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for BoundedConnector {
    type Response = TokioIo<BoundedStream<HttpsStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        // One request at a time.
        Box::pin(async { Ok(TokioIo::new(BoundedStream::new(TokioIo::new(connecting.await?), 1))) })
    }
}
