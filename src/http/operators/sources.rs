//! The parts of the service that the operators' pages show. `app` fills one `Sources` at the start.

use std::sync::Arc;
use std::time::Instant;

use super::change_log::ChangeLog;
use super::store_watch::StoreWatch;
use crate::health::Health;
use crate::net::tls::Identities;
use crate::rls::service::Rules;
use crate::rule_sources::loader::Loader;
use weir_common::clock::SystemClock;
use weir_controls::Controls;
use weir_limiter::Limiter;
use weir_quotas::Quotas;
use weir_top::Top;

#[derive(Debug)]
pub struct Sources<S> {
    /// The name of the machine or pod.
    pub replica: String,
    /// The port of Envoy's API, unless it is a Unix socket.
    pub grpc_port: Option<u16>,
    pub limiter: Arc<Limiter<S>>,
    /// The quotas of Envoys that count themselves; none if they are off.
    pub quotas: Option<Arc<Quotas<S>>>,
    pub top: Arc<Top>,
    pub rules: Rules,
    pub controls: Arc<Controls>,
    pub loader: Arc<Loader>,
    pub health: Arc<Health>,
    pub identities: Arc<Identities>,
    pub watch: Arc<StoreWatch>,
    pub log: Arc<ChangeLog>,
    pub clock: Arc<SystemClock>,
    /// The clock that limits follow, in words.
    pub limits_follow: &'static str,
    pub started: Instant,
}
