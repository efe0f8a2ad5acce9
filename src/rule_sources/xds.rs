//! Receives rules from a management server: Envoy's discovery protocol over one aggregated stream (ADS).
//!
//! A valid response is activated and acknowledged. An invalid one is rejected with its errors, and the active rules
//! stay. They also stay when the stream ends: weir reconnects at growing intervals and sends the versions that it has.

mod exchange;
pub(crate) mod report;
mod resources;
mod server;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost_types::{Struct, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::proto::envoy::config::core::v3::{Node, node::UserAgentVersionType};
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::rule_sources::loader::Loader;
use exchange::{Acknowledgement, Exchange, ExchangeOutcome};
use report::XdsReport;
pub use server::{XdsOptions, XdsTls, check};
use weir_api::grpc_client;
use weir_common::backoff::Backoff;
use weir_common::error::with_causes;
use weir_common::threads;
use weir_telemetry::metrics::Metrics;

/// A stream that has not failed for this long counts as connected: a server with no news may send nothing.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The first and the longest delay of the answer to a set that was just rejected. Some servers resend
/// such a set immediately and continuously, which would keep both sides busy. The maximum is short,
/// because others send a corrected set only after the answer.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Client {
    options: Arc<XdsOptions>,
    headers: MetadataMap,
    loader: Arc<Loader>,
    report: XdsReport,
}

impl Client {
    pub fn new(
        options: XdsOptions,
        loader: Arc<Loader>,
        metrics: &Metrics,
    ) -> Result<Client, String> {
        let headers = server::headers(&options.headers)?;
        let report = XdsReport::new(&options, loader.clone(), metrics);
        Ok(Client { options: Arc::new(options), headers, loader, report })
    }

    /// Receives and loads rules. Never returns.
    pub async fn follow(&self) {
        tokio::join!(self.run(), self.options.tls.certificates.follow());
    }

    async fn run(&self) {
        let exchange = Arc::new(Mutex::new(Exchange::new(self.node())));
        let XdsOptions { backoff_min, backoff_max, backoff_jitter, .. } = *self.options;
        let mut backoff = Backoff::new(backoff_min, backoff_max, backoff_jitter);
        loop {
            let started = Instant::now();
            let mut good = false;
            let ended = self.stream(&exchange, &mut good).await;
            let failure = ended.err().unwrap_or_else(|| "the server ended the stream".to_owned());
            if good || started.elapsed() >= backoff.max {
                backoff.reset();
            }
            let wait = backoff.wait();
            self.report.failed(&failure, wait);
            sleep(wait).await;
        }
    }

    /// Runs one stream until it ends, or returns why it failed. Sets `good` once rules were accepted.
    async fn stream(&self, exchange: &Arc<Mutex<Exchange>>, good: &mut bool) -> Result<(), String> {
        let options = self.options.clone();
        let endpoint = blocking(move || server::endpoint(&options)).await??;
        let connect = timeout(server::CONNECT_TIMEOUT, grpc_client::connect(&endpoint)).await;
        let connected = connect.map_err(|_| "timeout of the connection".to_owned())?;
        let channel = connected.map_err(|error| with_causes(&error))?;
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.options.max_message);

        let (requests, sent) = mpsc::channel(1);
        let late = exchange.lock().loaded_late(&self.loader);
        if let Some(Acknowledgement { outcome: ExchangeOutcome::Accepted(version), .. }) = late {
            // The server of the last stream was not told; the first request has this version.
            self.report.accepted(version);
        }
        let first = exchange.lock().first();
        let mut request = tonic::Request::new(ReceiverStream::new(sent));
        *request.metadata_mut() = self.headers.clone();
        // The channel is empty, so this cannot fail.
        let _ = requests.try_send(first);
        let open = client.stream_aggregated_resources(request);
        tokio::pin!(open);
        let opened = match timeout(SETTLE_TIME, &mut open).await {
            Ok(opened) => opened,
            Err(_) => {
                self.report.connected();
                open.await
            }
        };
        let mut responses = opened.map_err(|status| self.not_opened(&status))?.into_inner();
        self.report.connected();

        let mut pause = Backoff::new(MIN_PAUSE, MAX_PAUSE, false);
        let mut next = None;
        loop {
            let response = match next.take() {
                Some(response) => Some(response),
                None => tokio::select! {
                    response = responses.message() => Some(response),
                    () = self.loader.loaded_late() => None,
                },
            };
            let (exchange, loader) = (exchange.clone(), self.loader.clone());
            let answer = match response {
                // Compiling many rules takes long, and the threads of the runtime serve requests.
                Some(response) => {
                    let response = response.map_err(|status| reason(&status))?;
                    let Some(response) = response else { return Ok(()) };
                    blocking(move || exchange.lock().handle(response, &loader)).await?
                }
                None => match exchange.lock().loaded_late(&loader) {
                    Some(answer) => answer,
                    None => continue,
                },
            };
            match answer.outcome {
                ExchangeOutcome::Accepted(version) => {
                    *good = true;
                    self.report.accepted(version);
                    pause.reset();
                }
                ExchangeOutcome::Rejected => pause.reset(),
                // A different response ends the pause.
                ExchangeOutcome::RejectedAgain => {
                    next = timeout(pause.wait(), responses.message()).await.ok();
                }
            }
            if requests.send(answer.request).await.is_err() {
                return Ok(());
            }
        }
    }

    fn not_opened(&self, status: &Status) -> String {
        let mut reason = reason(status);
        // A server refuses a certificate after the client considers the connection established, and its
        // alert may get lost.
        if self.options.tls.enabled && status.source().is_some() {
            reason += " (the server may have refused weir's certificate, see rules.xds.tls.cert)";
        }
        reason
    }

    fn node(&self) -> Node {
        let pairs = self.options.node_metadata.iter().filter_map(|pair| pair.split_once('='));
        let metadata = pairs.map(|(key, value)| (key.to_owned(), Value::from(value)));
        let version = UserAgentVersionType::UserAgentVersion(crate::VERSION.to_owned());
        Node {
            id: self.options.node_id.clone(),
            metadata: Some(Struct { fields: metadata.collect() }),
            user_agent_name: "weir".to_owned(),
            user_agent_version_type: Some(version),
            ..Default::default()
        }
    }
}

/// Runs long work outside the serving threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    threads::run_blocking(work).await.map_err(|error| format!("not done: {error}"))
}

fn reason(status: &Status) -> String {
    match status.source() {
        // The error is local, not sent by the server.
        Some(source) => with_causes(source),
        None => format!("{}: {}", status.code(), status.message()),
    }
}
