//! The service that `weir serve` runs: `App::build` makes it, with its sockets bound; `App::run` serves, then drains.

mod descriptors;
mod lifecycle;
pub mod listeners;
mod reference_page;
mod resp;
mod servers;
mod store_health;
mod stores;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join, try_join_all};
use tokio::sync::watch;
use tracing::Level;

use self::descriptors::Shares;
pub use self::lifecycle::Stop;
use self::lifecycle::{Flushers, Lifecycle};
use self::listeners::{Bound, DEBUG, GRPC, HTTP, Listener, METRICS, Opening};
use self::resp::RespListener;
use self::store_health::{follow_store, report_controls};
use self::stores::ConfiguredStore;
use crate::health::{Health, Required};
use crate::http::operators::{Access, ChangeLog, Sources};
use crate::net::tls::{Certificates, Identities, TlsListeners};
use crate::net::{Address, bind, bind_path};
use crate::rls::service::{Protocol, RateLimit, Rules};
use crate::rule_sources::loader::Loader;
use crate::rule_sources::watch::QUIET_TIME;
use crate::settings::Settings;
use crate::{COMMIT, VERSION};
use weir_client::tls::ClientCertificates;
use weir_common::clock::{BootClock, SystemClock};
use weir_common::error::SetupError;
use weir_common::threads::Failures;
use weir_controls::{ActiveRules, ControlClock, Controls};
use weir_limiter::Limiter;
use weir_quotas::Quotas;
use weir_redis::ClockSource;
use weir_rules::WatchedLists;
use weir_store::Operations;
use weir_telemetry::log::ActiveLevels;
use weir_telemetry::metrics::{Metrics, ProcessMetrics};
use weir_telemetry::reference::page::ReferencePage;
use weir_top::Top;

/// How long a request to `/json` waits for the first rules.
const MAX_JSON_WAIT: Duration = Duration::from_secs(1);

/// The service, built but not running.
pub struct App {
    settings: Arc<Settings>,
    grpc: Bound,
    http: Bound,
    debug: Bound,
    resp: Option<RespListener>,
    /// The listener for Prometheus, and the path that it serves.
    prometheus: Option<(Bound, String)>,
    rate_limit: RateLimit<ConfiguredStore>,
    /// The service of `/json`, with its own permissions.
    json_rate_limit: RateLimit<ConfiguredStore>,
    pub sources: Sources<ConfiguredStore>,
    pub metrics: Arc<Metrics>,
    reference_page: Option<Arc<ReferencePage>>,
    /// The levels of the log, for clients of the debug port to change.
    pub log_levels: Option<ActiveLevels>,
    access: Arc<Access>,
    shares: Shares,
    thread_failures: Failures,
    flushers: Flushers,
}

