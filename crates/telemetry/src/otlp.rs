//! Traces and metrics by OTLP, to an OpenTelemetry collector.
//!
//! ```text
//! request ──span──▶ queue ──┐
//!                           ├──▶ thread "weir-otlp": batches, requests, retries ──HTTP or gRPC──▶ collector
//! counters ──each interval──┘
//! ```
//!
//! Serving threads only append finished spans to a bounded queue. The SDK's batch processor would need
//! a blocking HTTP client on a thread of its own, and its `shutdown` waits for work that only the
//! waiting runtime can do. Here one thread with a runtime batches, sends and retries, and
//! [`Exporter::flush`] waits for it for a bounded time.
//!
//! Requests are OTLP's own messages over [`HttpClient`](weir_common::http_client::HttpClient), for both
//! signals and both protocols: histograms that are recorded elsewhere cannot be expressed as instruments
//! of the SDK. The exporter of `opentelemetry-otlp` could send only the spans, so that two
//! implementations would remain; it hides the attempts that fail, which are counted here, reads `OTEL_…`
//! variables over weir's own settings, and has one timeout for a request and all its retries.

mod client;
mod metrics;
mod retry_after;
mod spans;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry::KeyValue;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::resource::{
    EnvResourceDetector, ResourceDetector, TelemetryResourceDetector,
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use self::client::Client;
use self::metrics::MetricsExporter;
use self::spans::{SpanExporter, SpanQueue};
use super::log::SpanLayer;
use weir_common::client_tls::ClientCertificates;
use weir_common::clock::Clock;
use weir_common::http_client::Target;
use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};
use weir_common::random::random_bytes;
use weir_common::secret_url::SecretUrl;
use weir_common::setup_error::SetupError;
use weir_common::threads::{self, Failures};

/// What is sent, and where to.
#[derive(Clone, Debug)]
pub struct Options {
    pub resource: Resource,
    pub traces: Option<Destination>,
    pub metrics: Option<MetricsOptions>,
    /// The certificates for URLs of https.
    pub certificates: Arc<ClientCertificates>,
}

/// The attributes of this process, by their names. Without an instance, it is random.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// Attributes that nothing sets: `OTEL_RESOURCE_ATTRIBUTES` wins over them.
    pub defaults: Vec<(&'static str, String)>,
    /// Attributes that settings name; they win over `OTEL_RESOURCE_ATTRIBUTES`.
    pub set: Vec<(&'static str, String)>,
}

/// Where metrics are sent to, and how often.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    pub to: Destination,
    /// The interval between two exports.
    pub interval: Duration,
}

/// Where one signal is sent to.
#[derive(Clone, Debug)]
pub struct Destination {
    pub protocol: Protocol,
    /// The URL, for HTTP with its path; gRPC adds that of its method.
    pub url: SecretUrl,
    pub headers: HeaderMap,
    /// The timeout of one request.
    pub timeout: Duration,
    /// Whether messages are compressed.
    pub gzip: bool,
}

impl Destination {
    fn target(&self) -> Result<Target, String> {
        let url: Uri = self.url.expose().parse().map_err(|error| format!("{error}"))?;
        Target::try_from(url)
    }
}

/// The protocol of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Grpc,
}

/// Counts of what was sent.
#[derive(Clone, Debug, Default)]
pub struct OtlpCounts {
    spans_sent: Counter,
    /// Spans that the queue had no room for.
    spans_overflowed: Counter,
    /// Spans that the collector did not accept in time.
    spans_undelivered: Counter,
    trace_failures: Counter,
    metric_failures: Counter,
}

const SPANS_EXPORTED: MetricFamily = MetricFamily::counter(
    "trace_spans_exported",
    "Spans accepted by the OpenTelemetry collector",
    &[],
);
const SPANS_DROPPED: MetricFamily = MetricFamily::counter(
    "trace_spans_dropped",
    "Spans dropped because the queue was full or the collector did not accept them",
    &["reason"],
);
const EXPORT_FAILURES: MetricFamily = MetricFamily::counter(
    "otlp_export_failures",
    "Failed requests to the OpenTelemetry collector, including those retried",
    &["signal"],
);

