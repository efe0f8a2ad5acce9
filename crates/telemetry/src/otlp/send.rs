//! Sends batches of spans by OTLP, over HTTP or gRPC, and counts them.

use std::env;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT,
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter, WithExportConfig, WithHttpConfig,
    WithTonicConfig,
};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::transport::{Channel, Endpoint};

use weir_client::http::{self as http_client, Body, Target};
use weir_client::tls::ClientCertificates;
use weir_common::error::SetupError;
use weir_common::metrics::{Counter, MetricSink, MetricSource};
use weir_common::secret::SecretUrl;
use weir_common::throttle::Throttle;
use weir_common::{metric_families, named_enum};

const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// How often a connection of gRPC that is in use is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct OtlpOptions {
    pub resource: OtlpResource,
    pub protocol: OtlpProtocol,
    /// The URL, for HTTP with its path; gRPC adds that of its method.
    pub url: SecretUrl,
    pub headers: HeaderMap,
    /// The certificates for a URL of https.
    pub certificates: Arc<ClientCertificates>,
}

/// The attributes of this process, by their names. Without an instance, it is random.
#[derive(Clone, Debug, Default)]
pub struct OtlpResource {
    /// Attributes that nothing sets: `OTEL_RESOURCE_ATTRIBUTES` wins over them.
    pub defaults: Vec<(&'static str, String)>,
    /// Attributes that settings name; they win over `OTEL_RESOURCE_ATTRIBUTES`.
    pub set: Vec<(&'static str, String)>,
}

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OtlpProtocol, name {
        Http = "http",
        Grpc = "grpc",
    }
}

#[derive(Clone, Debug, Default)]
pub struct OtlpCounts {
    sent: Counter,
    failed: Counter,
}

metric_families! {
    BATCHES_SENT: counter("trace_batches_sent", &[]) = "Batches of spans accepted by the OpenTelemetry collector";
    BATCHES_FAILED: counter("trace_batches_failed", &[])
        = "Batches of spans dropped because the OpenTelemetry collector did not accept them in time";
}

impl MetricSource for OtlpCounts {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(BATCHES_SENT, self.sent.get());
        sink.counter(BATCHES_FAILED, self.failed.get());
    }
}

/// Sends batches on a runtime, by the exporter of `opentelemetry-otlp`.
#[derive(Debug)]
pub(super) struct BatchSender {
    exporter: Arc<SpanExporter>,
    runtime: Handle,
    /// The timeout of a batch, with all retries.
    timeout: Duration,
    collector: SecretUrl,
    counts: OtlpCounts,
    cause: Cause,
    log: Throttle,
}

/// Why the last request over HTTP failed, which the exporter does not return.
type Cause = Arc<Mutex<Option<String>>>;

impl BatchSender {
    pub fn new(
        options: OtlpOptions,
        target: Target,
        runtime: Handle,
        counts: OtlpCounts,
    ) -> Result<BatchSender, SetupError> {
        let OtlpOptions { protocol, url, headers, certificates, .. } = options;
        let (cause, timeout) = (Cause::default(), timeout());
        let exporter = match protocol {
            OtlpProtocol::Http => {
                // `HttpSender` knows the server.
                let endpoint = format!("http://{}{}", target.authority(), target.path());
                let (client, cause) = (Mutex::default(), cause.clone());
                let sender = HttpSender { target, certificates, headers, client, cause };
                SpanExporter::builder()
                    .with_http()
                    .with_http_client(sender)
                    .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
                    .with_endpoint(endpoint)
                    .with_timeout(timeout)
                    .build()
            }
            OtlpProtocol::Grpc => {
                let set_headers = move |mut request: tonic::Request<()>| {
                    let metadata: &mut HeaderMap = request.metadata_mut().as_mut();
                    metadata.extend(headers.clone());
                    Ok(request)
                };
                let _entered = runtime.enter();
                SpanExporter::builder()
                    .with_tonic()
                    .with_channel(channel(target, certificates)?)
                    .with_interceptor(set_headers)
                    .with_timeout(timeout)
                    .build()
            }
        };
        let exporter = exporter.map_err(|error| SetupError::Invalid(error.to_string()))?;
        let (exporter, log) = (Arc::new(exporter), Throttle::new(LOG_INTERVAL));
        Ok(BatchSender { exporter, runtime, timeout, collector: url, counts, cause, log })
    }
}

