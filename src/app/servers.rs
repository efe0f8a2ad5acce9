//! Starts the threads that serve, for `App::run`: the workers of gRPC, which answer its requests, and one thread for
//! each listener and for the decisions of `/json`.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;

use super::App;
use super::listeners::{Opening, Serving};
use crate::health::Health;
use crate::http;
use crate::http::clients::{self, Json, JsonOptions};
use crate::http::operators::{self, DebugPages, History};
use crate::net::{ListenerMetrics, Workers};
use crate::proto::DESCRIPTORS;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_server::RateLimitQuotaServiceServer;
use crate::proto::weir::budget::v1::budget_service_server::BudgetServiceServer;
use crate::rls::grpc::{Grpc, GrpcStats};
use crate::rls::service::{
    BudgetService, HealthService, MAX_QUOTA_MESSAGE_BYTES, QuotaService, RateLimit,
};
use weir_common::metrics::Histogram;
use weir_common::threads;
use weir_store::{Operations, States};

/// The most connections to the listener for Prometheus; a few servers scrape it.
const MAX_METRICS_CONNECTIONS: usize = 64;

/// The size limit of health and reflection requests, which name one service or symbol.
const MAX_SMALL_MESSAGE_BYTES: usize = 16 << 10;

/// The size limit of requests to the budget service (reservations of hits), whose ids and entries are short.
const MAX_BUDGET_MESSAGE_BYTES: usize = 8 << 10;

impl App {
    /// Starts all servers. They serve until they are closed; each resolves when its requests have ended.
    pub(super) fn start(self, opening: &Opening) -> anyhow::Result<Vec<Serving>> {
        let closed = &opening.closed;
        let listeners = Arc::new(ListenerMetrics::default());
        self.metrics.add(listeners.clone());
        let (drain, draining) = watch::channel(false);
        let (workers, grpc_stats) = self.start_workers(&draining)?;
        let grpc = self.grpc.connections(self.shares.grpc, &listeners);
        let http = self.http.connections(self.shares.http, &listeners);
        let debug = self.debug.connections(self.shares.debug, &listeners);
        let (limiter, health) = (self.sources.limiter.clone(), self.sources.health.clone());
        let connect = async move {
            limiter.store().connect().await;
            health.store_answers();
        };
        let (settings, limits) = (&self.settings, self.settings.http_limits());
        let options = JsonOptions {
            limits,
            errors: *settings.http.json_errors,
            sampler: settings.sampler(),
            access: self.access.clone(),
        };
        let json = Json::start(self.json_rate_limit, options, connect)?;
        let json_stats = json.stats.clone();
        self.metrics.add(json_stats.clone());
        let max_scrapers = self.shares.debug.min(MAX_METRICS_CONNECTIONS);
        let prometheus = self.prometheus.map(|(bound, path)| {
            let scrapers = bound.connections(max_scrapers, &listeners);
            (bound, path, scrapers)
        });
        let resp_stats = self.resp.as_ref().map(|resp| resp.resp.stats.clone());
        let resp = self.resp.map(|resp| {
            self.metrics.add(resp.resp.stats.clone());
            let connections = resp.bound.connections(self.shares.resp, &listeners);
            let workers = resp.start_workers(settings.threads(), &self.sources.limiter, closed)?;
            anyhow::Ok(resp.serve(workers, connections, opening))
        });
        let pages = http::MetricsPages::new(self.metrics, self.reference_page);
        let sources = Arc::new(self.sources);
        let durations = move || {
            let mut sum = Histogram::default().snapshot();
            let resp = resp_stats.iter().map(|stats| &stats.decisions);
            let all = grpc_stats.decisions().into_iter().chain(json_stats.decisions()).chain(resp);
            all.for_each(|times| sum.add(&times.snapshot()));
            sum
        };
        let history = Arc::new(History::default());
        let recorded = (history.clone(), sources.clone(), durations, closed.clone());
        let failures = &self.thread_failures;
        threads::start_background_without_sockets("weir-history", failures, move || {
            let (history, sources, durations, closed) = recorded.clone();
            async move { operators::record(&history, &sources, &durations, closed).await }
        })?;
        let v1 = operators::v1(sources.clone(), self.access.clone(), history, limits.timeout);
        let (metrics, health) = (pages.clone(), sources.health.clone());
        let (log_levels, access) = (self.log_levels, self.access);
        let debug_pages = DebugPages { sources, metrics, log_levels, access };
        let router = operators::debug(debug_pages, v1);
        let main = clients::router(json, health, settings.http.metrics.then(|| pages.clone()));
        let mut servers = Vec::from_iter(resp.transpose()?);
        if let Some((bound, path, scrapers)) = prometheus {
            servers.push(bound.serve_http(http::metrics(pages, path), scrapers, opening)?);
        }
        // On a thread of its own, so that nothing delays it. Connections get GOAWAY when the listener is closed, or
        // their clients would connect to it again.
        let closed = closed.clone();
        servers.push(self.grpc.serve_requests(opening, move |bound| {
            Ok(threads::start("weir-accept", move || {
                bound.accept_for(workers, grpc, closed, move || _ = drain.send_replace(true))
            })?)
        }));
        servers.push(self.http.serve_http(main, http, opening)?);
        servers.push(self.debug.serve_http(router, debug, opening)?);
        Ok(servers)
    }

    /// Starts the threads that serve gRPC. Each connects to the store first, so that its first request need not wait.
    fn start_workers(
        &self,
        draining: &watch::Receiver<bool>,
    ) -> anyhow::Result<(Workers, Arc<GrpcStats>)> {
        let (threads, sampler) = (self.settings.threads(), self.settings.sampler());
        let limits = self.settings.grpc_limits();
        let quotas = self.sources.quotas.clone();
        let quotas =
            quotas.map(|quotas| QuotaService::start(quotas, limits.timeout)).transpose()?;
        let routes = grpc_routes(self.sources.health.clone(), self.rate_limit.clone(), quotas)?;
        let grpc = Grpc::new(self.rate_limit.clone(), routes, limits, sampler);
        let grpc = Arc::new(grpc.with_quotas(self.sources.quotas.is_some()));
        let stats = grpc.stats.clone();
        self.metrics.add(stats.clone());
        let limiter = self.sources.limiter.clone();
        let connect = move || {
            let limiter = limiter.clone();
            async move { limiter.store().connect().await }
        };
        let opener = self.grpc.opener(threads)?;
        let workers = grpc.start_workers(threads, opener, draining.clone(), connect)?;
        Ok((workers, stats))
    }
}

/// Budgets, quotas, health and reflection, which gRPC serves besides the API.
fn grpc_routes<S: States>(
    health: Arc<Health>,
    rate_limit: RateLimit<S>,
    quotas: Option<QuotaService<S>>,
) -> anyhow::Result<Routes> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (v1, v1alpha) = (reflection().build_v1()?, reflection().build_v1alpha()?);
    let health = tonic_health::pb::health_server::HealthServer::new(HealthService(health));
    let budget = BudgetServiceServer::new(BudgetService(rate_limit))
        .accept_compressed(CompressionEncoding::Gzip);
    let mut routes = Routes::builder();
    routes
        .add_service(budget.max_decoding_message_size(MAX_BUDGET_MESSAGE_BYTES))
        .add_service(health.max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES))
        .add_service(v1.max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES))
        .add_service(v1alpha.max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES));
    if let Some(quotas) = quotas {
        let quotas = RateLimitQuotaServiceServer::new(quotas);
        routes.add_service(quotas.max_decoding_message_size(MAX_QUOTA_MESSAGE_BYTES));
    }
    Ok(routes.routes())
}
