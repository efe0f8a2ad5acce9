//! The debug pages, and `/v1` for operators.

mod access;
mod change_log;
mod control_changes;
mod debug;
pub mod error;
mod history;
mod index;
mod problems;
pub mod query;
mod store_state;
mod store_watch;
pub mod v1;

pub use self::access::{Access, AccessOptions};
pub use self::change_log::ChangeLog;
pub use self::debug::{DebugPages, debug};
pub use self::history::{History, record};
pub use self::store_state::StoreState;
pub use self::store_watch::StoreWatch;
pub use self::v1::v1;

use std::sync::Arc;
use std::time::Instant;

use crate::health::Health;
use crate::net::tls::Identities;
use crate::rls::service::Rules;
use crate::rule_sources::loader::Loader;
use weir_common::clock::SystemClock;
use weir_controls::Controls;
use weir_limiter::Limiter;
use weir_top::Top;

/// What operators see: the parts of the service that the debug port, its history and `/v1` read.
#[derive(Debug)]
pub struct Sources<S> {
    /// The name of the machine or pod.
    pub replica: String,
    /// The port of Envoy's API, unless it is a Unix socket.
    pub grpc_port: Option<u16>,
    pub limiter: Arc<Limiter<S>>,
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
