//! The methods of the API, by their paths.

use super::codec::RATE_LIMIT_REQUEST;
use crate::proto::weir::budget::v1 as pb;
use crate::service::BudgetRequest;

/// A method of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Method {
    ShouldRateLimit,
    Reserve,
    Settle,
    Cancel,
}

impl Method {
    /// The methods of the budget API.
    pub const BUDGET: [Method; 3] = [Method::Reserve, Method::Settle, Method::Cancel];

    pub fn path(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => "/json",
            Method::Reserve => "/v1/budget/reserve",
            Method::Settle => "/v1/budget/settle",
            Method::Cancel => "/v1/budget/cancel",
        }
    }

    /// The full name of the message that it receives.
    pub fn request(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => RATE_LIMIT_REQUEST,
            Method::Reserve => pb::ReserveRequest::NAME,
            Method::Settle => pb::SettleRequest::NAME,
            Method::Cancel => pb::CancelRequest::NAME,
        }
    }
}
