//! The running service as one value, built from settings with its sockets bound.

mod stores;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::server::TcpIncoming;

use crate::failure::OnStoreFailure;
use crate::health::Health;
use crate::http;
use crate::limiter::Limiter;
use crate::loader::Loader;
use crate::proto::DESCRIPTORS;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use crate::service::{HeaderNames, HealthService, Options, RateLimit, Rules};
use crate::settings::{Drain, Settings};
use crate::store::configured::Configured;
use crate::telemetry::metrics::Metrics;

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
    max_message: usize,
    max_streams: u32,
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
            max_message: settings.grpc.max_message,
            max_streams: settings.grpc.max_streams,
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
        let until_closed = move || {
            let mut closed = closed.clone();
            async move { drop(closed.wait_for(|closed| *closed).await) }
        };

        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let api = RateLimitServiceServer::new(self.rate_limit.clone())
            .max_decoding_message_size(self.max_message);
        let health = HealthService::new(self.health.clone());
        let grpc = tonic::transport::Server::builder()
            .max_concurrent_streams(self.max_streams)
            .add_service(api)
            .add_service(tonic_health::pb::health_server::HealthServer::new(health))
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(self.grpc).with_nodelay(Some(true)),
                until_closed(),
            );
        let main = http::main(
            self.rate_limit,
            self.health.clone(),
            self.metrics.clone(),
            self.max_message,
        );
        let main =
            axum::serve(self.http, main).with_graceful_shutdown(until_closed()).into_future();
        let debug = http::debug(self.rules, self.loader, self.metrics);
        let debug =
            axum::serve(self.debug, debug).with_graceful_shutdown(until_closed()).into_future();
        let sweep = sweep(self.limiter.clone());
        // Connects, too, so that the first request need not wait for it.
        let health = self.health.clone();
        let limiter = self.limiter;
        let connecting = async move {
            limiter.store().answered().await;
            health.store_answers();
            std::future::pending::<()>().await;
        };

        let serving = async {
            let (grpc, main, debug) = tokio::join!(grpc, main, debug);
            grpc.context("serving gRPC")?;
            main.context("serving HTTP")?;
            debug.context("serving debug HTTP")
        };
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
            served = serving => served?,
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