impl MetricSource for OtlpCounts {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(SPANS_EXPORTED, self.spans_sent.get());
        for (family, samples) in [
            (
                SPANS_DROPPED,
                [("queue_full", &self.spans_overflowed), ("undelivered", &self.spans_undelivered)],
            ),
            (
                EXPORT_FAILURES,
                [("metrics", &self.metric_failures), ("traces", &self.trace_failures)],
            ),
        ] {
            sink.family(family);
            for (value, count) in samples {
                let labels = family.labels.iter().map(|label| (*label, value));
                let labels: Vec<_> = labels.collect();
                sink.sample(&labels, SampleValue::Counter(count.get()));
            }
        }
    }
}

/// OTLP before its thread has started: spans are queued, and nothing is sent.
#[derive(Debug)]
pub struct Otlp {
    traces: Option<(Client, Arc<SpanQueue>)>,
    metrics: Option<(Client, Duration)>,
    certificates: Arc<ClientCertificates>,
    resource: opentelemetry_sdk::Resource,
    counts: OtlpCounts,
}

impl Otlp {
    /// Prepares what the options ask for.
    ///
    /// # Errors
    ///
    /// A certificate or key cannot be used.
    pub fn new(options: Options) -> Result<Otlp, SetupError> {
        let counts = OtlpCounts::default();
        let certificates = options.certificates;
        let client = |to, failures: &Counter| Client::new(to, &certificates, failures.clone());
        let queue = || Arc::new(SpanQueue::new(counts.spans_overflowed.clone()));
        let traces = match options.traces {
            Some(to) => Some((client(to, &counts.trace_failures)?, queue())),
            None => None,
        };
        let metrics = match options.metrics {
            Some(MetricsOptions { to, interval }) => {
                Some((client(to, &counts.metric_failures)?, interval))
            }
            None => None,
        };
        let environment = Box::new(EnvResourceDetector::new());
        let resource = resource(options.resource, environment);
        Ok(Otlp { traces, metrics, certificates, resource, counts })
    }

    /// Returns the layer of the log's subscriber that records spans; none if tracing is off.
    pub fn span_layer(&self) -> Option<SpanLayer> {
        self.traces.as_ref().map(|(_, queue)| spans::layer(queue, self.resource.clone()))
    }

    /// Returns the counts of what is sent; none if nothing is.
    pub fn counts(&self) -> Option<OtlpCounts> {
        (self.traces.is_some() || self.metrics.is_some()).then(|| self.counts.clone())
    }

