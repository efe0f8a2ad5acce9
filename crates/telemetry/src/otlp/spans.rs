//! Records spans and sends them in batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, LevelFilter};

use super::OtlpCounts;
use super::client::{Client, Connected, Signal};
use crate::log::SpanLayer;
use weir_common::metrics::Counter;
use weir_common::spans::TARGET;

/// Spans that wait to be sent, about 1 KiB each; more are dropped.
const MAX_QUEUED_SPANS: usize = 4_096;

/// Spans in one request.
const MAX_BATCH_SPANS: usize = 512;

/// How long a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// How long a batch of spans is retried.
const BATCH_RETRY_TIME: Duration = Duration::from_secs(30);

/// Finished spans that wait to be sent.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: Mutex<VecDeque<SpanData>>,
    /// Notified when there is a whole batch.
    batch: Notify,
    overflowed: Counter,
}

impl SpanQueue {
    pub fn new(overflowed: Counter) -> SpanQueue {
        SpanQueue { spans: Mutex::default(), batch: Notify::new(), overflowed }
    }

    fn push(&self, span: SpanData) {
        let mut spans = self.spans.lock();
        if spans.len() >= MAX_QUEUED_SPANS {
            drop(spans);
            self.overflowed.inc();
            return;
        }
        spans.push_back(span);
        let whole = spans.len() == MAX_BATCH_SPANS;
        drop(spans);
        // Not for each span: waking a thread is a system call.
        if whole {
            self.batch.notify_one();
        }
    }

    /// Takes the oldest spans, at most a batch.
    fn take(&self) -> Vec<SpanData> {
        let mut spans = self.spans.lock();
        let count = spans.len().min(MAX_BATCH_SPANS);
        spans.drain(..count).collect()
    }
}

/// Hands finished spans to the queue.
#[derive(Debug)]
struct QueueProcessor(Arc<SpanQueue>);

impl SpanProcessor for QueueProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.push(span);
    }

    // The exporter is flushed instead: these could not wait for it on its own thread.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns the layer that records the spans of requests, and nothing else.
pub(super) fn layer(queue: &Arc<SpanQueue>, resource: Resource) -> SpanLayer {
    let provider = SdkTracerProvider::builder()
        .with_span_processor(QueueProcessor(queue.clone()))
        // Spans exist only for requests that are recorded.
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(resource)
        .build();
    let only_requests = FilterFn::new(|metadata| metadata.is_span() && metadata.target() == TARGET);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("weir"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_filter(only_requests.with_max_level_hint(LevelFilter::INFO));
    Box::new(layer)
}

struct Traces;

impl Signal for Traces {
    const NAME: &'static str = "traces";
    const METHOD: &'static str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    type Request = ExportTraceServiceRequest;
    type Response = ExportTraceServiceResponse;

    fn rejected(response: ExportTraceServiceResponse) -> Option<(i64, String)> {
        let partial = response.partial_success?;
        (partial.rejected_spans > 0).then_some((partial.rejected_spans, partial.error_message))
    }
}

/// Sends the spans of the queue.
#[derive(Clone)]
pub(super) struct SpanExporter {
    client: Client,
    queue: Arc<SpanQueue>,
    resource: Arc<ResourceAttributesWithSchema>,
    counts: OtlpCounts,
    stop: watch::Receiver<Option<Instant>>,
}

impl SpanExporter {
    pub fn new(
        client: Client,
        queue: Arc<SpanQueue>,
        resource: Arc<ResourceAttributesWithSchema>,
        counts: OtlpCounts,
        stop: watch::Receiver<Option<Instant>>,
    ) -> SpanExporter {
        SpanExporter { client, queue, resource, counts, stop }
    }

    /// Sends batches until the exporter is stopped and the queue is empty.
    pub async fn run(self) {
        let SpanExporter { client, queue, resource, counts, mut stop } = self;
        let mut client = client.connect();
        loop {
            let stopped = tokio::select! {
                () = tokio::time::sleep(BATCH_DELAY) => false,
                () = queue.batch.notified() => false,
                _ = stop.wait_for(Option::is_some) => true,
            };
            loop {
                let spans = queue.take();
                if spans.is_empty() {
                    break;
                }
                send(&mut client, spans, &resource, &counts, &mut stop).await;
            }
            if stopped {
                return;
            }
        }
    }
}

async fn send(
    client: &mut Connected,
    spans: Vec<SpanData>,
    resource: &ResourceAttributesWithSchema,
    counts: &OtlpCounts,
    stop: &mut watch::Receiver<Option<Instant>>,
) {
    let count = spans.len() as u64;
    let resource_spans = group_spans_by_resource_and_scope(spans, resource);
    let message = ExportTraceServiceRequest { resource_spans };
    match client.send::<Traces>(&message, BATCH_RETRY_TIME, stop).await {
        true => counts.spans_sent.inc_by(count),
        false => counts.spans_undelivered.inc_by(count),
    }
}
