//! An OpenTelemetry collector that records what it receives, by HTTP or gRPC.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue};
use axum::routing::post;
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

use super::wait_for;

/// A running collector. It and its connections end when it is dropped.
#[derive(Debug)]
pub struct Collector {
    pub address: SocketAddr,
    pub is_http: bool,
    received: Received,
    runtime: Option<Runtime>,
}

/// What the collector has received.
#[derive(Clone, Debug, Default)]
struct Received {
    traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    /// The `authorization` header of each request.
    authorizations: Arc<Mutex<Vec<String>>>,
    /// Requests still to be refused as if the collector were overloaded.
    refusals: Arc<Mutex<usize>>,
    /// How each request was compressed, if it was.
    encodings: Arc<Mutex<Vec<String>>>,
    /// How long a refused client has to wait.
    retry_after: Arc<Mutex<Option<Duration>>>,
    /// When requests arrived, refused or not.
    attempts: Arc<Mutex<Vec<Instant>>>,
}

impl Collector {
    /// Starts a collector for HTTP.
    pub fn http() -> Collector {
        Collector::start(true, |listener, received| async move {
            let routes =
                axum::Router::new().route("/v1/traces", post(http_traces)).with_state(received);
            axum::serve(listener, routes).await.expect("serves");
        })
    }

    /// Starts a collector for gRPC.
    pub fn grpc(tls: Option<ServerTlsConfig>) -> Collector {
        Collector::start(false, |listener, received| async move {
            let mut server = Server::builder();
            if let Some(tls) = tls {
                server = server.tls_config(tls).expect("good certificates");
            }
            let service =
                TraceServiceServer::new(received).accept_compressed(CompressionEncoding::Gzip);
            let serving = server.add_service(service);
            serving.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves");
        })
    }