impl App {
    /// Binds the sockets and puts everything together; does not serve yet. `descriptors` is the number
    /// of file descriptors that the process may have open, if it is limited.
    pub async fn build(
        settings: &Arc<Settings>,
        descriptors: Option<u64>,
        thread_failures: Failures,
    ) -> Result<App, SetupError> {
        let clock = Arc::new(SystemClock::new());
        let mut identities = Identities::default();
        let store = stores::make(settings, clock.clone(), &thread_failures, &mut identities)?;
        let top = Arc::new(Top::new(settings.top_options(), clock.clone()));
        let limiter = Limiter::new(store, settings.limiter_options()).with_top(Some(top.clone()));
        let limiter = Arc::new(limiter.with_redaction(top.redaction().clone()));
        let control_clock = ControlClock::new(clock.clone());
        let log = Arc::new(ChangeLog::new(control_clock.clone()));
        let rules: Rules = Arc::new(ActiveRules::new(control_clock, *settings.rules.max_log_bytes));
        let is_shared = limiter.store().shared_table().is_some();
        let redis = settings.redis_options();
        let has_redis_clock = redis.is_some_and(|(redis, _)| redis.clock == ClockSource::Server);
        let control_options = settings.control_options(is_shared);
        let controls = Arc::new(Controls::new(rules.clone(), control_options, {
            let limiter = limiter.clone();
            move || limiter.store().forget_denials()
        }));
        let metrics = Arc::new(Metrics::new(*settings.metrics.max_series));
        metrics.add(limiter.clone());
        metrics.add(rules.clone());
        metrics.add(controls.clone());
        metrics.add(clock.clone());
        metrics.add(Arc::new(ProcessMetrics::new(VERSION, COMMIT)));
        metrics.add(Arc::new(thread_failures.clone()));
        let mut flushers = Flushers::default();
        if limiter.store().disk().is_some() {
            let limiter = limiter.clone();
            flushers.add("store.disk", async move {
                if let Some(disk) = limiter.store().disk() {
                    disk.finish().await;
                }
            });
        }
        if settings.redis_options().is_some() && !settings.store.leases_for.is_zero() {
            let limiter = limiter.clone();
            flushers.add("store.leases", async move { limiter.store().drained().await });
        }
        let health = Arc::new(Health::new(Required {
            rules: settings.requires_rules(),
            domain: *settings.health.require_domain,
            loading: limiter.store().disk().is_some(),
            controls: is_shared,
            listeners: 1 + u8::from(settings.resp.address.is_some()),
        }));
        metrics.add(health.clone());
        let mut options = settings.rule_options();
        options.watched_lists = Some(Arc::new(WatchedLists::new(QUIET_TIME)));
        let mut loader = Loader::new(rules.clone(), options, health.clone());
        if settings.overlay_files().is_some() {
            loader.expect_overlay();
        }
        let loader = Arc::new(loader);
        metrics.add(loader.clone());
        if limiter.store().is_ready() {
            health.store_answers();
        }
        let quotas = settings.quota_options().map(|options| {
            Arc::new(Quotas::new(limiter.clone(), rules.clone(), BootClock, options))
        });
        quotas.iter().for_each(|quotas| metrics.add(quotas.clone()));
        let waits = !(settings.is_xds() && *settings.health.force_start);
        let rate_limit = |protocol| {
            let options = settings.service_options(protocol, clock.clone());
            let service = RateLimit::new(limiter.clone(), rules.clone(), options);
            let max_wait = match protocol {
                Protocol::Grpc => settings.client_timeout(),
                Protocol::Http => MAX_JSON_WAIT,
                Protocol::Resp => return service,
            };
            if waits { service.awaiting_rules(health.clone(), max_wait) } else { service }
        };
        let prometheus = &settings.metrics.prometheus;
        let prometheus = match &*prometheus.address {
            None => None,
            Some(address) => {
                let setting = "metrics.prometheus.address";
                let bound = Bound::new(&METRICS, settings, bind(address, setting)).await?;
                Some((bound, prometheus.path.to_string()))
            }
        };
        let max_grpc = *settings.grpc.max_connections;
        let max_http = settings.http_limits().max_connections;
        let access = Access::load(settings.access_options())?;
        let resp = RespListener::bind(settings, rate_limit(Protocol::Resp)).await?;
        let max_resp = if resp.is_some() { *settings.resp.max_connections } else { 0 };
        let grpc = match &*settings.grpc.uds {
            Some(path) => Bound::new(&GRPC, settings, bind_path(path, "grpc.uds")).await?,
            None => {
                let socket = bind(&settings.grpc.address, "grpc.address");
                Bound::new(&GRPC, settings, socket).await?
            }
        };
        let grpc_port = match grpc.socket.address() {
            Ok(Address::Tcp { port, .. }) => Some(port),
            _ => None,
        };
        let http = bind(&settings.http.address, "http.address");
        let debug = bind(&settings.debug.address, "debug.address");
        let mut app = App {
            settings: settings.clone(),
            grpc,
            http: Bound::new(&HTTP, settings, http).await?,
            debug: Bound::new(&DEBUG, settings, debug).await?,
            resp,
            prometheus,
            rate_limit: rate_limit(Protocol::Grpc),
            json_rate_limit: rate_limit(Protocol::Http),
            sources: Sources {
                replica: rustix::system::uname().nodename().to_string_lossy().into_owned(),
                grpc_port,
                limiter,
                quotas,
                top,
                rules,
                controls,
                loader,
                health,
                identities: Arc::default(),
                watch: Arc::default(),
                log,
                clock,
                limits_follow: if has_redis_clock { "the clock of Redis" } else { "it" },
                started: Instant::now(),
            },
            metrics,
            reference_page: reference_page::make(settings).map(Arc::new),
            log_levels: None,
            access: Arc::new(access),
            shares: descriptors::share(descriptors, max_grpc, max_http, max_resp),
            thread_failures,
            flushers,
        };
        let tls = |bound: &Bound| Some((bound.listener.name, bound.tls.as_ref()?.metrics.clone()));
        let with_tls: Vec<_> = app.listeners().filter_map(tls).collect();
        if !with_tls.is_empty() {
            app.metrics.add(Arc::new(TlsListeners(with_tls)));
        }
        app.served().for_each(|certificates| identities.serve(certificates));
        app.sources.identities = Arc::new(identities);
        Ok(app)
    }

