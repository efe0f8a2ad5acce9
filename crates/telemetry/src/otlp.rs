//! Exports traces to an OpenTelemetry collector by OTLP.
//!
//! ```text
//! request ──span──▶ queue of the SDK ──batch──▶ thread "weir-otlp": requests, retries ──HTTP or gRPC──▶ collector
//! ```
//!
//! The SDK's batch processor has a thread without a runtime, which connections need. `BatchSender` therefore spawns
//! each export on the runtime of another thread; it also bounds and counts exports.

mod send;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use http::Uri;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::resource::{
    EnvResourceDetector, ResourceDetector, TelemetryResourceDetector,
};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, LevelFilter};

use self::send::{BatchSender, unavailable};
pub use self::send::{OtlpCounts, OtlpOptions, OtlpProtocol, OtlpResource};
use crate::log::SpanLayer;
use weir_client::http::Target;
use weir_client::tls::ClientCertificates;
use weir_common::error::SetupError;
use weir_common::random::random_bytes;
use weir_common::spans::TARGET;
use weir_common::threads::{self, Failures};

/// Spans that wait to be sent, about 1 KiB each; more are dropped.
const MAX_QUEUED_SPANS: usize = 4_096;

const MAX_BATCH_SPANS: usize = 512;

/// How long a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
    pub counts: OtlpCounts,
    pub certificates: Arc<ClientCertificates>,
}

impl Otlp {
    pub fn start(options: OtlpOptions, failures: &Failures) -> Result<Otlp, SetupError> {
        let url: Result<Uri, _> = options.url.expose().parse();
        let target = url.map_err(|error| SetupError::Invalid(error.to_string()))?;
        let target = Target::try_from(target).map_err(SetupError::Invalid)?;
        if target.is_tls {
            options.certificates.read()?;
        }
        let certificates = options.certificates.clone();
        let runtime = start_thread(certificates.clone(), failures)?;
        let resource = resource(options.resource.clone(), Box::new(EnvResourceDetector::new()));
        let counts = OtlpCounts::default();
        let sender = BatchSender::new(options, target, runtime, counts.clone())?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(BATCH_DELAY);
        let processor = BatchSpanProcessor::builder(sender).with_batch_config(batches.build());
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor.build())
            // Spans exist only for requests that are recorded.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource)
            .build();
        Ok(Otlp { provider, counts, certificates })
    }

    /// Returns the layer of the log's subscriber that records the spans of requests, and nothing else.
    pub fn span_layer(&self) -> SpanLayer {
        let only_requests =
            FilterFn::new(|metadata| metadata.is_span() && metadata.target() == TARGET);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("weir"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(only_requests.with_max_level_hint(LevelFilter::INFO));
        Box::new(layer)
    }

    /// Sends what is left, and stops; at the latest after `timeout`.
    pub async fn flush(self, timeout: Duration) {
        // It blocks. The SDK logs its errors.
        let stop = move || self.provider.shutdown_with_timeout(timeout);
        let _ = threads::run_blocking(stop).await;
    }
}

/// Starts the thread that sends. Returns its runtime.
fn start_thread(
    certificates: Arc<ClientCertificates>,
    failures: &Failures,
) -> Result<Handle, SetupError> {
    let (runtimes, runtime) = sync_channel(1);
    let started = threads::start_background("weir-otlp", failures, move || {
        // Full after a panic: the runtime is the same.
        let _ = runtimes.try_send(Handle::current());
        let certificates = certificates.clone();
        // Reports an unusable new file before a connection needs it, and never ends.
        async move { certificates.follow().await }
    });
    started.map_err(unavailable)?;
    runtime.recv().map_err(unavailable)
}

/// Returns the attributes of the process. `environment` reads `OTEL_RESOURCE_ATTRIBUTES`.
fn resource(
    resource: OtlpResource,
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
    use http::HeaderMap;
    use weir_client::tls::{ClientFiles, PemFile};

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
        let attributes = |own: OtlpResource, environment: Environment| {
            let resource = resource(own, Box::new(environment));
            move |name: &str| resource.get(&name.to_owned().into()).map(|value| value.to_string())
        };
        let own = OtlpResource {
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
        let start = |url: &str| {
            let options = OtlpOptions {
                resource: OtlpResource::default(),
                protocol: OtlpProtocol::Grpc,
                url: url.to_owned().into(),
                headers: HeaderMap::new(),
                certificates: Arc::new(ClientCertificates::new(files.clone())),
            };
            Otlp::start(options, &Failures::default())
        };
        assert!(start("http://localhost:4317").is_ok());
        let error = start("https://localhost:4317").unwrap_err().to_string();
        assert!(error.starts_with("otlp.ca names /no/ca.pem: "), "{error}");
    }
}