    fn start<F>(
        is_http: bool,
        serve: impl FnOnce(tokio::net::TcpListener, Received) -> F,
    ) -> Collector
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Its own thread, because tests block theirs.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener");
        let received = Received::default();
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        runtime.spawn(serve(listener, received.clone()));
        drop(guard);
        Collector { address, is_http, received, runtime: Some(runtime) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Refuses the next requests as if it were overloaded.
    pub fn refuse(&self, requests: usize) {
        *self.received.refusals.lock().unwrap() = requests;
    }

    /// Refuses the next request with the time to wait: by 429 and `Retry-After` over HTTP, by `RetryInfo`
    /// over gRPC.
    pub fn refuse_for(&self, wait: Duration) {
        *self.received.retry_after.lock().unwrap() = Some(wait);
        self.refuse(1);
    }

    /// When requests arrived, refused or not.
    pub fn attempts(&self) -> Vec<Instant> {
        self.received.attempts.lock().unwrap().clone()
    }

    /// Waits until all of those requests were refused.
    pub fn wait_until_refused(&self) {
        let all = || (*self.received.refusals.lock().unwrap() == 0).then_some(());
        wait_for("requests are refused", all);
    }

    /// The spans received so far, each with the attributes of its process.
    pub fn spans(&self) -> Vec<RecordedSpan> {
        let requests = self.received.traces.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let spans = resources.flat_map(|resource| {
            let process = resource.resource.clone().unwrap_or_default().attributes;
            let spans = resource.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            spans.map(move |span| RecordedSpan { span, process: process.clone() })
        });
        spans.collect()
    }

    /// Waits until a trace has this number of spans. Returns them.
    pub fn trace(&self, trace_id: &str, spans: usize) -> Vec<RecordedSpan> {
        wait_for(&format!("{spans} spans of {trace_id}"), || {
            let mut found = self.spans();
            found.retain(|span| span.trace_id() == trace_id);
            (found.len() >= spans).then_some(found)
        })
    }

    /// How the requests received so far were compressed; nothing of others.
    pub fn encodings(&self) -> Vec<String> {
        self.received.encodings.lock().unwrap().clone()
    }

    /// The `authorization` headers received so far.
    pub fn authorizations(&self) -> Vec<String> {
        self.received.authorizations.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A span with the attributes of its process.
#[derive(Clone, Debug)]
pub struct RecordedSpan {
    pub span: Span,
    process: Vec<KeyValue>,
}

impl RecordedSpan {
    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// Returns an attribute as text; empty if there is none.
    pub fn attribute(&self, key: &str) -> String {
        attribute(&self.span.attributes, key)
    }

    /// Returns an attribute that is an integer; none if there is none, or it is not one.
    pub fn integer(&self, key: &str) -> Option<i64> {
        let found = self.span.attributes.iter().find(|attribute| attribute.key == key)?;
        match found.value.as_ref()?.value.as_ref()? {
            Value::IntValue(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns an attribute of the process.
    pub fn process(&self, key: &str) -> String {
        attribute(&self.process, key)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns an attribute as text; empty if there is none.
fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key);
    let value = value.and_then(|attribute| attribute.value.clone());
    match value {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text,
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        Some(AnyValue { value: Some(Value::BoolValue(is)) }) => is.to_string(),
        other => other.map(|value| format!("{value:?}")).unwrap_or_default(),
    }
}

impl Received {
    /// Records a request's authorization. Returns how long to wait, if anything, if it is to be refused.
    fn admit(&self, authorization: Option<&str>) -> Result<(), Option<Duration>> {
        self.attempts.lock().unwrap().push(Instant::now());
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Err(*self.retry_after.lock().unwrap());
        }
        let authorization = authorization.unwrap_or_default().to_owned();
        self.authorizations.lock().unwrap().push(authorization);
        Ok(())
    }

    fn record_encoding(&self, encoding: Option<&[u8]>) {
        let encoding = encoding.map(|name| String::from_utf8_lossy(name).into_owned());
        self.encodings.lock().unwrap().extend(encoding);
    }

    fn admit_http(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        self.record_encoding(headers.get("content-encoding").map(HeaderValue::as_bytes));
        let admitted = self.admit(authorization);
        admitted.map_err(|wait| match wait {
            None => (axum::http::StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new()),
            Some(wait) => (
                axum::http::StatusCode::TOO_MANY_REQUESTS,
                HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(wait.as_secs()))]),
            ),
        })
    }

    fn admit_grpc<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.record_encoding(request.metadata().get("grpc-encoding").map(|name| name.as_bytes()));
        let authorization = request.metadata().get("authorization");
        let authorization = authorization.and_then(|value| value.to_str().ok());
        self.admit(authorization).map_err(|wait| match wait {
            None => Status::unavailable("overloaded"),
            Some(wait) => {
                let details = retry_info(wait).into();
                Status::with_details(Code::Unavailable, "overloaded", details)
            }
        })
    }
}

/// `google.rpc.Status`, without what is not needed.
#[derive(Clone, PartialEq, Message)]
struct StatusDetails {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Returns the details of a status that asks to wait.
fn retry_info(wait: Duration) -> Vec<u8> {
    let delay = wait.try_into().expect("a duration");
    let info = RetryInfo { retry_delay: Some(delay) };
    let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
    let detail = prost_types::Any { type_url, value: info.encode_to_vec() };
    StatusDetails { details: vec![detail] }.encode_to_vec()
}

type Refusal = (axum::http::StatusCode, HeaderMap);
type HttpAnswer = Result<Vec<u8>, Refusal>;

/// Returns the message of a request, which may be compressed.
fn message<M: Message + Default>(headers: &HeaderMap, body: &Bytes) -> M {
    if headers.get("content-encoding").is_none_or(|encoding| encoding != "gzip") {
        return M::decode(body.clone()).expect("a message");
    }
    let mut message = Vec::new();
    GzDecoder::new(&body[..]).read_to_end(&mut message).expect("is compressed");
    M::decode(message.as_slice()).expect("a message")
}

async fn http_traces(State(to): State<Received>, headers: HeaderMap, body: Bytes) -> HttpAnswer {
    to.admit_http(&headers)?;
    to.traces.lock().unwrap().push(message(&headers, &body));
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.admit_grpc(&request)?;
        self.traces.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
