//! The running service as one value, built from settings with its sockets bound.

mod descriptors;
mod listen;
mod stores;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tonic::service::Routes;

use crate::clock::SystemClock;
use crate::connections::{self, Connections};
use crate::failure::OnStoreFailure;
use crate::grpc::{self, Grpc, ReadScheduler};
use crate::health::Health;
use crate::http;
use crate::limiter::Limiter;
use crate::loader::Loader;
use crate::proto::DESCRIPTORS;
use crate::service::{HealthService, Protocol, RateLimit, Rules};
use crate::settings::Settings;
use crate::settings::table::StoreKind;
use crate::store::configured::ConfiguredStore;
use crate::store::memory::Evictions;
use crate::telemetry::metrics::Metrics;
use crate::threads;
use crate::workers::Workers;
use descriptors::Shares;
use listen::listen;

/// The service, ready to run.
#[derive(Debug)]
pub struct App {
    grpc: TcpListener,
    http: TcpListener,
    debug: TcpListener,
    rate_limit: RateLimit<ConfiguredStore>,
    /// The same for `/json`, which allows its clients less.
    json_rate_limit: RateLimit<ConfiguredStore>,
    rules: Rules,
    loader: Arc<Loader>,
    limiter: Arc<Limiter<ConfiguredStore>>,
    clock: Arc<SystemClock>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    limits: grpc::Limits,
    shares: Shares,
    http_limits: http::Limits,
    threads: usize,
    drain_delay: Duration,
    drain_timeout: Duration,
}

/// Where the service listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub debug: SocketAddr,
}

/// Why the service is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Load balancers get time to see it.
    Gently,
    /// Somebody waits at a terminal.
    Now,
}

