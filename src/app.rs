//! The running service as one value, built from settings with its sockets bound.

mod descriptors;
mod lifecycle;
mod listen;
mod servers;
mod stores;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::descriptors::Shares;
use self::lifecycle::Lifecycle;
use self::listen::{listen, listen_on_path};
use self::stores::ConfiguredStore;
use crate::clock::SystemClock;
use crate::grpc;
use crate::health::Health;
use crate::http;
use crate::limiter::Limiter;
use crate::loader::Loader;
use crate::service::{Protocol, RateLimit, Rules};
use crate::settings::Settings;
use crate::sockets::{Address, BoundSocket};
use crate::store::Operations;
use crate::telemetry::metrics::Metrics;
use crate::tls::{self, Certificates};

/// The service, built but not running.
#[derive(Debug)]
pub struct App {
    grpc: BoundSocket,
    http: BoundSocket,
    debug: BoundSocket,
    grpc_tls: Option<Arc<Certificates>>,
    http_tls: Option<Arc<Certificates>>,
    rate_limit: RateLimit<ConfiguredStore>,
    /// The service of `/json`, with its own permissions.
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

/// The addresses that the service listens on.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub grpc: Address,
    pub http: Address,
    pub debug: Address,
}

/// How the service is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After a delay in which load balancers can notice it.
    Gently,
    /// Without a delay, as at Ctrl-C.
    Now,
}

impl App {
    /// Binds the sockets and puts everything together; does not serve yet. `descriptors` is the number
    /// of file descriptors that the process may have open, if it is limited.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on, or the files of TLS cannot be used.
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
        if limiter.store().is_ready() {
            health.store_answers();
        }
        let rate_limit = |protocol| {
            RateLimit::new(limiter.clone(), rules.clone(), settings.service_options(protocol))
        };
        let http_limits = settings.http_limits();
        let (max_grpc, max_http) = (*settings.grpc.max_connections, http_limits.max_connections);
        Ok(App {
            grpc_tls: certificates(settings.grpc_tls_options())?,
            http_tls: certificates(settings.http_tls_options())?,
            grpc: match &*settings.grpc.uds {
                Some(path) => listen_on_path(path, "grpc.uds").await?,
                None => listen(&settings.grpc.address, "grpc.address").await?,
            },
            http: listen(&settings.http.address, "http.address").await?,
            debug: listen(&settings.debug.address, "debug.address").await?,
            rate_limit: rate_limit(Protocol::Grpc),
            json_rate_limit: rate_limit(Protocol::Http),
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

    /// The active rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What activates rules.
    pub fn loader(&self) -> Arc<Loader> {
        self.loader.clone()
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Returns the addresses that the sockets are bound to.
    ///
    /// # Errors
    ///
    /// The system cannot report the address of a socket.
    pub fn addresses(&self) -> anyhow::Result<Addresses> {
        Ok(Addresses {
            grpc: self.grpc.address()?,
            http: self.http.address()?,
            debug: self.debug.address()?,
        })
    }

    /// Serves until `stop` resolves; then drains and stops, as the module `lifecycle` describes.
    ///
    /// # Errors
    ///
    /// A thread could not start, or failed.
    pub async fn run(self, stop: impl Future<Output = Stop>) -> anyhow::Result<()> {
        let (close, closed) = watch::channel(false);
        let lifecycle = Lifecycle {
            health: self.health.clone(),
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            close,
        };
        let (limiter, clock) = (self.limiter.clone(), self.clock.clone());
        for certificates in [&self.grpc_tls, &self.http_tls].into_iter().flatten() {
            tokio::spawn(certificates.clone().follow());
        }
        let servers = self.start(&closed)?;
        tokio::select! {
            stopped = lifecycle.run(servers.ended(), stop) => stopped,
            // Neither ends.
            () = limiter.store().maintain() => Ok(()),
            () = clock.follow() => Ok(()),
        }
    }
}

/// Loads the certificates of a listener, if it has TLS.
fn certificates(options: Option<tls::Options>) -> anyhow::Result<Option<Arc<Certificates>>> {
    options.map(Certificates::load).transpose().map_err(anyhow::Error::msg)
}
