//! What the calls of one connection share.

use std::sync::Arc;

use super::Grpc;
use super::outbound::Outbound;
use super::stats::CallTimer;
use crate::connections::ConnectionBudget;
use crate::trace::Ends;

/// What the calls of one connection share.
#[derive(Debug)]
pub(super) struct CallContext<S> {
    pub grpc: Arc<Grpc<S>>,
    pub budget: Arc<ConnectionBudget>,
    pub outbound: Arc<Outbound>,
    pub timer: CallTimer,
    /// The addresses of the connection, for spans.
    pub ends: Ends,
    /// Cloned by each call that tonic serves: the reference count is one more than those calls.
    pub tonic_calls: Arc<()>,
}
