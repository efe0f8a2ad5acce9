//! Takes rules from a management server: Envoy's discovery protocol over one stream (ADS).
//!
//! A response that can be used goes into force and is acknowledged; of one that cannot, the server
//! is told why, and the rules before stay. They stay too when the server goes away: it is called
//! again and again, at growing intervals, and then told what is here already.

mod backoff;
mod exchange;
mod report;
mod resources;
mod server;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost_types::{Struct, Value, value::Kind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::loader::Loader;
use crate::proto::envoy::config::core::v3::{Node, node::UserAgentVersionType};
use crate::telemetry::metrics::Metrics;
use backoff::Backoff;
use exchange::{Delta, Exchange, Outcome, Sotw};
use report::Report;

/// A server that has nothing new to say may not say anything: a stream that has not failed for so
/// long is taken to be good.
const SETTLED: Duration = Duration::from_secs(1);

/// How long the answer to a set is held back that was refused already: the first time, and at most.
/// A server that sends such a set again, at once and for ever, would else keep both busy; one that
/// waits for the answer before it sends a better set keeps that back for no longer.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// Which server, and how to speak with it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `host:port`.
    pub url: String,
    /// Whether only changes are asked for.
    pub delta: bool,
    pub node_id: String,
    /// `key=value` each.
    pub node_metadata: Vec<String>,
    /// `name:value` each, sent with every stream.
    pub headers: Vec<String>,
    /// The longest response that is taken, in bytes.
    pub max_message: usize,
    pub connect_timeout: Duration,
    /// How often to ping the server; zero: never.
    pub keepalive: Duration,
    /// The first wait before the server is called again, and the longest.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub backoff_jitter: bool,
    pub tls: Tls,
}

/// Files are PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub enabled: bool,
    /// What the server asks for to know who weir is.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Who may have signed the server's certificate; none: those the system trusts.
    pub ca: Option<PathBuf>,
    /// The name the server's certificate must have; empty: the host's.
    pub server_name: String,
}

/// The client of a management server.
#[derive(Debug)]
pub struct Client {
    options: Arc<Options>,
    headers: MetadataMap,
    loader: Arc<Loader>,
    report: Report,
}

/// Finds what is wrong with the options before anything starts.
///
/// # Errors
/// What is wrong, where it is set, and what to do about it.
pub fn check(options: &Options) -> Result<(), String> {
    server::headers(&options.headers)?;
    server::endpoint(options).map(drop)
}

impl Client {
    /// Does not connect yet.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(options: Options, loader: Arc<Loader>, metrics: &Metrics) -> Result<Client, String> {
        let headers = server::headers(&options.headers)?;
        let report = Report::new(&options, loader.clone(), metrics);
        Ok(Client { options: Arc::new(options), headers, loader, report })
    }

    /// Takes in whatever the server sends from now on. Does not end.
    pub async fn follow(&self) {
        match self.options.delta {
            false => self.run(Sotw::new(self.node())).await,
            true => self.run(Delta::new(self.node())).await,
        }
    }

    async fn run<E: Exchange>(&self, exchange: E) {
        let exchange = Arc::new(Mutex::new(exchange));
        let Options { backoff_min, backoff_max, backoff_jitter, .. } = *self.options;
        let mut backoff = Backoff::new(backoff_min, backoff_max, backoff_jitter);
        loop {
            let began = Instant::now();
            let mut good = false;
            let failure = self.stream(&exchange, &mut good).await;
            if good || began.elapsed() >= backoff.most() {
                backoff.reset();
            }
            let wait = backoff.wait();
            self.report.failed(&failure, wait);
            sleep(wait).await;
        }
    }

    /// One connection and its one stream, to their end; why they ended. `good` becomes true where
    /// rules were taken.
    async fn stream<E: Exchange>(&self, exchange: &Arc<Mutex<E>>, good: &mut bool) -> String {
        match self.try_stream(exchange, good).await {
            Ok(()) => "the server ended the stream".to_owned(),
            Err(failure) => failure,
        }
    }

    async fn try_stream<E: Exchange>(
        &self,
        exchange: &Arc<Mutex<E>>,
        good: &mut bool,
    ) -> Result<(), String> {
        let options = self.options.clone();
        let endpoint = blocking(move || server::endpoint(&options)).await??;
        let connect = timeout(self.options.connect_timeout, endpoint.connect()).await;
        let channel = match connect {
            Ok(channel) => channel.map_err(|error| in_full(&error))?,
            Err(_) => return Err("no connection in time (rules.xds.connect_timeout)".to_owned()),
        };
        let mut client =
            exchange::Client::new(channel).max_decoding_message_size(self.options.max_message);

        let (requests, sent) = mpsc::channel(1);
        let first = exchange.lock().first();
        let mut request = tonic::Request::new(ReceiverStream::new(sent));
        *request.metadata_mut() = self.headers.clone();
        // There is room for it.
        let _ = requests.try_send(first);
        let open = E::open(&mut client, request);
        tokio::pin!(open);
        let opened = match timeout(SETTLED, &mut open).await {
            Ok(opened) => opened,
            Err(_) => {
                self.report.connected();
                open.await
            }
        };
        let mut responses = opened.map_err(|status| self.not_opened(&status))?.into_inner();
        self.report.connected();

        let mut pause = Backoff::new(LEAST_PAUSE, MOST_PAUSE, false);
        let mut next = None;
        loop {
            let response = match next.take() {
                Some(response) => response,
                None => responses.message().await,
            };
            let Some(response) = response.map_err(|status| told(&status))? else { return Ok(()) };
            let (exchange, loader) = (exchange.clone(), self.loader.clone());
            // Compiling may take long, and the runtime's threads serve.
            let answer = blocking(move || exchange.lock().handle(response, &loader)).await?;
            match answer.outcome {
                Outcome::Accepted(version) => {
                    *good = true;
                    self.report.taken(version);
                    pause.reset();
                }
                Outcome::Refused => pause.reset(),
                // What comes meanwhile may be better.
                Outcome::RefusedAgain => {
                    next = timeout(pause.wait(), responses.message()).await.ok();
                }
            }
            if requests.send(answer.request).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Why there was no stream at all.
    fn not_opened(&self, status: &Status) -> String {
        let mut told = told(status);
        // A server refuses a certificate after the client has taken the connection for good, and
        // what it says of it may get lost.
        if self.options.tls.enabled && status.source().is_some() {
            told += " (the server may have refused weir's certificate, see rules.xds.tls.cert)";
        }
        told
    }

    /// Who asks.
    fn node(&self) -> Node {
        let pairs = self.options.node_metadata.iter().filter_map(|pair| pair.split_once('='));
        let metadata = pairs.map(|(key, value)| {
            (key.to_owned(), Value { kind: Some(Kind::StringValue(value.to_owned())) })
        });
        Node {
            id: self.options.node_id.clone(),
            metadata: Some(Struct { fields: metadata.collect() }),
            user_agent_name: "weir".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
            ..Default::default()
        }
    }
}

/// Does what may take long beside the threads that serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| format!("this is a mistake in weir: {error}"))
}

/// Why a stream failed.
fn told(status: &Status) -> String {
    match status.source() {
        // The server did not say it.
        Some(source) => in_full(source),
        None => format!("{}: {}", status.code(), status.message()),
    }
}

/// An error with its causes, where they say something new.
fn in_full(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            told += &format!(": {text}");
        }
        cause = error.source();
    }
    told
}