impl opentelemetry_sdk::trace::SpanExporter for BatchSender {
    /// Never returns an error: the SDK would log each.
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (exporter, timeout) = (self.exporter.clone(), self.timeout);
        let sent = async move { tokio::time::timeout(timeout, exporter.export(batch)).await };
        let error = match self.runtime.spawn(sent).await {
            Ok(Ok(Ok(()))) => {
                self.counts.sent.inc();
                return Ok(());
            }
            Ok(Ok(Err(error))) => self.cause.lock().take().unwrap_or_else(|| error.to_string()),
            Ok(Err(_)) => format!("no answer within {timeout:?}"),
            Err(panic) => panic.to_string(),
        };
        self.counts.failed.inc();
        if let Some(suppressed) = self.log.pass() {
            tracing::warn!(collector = %self.collector, %error, suppressed, "cannot export telemetry");
        }
        Ok(())
    }

    fn set_resource(&mut self, resource: &opentelemetry_sdk::Resource) {
        // Nothing is sent yet.
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

/// Returns the timeout of a batch, from OpenTelemetry's variables in milliseconds, as the exporter reads them.
fn timeout() -> Duration {
    let names = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let millis = names.into_iter().find_map(|name| env::var(name).ok()?.parse().ok());
    millis.map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// Returns a channel to a server, which connects when it is used, each time with the certificates as they are then.
fn channel(target: Target, certificates: Arc<ClientCertificates>) -> Result<Channel, SetupError> {
    let scheme = if target.is_tls { "https" } else { "http" };
    let origin = Uri::builder().scheme(scheme).authority(target.authority()).path_and_query("/");
    let origin = origin.build().map_err(unavailable)?;
    // With the scheme https, it would want TLS of its own.
    let endpoint = Endpoint::from_shared(format!("http://{}", target.authority()));
    let endpoint = endpoint.map_err(unavailable)?.origin(origin);
    let endpoint = endpoint.http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE);
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (target, certificates) = (target.clone(), certificates.clone());
        async move { http_client::connect(&target, &certificates, true).await.map(TokioIo::new) }
    })))
}

pub(super) fn unavailable(error: impl Display) -> SetupError {
    SetupError::Unavailable(error.to_string())
}

/// Sends requests over HTTP, one at a time.
#[derive(Debug)]
struct HttpSender {
    target: Target,
    certificates: Arc<ClientCertificates>,
    /// They win over headers of the exporter.
    headers: HeaderMap,
    /// The client, while there is no request. A request that fails or takes too long drops it.
    client: Mutex<Option<http_client::HttpClient>>,
    cause: Cause,
}

impl HttpSender {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().cloned();
        head.uri = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        head.headers.extend(self.headers.clone());
        let client = self.client.lock().take();
        let mut client = client.unwrap_or_else(|| {
            http_client::HttpClient::new(self.target.clone(), self.certificates.clone())
        });
        let response = client.send(Request::from_parts(head, Body::from(body))).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?.to_bytes();
        *self.client.lock() = Some(client);
        Ok(Response::from_parts(head, body))
    }
}

#[tonic::async_trait]
impl HttpClient for HttpSender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request).await;
        *self.cause.lock() = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => {
                let text: String =
                    String::from_utf8_lossy(response.body()).chars().take(200).collect();
                Some(format!("status {}: {text}", response.status()))
            }
            Err(error) => Some(error.to_string()),
        };
        sent
    }
}
