//! The running service as one value, built from settings with its sockets bound.

mod stores;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::service::Routes;

use crate::failure::OnStoreFailure;
use crate::grpc::{self, Grpc, Turns};
use crate::health::Health;
use crate::http;
use crate::limiter::Limiter;
use crate::loader::Loader;
use crate::proto::DESCRIPTORS;
use crate::service::{HeaderNames, HealthService, Options, RateLimit, Rules};
use crate::settings::{Drain, Settings};
use crate::store::configured::Configured;
use crate::telemetry::metrics::Metrics;
use crate::workers::Workers;

/// The service, ready to run.
#[derive(Debug)]
pub struct App {
    grpc: TcpListener,
    http: TcpListener,
    debug: TcpListener,
    rate_limit: RateLimit<Configured>,
    rules: Rules,
    loader: Arc<Loader>,
    limiter: Arc<Limiter<Configured>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    limits: grpc::Limits,
    max_connections: usize,
    http_limits: http::Limits,
    threads: usize,
    drain: Drain,
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
    /// Binds the sockets and puts everything together; does not serve yet.
    pub async fn build(settings: &Settings) -> anyhow::Result<App> {
        let store = stores::make(settings);
        let limiter = Arc::new(Limiter::new(store, settings.behaviour));
        let rules = Rules::default();
        let metrics = Arc::new(Metrics::new(limiter.clone(), rules.clone()));
        let health =
            Arc::new(Health::new(settings.health.require_rules, settings.health.require_domain));
        let loader =
            Loader::new(rules.clone(), settings.rules.options(), health.clone(), metrics.clone());
        // Where failures are answered here, nobody need wait for the store.
        let on_failure = settings.store.on_failure;
        if settings.store.redis.is_none() || on_failure != OnStoreFailure::Error {
            health.store_answers();
        }
        let response = &settings.response;
        let options = Options {
            headers: response.headers.then(|| HeaderNames {
                limit: response.limit_header.clone(),
                remaining: response.remaining_header.clone(),
                reset: response.reset_header.clone(),
            }),
            retry_after: response.retry_after,
            ratelimit_fields: response.ratelimit_fields,
            dynamic_metadata: response.dynamic_metadata,
            budget: settings.store.budget,
        };
        Ok(App {
            grpc: bind(&settings.grpc.address, "grpc.address").await?,
            http: bind(&settings.http.address, "http.address").await?,
            debug: bind(&settings.debug.address, "debug.address").await?,
            rate_limit: RateLimit::new(limiter.clone(), rules.clone(), options),
            rules,
            loader: Arc::new(loader),
            limiter,
            health,
            metrics,
            limits: settings.grpc.limits,
            max_connections: settings.grpc.max_connections,
            http_limits: settings.http_limits,
            threads: settings.threads(),
            drain: settings.drain.clone(),
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
            let turns = Turns::default();
            let serve = move |socket: TcpStream| {
                let (grpc, open, turns) = (grpc.clone(), open.clone(), turns.clone());
                let peer = socket.peer_addr().ok();
                async move { grpc.serve(socket, peer, open, &turns).await }
            };
            // So that the first request need not wait for it.
            let connects = async move { limiter.store().answered().await };
            (connects, serve)
        };
        let workers =
            Workers::start(self.threads, self.max_connections, self.metrics.connections(), begin)?;
        let mut until = closed.clone();
        let grpc = workers.accept(self.grpc, async move {
            let _ = until.wait_for(|closed| *closed).await;
        });
        let main = http::main(
            self.rate_limit,
            self.health.clone(),
            self.metrics.clone(),
            self.limits.max_message,
            self.http_limits.timeout,
        );
        let main = http::serve(self.http, main, self.http_limits, closed.clone());
        let debug = http::debug(self.rules, self.loader, self.metrics);
        let debug = http::serve(self.debug, debug, self.http_limits, closed);
        let sweep = sweep(self.limiter.clone());
        let health = self.health.clone();
        let limiter = self.limiter;
        let connecting = async move {
            limiter.store().answered().await;
            health.store_answers();
            std::future::pending::<()>().await;
        };

        let serving = async { tokio::join!(grpc, main, debug) };
        let draining = async {
            let stop = stop.await;
            self.health.drain();
            if stop == Stop::Gently {
                tracing::info!(delay = ?self.drain.delay, "draining: health says not serving");
                tokio::time::sleep(self.drain.delay).await;
            }
            close.send_replace(true);
            self.health.close();
            tracing::info!("draining: listeners are closed");
            tokio::time::sleep(self.drain.timeout).await;
        };
        tokio::select! {
            _ = serving => {}
            () = draining => tracing::warn!(
                timeout = ?self.drain.timeout, "requests in flight did not end in time"
            ),
            () = sweep => {}
            () = connecting => {}
        }
        tracing::info!("stopped");
        Ok(())
    }
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

/// Frees expired keys while nobody asks; requests free them along the way.
async fn sweep(limiter: Arc<Limiter<Configured>>) {
    let Some(store) = limiter.store().memory() else { return std::future::pending().await };
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        // Once around in ten seconds.
        store.sweep(store.shards().div_ceil(100));
    }
}

async fn bind(address: &str, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} ({setting}): choose another address or port")
    })
}