impl App {
    /// Binds the sockets and puts everything together; does not serve yet. `descriptors` is how
    /// many the process may have open, where that is limited.
    pub async fn build(settings: &Settings, descriptors: Option<u64>) -> anyhow::Result<App> {
        let clock = Arc::new(SystemClock::new());
        let store = stores::make(settings, clock.clone());
        let limiter = Arc::new(Limiter::new(store, settings.limiter_options()));
        let rules = Rules::default();
        let metrics = Arc::new(Metrics::new(limiter.clone(), rules.clone()));
        let health =
            Arc::new(Health::new(settings.requires_rules(), *settings.health.require_domain));
        let loader =
            Loader::new(rules.clone(), settings.rule_options(), health.clone(), metrics.clone());
        // Where failures are answered here, nobody need wait for the store.
        let (kind, on_failure) = (*settings.store.kind, *settings.store.on_failure);
        if kind == StoreKind::Memory || on_failure != OnStoreFailure::Error {
            health.store_answers();
        }
        let options = settings.service_options(Protocol::Grpc);
        let for_json = settings.service_options(Protocol::Http);
        let http_limits = settings.http_limits();
        let (max_grpc, max_http) = (*settings.grpc.max_connections, http_limits.max_connections);
        Ok(App {
            grpc: listen(&settings.grpc.address, "grpc.address").await?,
            http: listen(&settings.http.address, "http.address").await?,
            debug: listen(&settings.debug.address, "debug.address").await?,
            rate_limit: RateLimit::new(limiter.clone(), rules.clone(), options),
            json_rate_limit: RateLimit::new(limiter.clone(), rules.clone(), for_json),
            rules,
            loader: Arc::new(loader),
            limiter,
            clock,
            health,
            metrics,
            limits: settings.grpc_limits(),
            shares: descriptors::share(descriptors, max_grpc, max_http),
            http_limits,
            threads: settings.threads(),
            drain_delay: *settings.drain.delay,
            drain_timeout: *settings.drain.timeout,
        })
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What takes rules into force.
    pub fn loader(&self) -> Arc<Loader> {
        self.loader.clone()
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    pub fn addresses(&self) -> anyhow::Result<Addresses> {
        Ok(Addresses {
            grpc: self.grpc.local_addr()?,
            http: self.http.local_addr()?,
            debug: self.debug.local_addr()?,
        })
    }

    /// Serves until `stop` says so; then drains: health says not serving, after the delay the
    /// listeners close, and requests in flight may end until the time-out.
    pub async fn run(self, stop: impl Future<Output = Stop>) -> anyhow::Result<()> {
        let (close, closed) = watch::channel(false);
        let grpc = Grpc::new(self.rate_limit.clone(), self.others()?, self.limits);
        let grpc = Arc::new(grpc);
        let limiter = self.limiter.clone();
        let open = closed.clone();
        let begin = move || {
            let (grpc, open, limiter) = (grpc.clone(), open.clone(), limiter.clone());
            let scheduler = ReadScheduler::default();
            let serve = move |socket: TcpStream, handle: Arc<connections::ConnectionHandle>| {
                let (grpc, open, scheduler) = (grpc.clone(), open.clone(), scheduler.clone());
                let peer = socket.peer_addr().ok();
                async move { grpc.serve(socket, &handle, peer, open, &scheduler).await }
            };
            // So that the first request need not wait for it.
            let connects = async move { limiter.store().answered().await };
            (connects, serve)
        };
        let workers = Workers::start(self.threads, begin)?;
        let connections = |listener, max| {
            let (setting, overflow, min_idle) = match listener {
                "grpc" => ("grpc.max_connections", 0, MIN_IDLE),
                _ => ("http.max_connections", http::MAX_OVERFLOW_CONNECTIONS, Duration::ZERO),
            };
            let limits = connections::Limits { listener, setting, max, overflow, min_idle };
            Connections::new(limits, self.metrics.connections(listener))
        };
        let grpc = connections("grpc", self.shares.grpc);
        let http = connections("http", self.shares.http);
        let debug = connections("debug", self.shares.debug);
        // Each listener has a thread of its own, so that nothing keeps it from accepting.
        let listener = self.grpc;
        let mut until = closed.clone();
        let grpc = threads::start("weir-accept", move || async move {
            let closed = async move { drop(until.wait_for(|closed| *closed).await) };
            let Some(listener) = register(listener) else { return };
            workers.serve(listener, grpc, closed).await;
        })?;
        // The thread of `/json` has a connection to the store too.
        let (limiter, health) = (self.limiter.clone(), self.health.clone());
        let connects = async move {
            limiter.store().answered().await;
            health.store_answers();
        };
        let json = http::Json::start(self.json_rate_limit, &self.http_limits, connects)?;
        let main = http::main(json, self.health.clone(), self.metrics.clone());
        let main = serve_http("weir-http", self.http, main, http, &self.http_limits, &closed)?;
        let router = http::debug(self.rules, self.loader, self.metrics);
        let debug =
            serve_http("weir-debug", self.debug, router, debug, &self.http_limits, &closed)?;
        let sweep = sweep(self.limiter);

        let serving = async { tokio::try_join!(grpc, main, debug) };
        let draining = async {
            let stop = stop.await;
            self.health.drain();
            if stop == Stop::Gently {
                tracing::info!(delay = ?self.drain_delay, "draining: health says not serving");
                tokio::time::sleep(self.drain_delay).await;
            }
            close.send_replace(true);
            self.health.close();
            tracing::info!("draining: listeners are closed");
            tokio::time::sleep(self.drain_timeout).await;
        };
        tokio::select! {
            ended = serving => drop(ended.context("a thread failed: see the log")?),
            () = draining => tracing::warn!(
                timeout = ?self.drain_timeout, "requests in flight did not end in time"
            ),
            () = sweep => {}
            () = self.clock.follow() => {}
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// A connection over gRPC that was used more recently is not evicted: its client would be back at
/// once, and evict another's.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Serves HTTP on a thread of its own. The receiver resolves at its end.
fn serve_http(
    thread: &str,
    listener: TcpListener,
    router: axum::Router,
    connections: Arc<Connections>,
    limits: &http::Limits,
    closed: &watch::Receiver<bool>,
) -> anyhow::Result<oneshot::Receiver<()>> {
    let (timeout, closed) = (limits.timeout, closed.clone());
    let started = threads::start(thread, move || async move {
        let Some(listener) = register(listener) else { return };
        http::serve(listener, router, connections, timeout, closed).await;
    });
    started.with_context(|| format!("cannot start the thread {thread}"))
}

/// Registers a listener with this thread's runtime.
fn register(listener: TcpListener) -> Option<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(listener)
        .inspect_err(|error| tracing::error!(%error, "cannot listen"))
        .ok()
}

/// Bytes of a request of health or reflection, which ask for something by its name.
const SMALL_MESSAGE: usize = 16 << 10;

impl App {
    /// What is served over gRPC beside the API itself.
    fn others(&self) -> anyhow::Result<Routes> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let health = HealthService::new(self.health.clone());
        let health = tonic_health::pb::health_server::HealthServer::new(health)
            .max_decoding_message_size(SMALL_MESSAGE);
        let mut routes = Routes::builder();
        routes
            .add_service(health)
            .add_service(reflection().build_v1()?.max_decoding_message_size(SMALL_MESSAGE))
            .add_service(reflection().build_v1alpha()?.max_decoding_message_size(SMALL_MESSAGE));
        Ok(routes.routes())
    }
}

/// Frees expired keys while nobody asks; requests free them along the way. Warns where the store is
/// too small.
async fn sweep(limiter: Arc<Limiter<ConfiguredStore>>) {
    let Some(store) = limiter.store().memory() else { return std::future::pending().await };
    let (mut evictions, mut ticks) = (Evictions::default(), 0_u32);
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        // Once around in ten seconds.
        store.sweep(store.shards().div_ceil(100));
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(10) {
            evictions.check(store);
        }
    }
}