    fn listeners(&self) -> impl Iterator<Item = &Bound> {
        let resp = self.resp.as_ref().map(|resp| &resp.bound);
        let metrics = self.prometheus.as_ref().map(|(bound, _)| bound);
        [&self.grpc, &self.http, &self.debug].into_iter().chain(resp).chain(metrics)
    }

    /// The certificates of the listeners that have TLS.
    fn served(&self) -> impl Iterator<Item = Arc<Certificates>> {
        self.listeners().filter_map(|bound| bound.tls.clone())
    }

    /// Adds certificates that are presented to a server, so that metrics, `/status` and the log have
    /// their dates.
    pub fn add_presented(&mut self, to: &'static str, certificates: Arc<ClientCertificates>) {
        Arc::make_mut(&mut self.sources.identities).present(to, certificates);
    }

    /// Adds work to do after the last request, such as sending telemetry. It may take what is left
    /// of `drain.timeout`; requests in flight leave it two seconds. `name` is for the log.
    pub fn flush_at_end(
        &mut self,
        name: &'static str,
        flush: impl Future<Output = ()> + Send + 'static,
    ) {
        self.flushers.add(name, flush);
    }

    pub fn addresses(&self) -> anyhow::Result<Vec<(&'static Listener, Address)>> {
        self.listeners().map(|bound| Ok((bound.listener, bound.socket.address()?))).collect()
    }

    /// Serves until `stop` resolves; then drains and stops, as the module `lifecycle` describes. Logs where it listens
    /// at the level `announced`.
    pub async fn run(
        mut self,
        stop: impl Future<Output = Stop>,
        announced: Level,
    ) -> anyhow::Result<()> {
        let (close, closed) = watch::channel(false);
        let Sources { limiter, top, controls, health, identities, clock, .. } = &self.sources;
        let (limiter, top, controls) = (limiter.clone(), top.clone(), controls.clone());
        let (clock, health, settings) = (clock.clone(), health.clone(), self.settings.clone());
        let limits_follow = self.sources.limits_follow;
        let lifecycle = Lifecycle {
            health: health.clone(),
            drain_delay: *settings.drain.delay,
            drain_timeout: *settings.drain.timeout,
            close,
            answered: {
                let limiter = limiter.clone();
                Box::pin(async move { limiter.store().drained().await })
            },
            flushers: std::mem::take(&mut self.flushers),
        };
        for certificates in self.served() {
            tokio::spawn(certificates.follow());
        }
        if !identities.is_empty() {
            self.metrics.add(identities.clone());
            tokio::spawn(identities.clone().follow(clock.clone()));
        }
        tokio::spawn(self.access.clone().follow());
        // As with a store that is away: a failure policy answers without it.
        let needs_controls = !*settings.health.force_start && !limiter.store().is_ready();
        tokio::spawn(report_controls(controls.first_read(), health.clone(), needs_controls));
        let opening = Opening {
            closed,
            announced,
            health: health.clone(),
            after_first_load: !settings.is_xds(),
        };
        let servers = self.start(&opening).map_err(SetupError::unavailable)?;
        let ended = async {
            tokio::select! {
                ended = try_join_all(servers) => ended.map(drop),
                error = limiter.store().load_error() => Err(SetupError::Unavailable(error).into()),
            }
        };
        let stop = async {
            let stop = stop.await;
            limiter.store().drain();
            stop
        };
        tokio::select! {
            stopped = lifecycle.run(ended, stop) => stopped,
            // None of these ends.
            () = follow_store(limiter.store(), &health), if *settings.health.follow_store => Ok(()),
            () = limiter.store().maintain() => Ok(()),
            () = controls.run(limiter.store().shared_table()) => Ok(()),
            () = clock.follow(limits_follow) => Ok(()),
            _ = join(top.follow(), top.share(limiter.store().replica_texts())) => Ok(()),
        }
    }
}
