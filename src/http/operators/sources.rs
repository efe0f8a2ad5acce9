//! What operators see: the parts of the service that `/v1` and the history read.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::change_log::ChangeLog;
use super::problems::{Problem, ProblemSources, problems};
use super::store_state::StoreState;
use super::store_watch::StoreWatch;
use crate::health::Health;
use crate::net::tls::Identities;
use crate::rls::service::Rules;
use crate::rule_sources::loader::Loader;
use weir_limiter::Limiter;
use weir_limiter::controls::Controls;
use weir_limiter::top::Top;
use weir_store::Store;

/// What operators see.
pub struct Sources<S> {
    /// The name of the machine or pod.
    pub replica: String,
    pub limiter: Arc<Limiter<S>>,
    pub top: Arc<Top>,
    pub rules: Rules,
    pub controls: Arc<Controls>,
    pub loader: Arc<Loader>,
    pub health: Arc<Health>,
    pub identities: Arc<Identities>,
    pub watch: Arc<StoreWatch>,
    pub log: Arc<ChangeLog>,
    pub started: Instant,
}

impl<S> fmt::Debug for Sources<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl<S: Store> Sources<S> {
    /// Returns all problems, with the store in this state.
    pub(super) fn problems(&self, store: &StoreState) -> Vec<Problem> {
        let Sources { loader, controls, identities, watch, .. } = self;
        problems(&ProblemSources { loader, controls, identities, store, watch })
    }
}