    /// Starts the thread. `collect` lists the metrics.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub fn start(
        self,
        collect: impl Fn(&mut dyn MetricSink) + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
        failures: &Failures,
    ) -> io::Result<Exporter> {
        let (stop, stopped) = watch::channel(None);
        let resource = ResourceAttributesWithSchema::from(&self.resource);
        let resource = Arc::new(resource);
        let spans = self.traces.map(|(client, queue)| {
            SpanExporter::new(client, queue, resource.clone(), self.counts, stopped.clone())
        });
        let metrics = self.metrics.map(|(client, interval)| {
            let collect = Arc::new(collect);
            MetricsExporter::new(client, collect, interval, clock, resource, stopped.clone())
        });
        let certificates = self.certificates;
        let ended = threads::start_background("weir-otlp", failures, move || {
            let (spans, metrics, stopped) = (spans.clone(), metrics.clone(), stopped.clone());
            let spans = async {
                if let Some(spans) = spans {
                    spans.run().await;
                }
            };
            let metrics = async {
                if let Some(metrics) = metrics {
                    metrics.run().await;
                }
            };
            let certificates = certificates.clone();
            async move {
                tokio::select! {
                    _ = async { tokio::join!(spans, metrics) } => {}
                    // Reports an unusable new file before a connection needs it.
                    () = certificates.follow() => {}
                    // Whatever hangs then is abandoned.
                    () = deadline(stopped) => {}
                }
            }
        })?;
        Ok(Exporter { stop, ended })
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Exporter {
    stop: watch::Sender<Option<Instant>>,
    ended: oneshot::Receiver<()>,
}

impl Exporter {
    /// Sends what is left, and stops; at the latest after `timeout`.
    pub async fn flush(self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.stop.send_replace(Some(deadline));
        let in_time = tokio::time::timeout_at(deadline, self.ended).await.is_ok();
        if !in_time {
            tracing::warn!(?timeout, "telemetry was not sent in time");
        }
    }
}

/// Resolves when the exporter has to end.
async fn deadline(mut stop: watch::Receiver<Option<Instant>>) {
    let end = stop.wait_for(Option::is_some).await.ok().and_then(|end| *end);
    // None: the exporter was dropped without flushing, as the process ends.
    if let Some(end) = end {
        tokio::time::sleep_until(end).await;
    }
}

/// Returns the attributes of the process. `environment` reads `OTEL_RESOURCE_ATTRIBUTES`.
fn resource(
    resource: Resource,
    environment: Box<dyn ResourceDetector>,
) -> opentelemetry_sdk::Resource {
    let attribute = |(name, value): (&'static str, String)| KeyValue::new(name, value);
    // Later attributes win.
    opentelemetry_sdk::Resource::builder_empty()
        .with_attribute(KeyValue::new("service.instance.id", random_uuid()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(resource.defaults.into_iter().map(attribute))
        .with_detectors(&[Box::new(TelemetryResourceDetector), environment])
        .with_attributes(resource.set.into_iter().map(attribute))
        .build()
}

/// Returns a random UUID, of version 4.
fn random_uuid() -> String {
    let bits = u128::from_be_bytes(random_bytes());
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use weir_common::client_tls::{ClientFiles, PemFile};

    use super::*;

    #[test]
    fn random_uuids_have_the_form_of_version_4() {
        let uuid = random_uuid();
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4'), "{uuid}");
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        assert_ne!(uuid, random_uuid());
    }

    /// The attributes of an environment.
    struct Environment(&'static [(&'static str, &'static str)]);

    impl ResourceDetector for Environment {
        fn detect(&self) -> opentelemetry_sdk::Resource {
            let attributes = self.0.iter().map(|(name, value)| KeyValue::new(*name, *value));
            opentelemetry_sdk::Resource::builder_empty().with_attributes(attributes).build()
        }
    }

    #[test]
    fn attributes_of_the_environment_win_over_defaults_alone() {
        let environment = Environment(&[
            ("service.name", "theirs"),
            ("service.namespace", "theirs"),
            ("service.instance.id", "theirs"),
            ("cloud.region", "theirs"),
        ]);
        let attributes = |own: Resource, environment: Environment| {
            let resource = resource(own, Box::new(environment));
            move |name: &str| resource.get(&name.to_owned().into()).map(|value| value.to_string())
        };
        let own = Resource {
            defaults: vec![("service.name", "default".to_owned())],
            set: vec![("service.namespace", "set".to_owned())],
        };
        let found = attributes(own.clone(), environment);
        assert_eq!(found("service.name").unwrap(), "theirs");
        assert_eq!(found("service.namespace").unwrap(), "set");
        assert_eq!(found("service.instance.id").unwrap(), "theirs");
        assert_eq!(found("cloud.region").unwrap(), "theirs");
        assert_eq!(found("telemetry.sdk.name").unwrap(), "opentelemetry");
        let found = attributes(own, Environment(&[]));
        assert_eq!(found("service.name").unwrap(), "default");
        assert_eq!(found("service.instance.id").unwrap().len(), 36);
        assert_eq!(found("service.version").unwrap(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn an_unusable_certificate_is_an_error_that_names_its_setting() {
        let ca = PemFile { setting: "otlp.ca", path: "/no/ca.pem".into() };
        let files = ClientFiles { ca: Some(ca), ..ClientFiles::default() };
        let options = |url: &str| Options {
            resource: Resource::default(),
            traces: Some(Destination {
                protocol: Protocol::Grpc,
                url: url.to_owned().into(),
                headers: HeaderMap::new(),
                timeout: Duration::from_secs(1),
                gzip: false,
            }),
            metrics: None,
            certificates: Arc::new(ClientCertificates::new(files.clone())),
        };
        assert!(Otlp::new(options("http://localhost:4317")).is_ok());
        let error = Otlp::new(options("https://localhost:4317")).unwrap_err().to_string();
        // A build without TLS has another reason.
        assert!(
            error.starts_with("otlp.ca names /no/ca.pem: ") || error.contains("no TLS"),
            "{error}"
        );
    }
}
