//! Envoy's RateLimitService and weir's BudgetService (reservations of hits), for all protocols; gRPC's health service.

mod budget;
mod decode;
mod health;
mod metadata;
mod permissions;
mod quota;
mod rate_limit;
mod response;

pub use budget::messages::{BudgetRequest, BudgetResponse};
pub use budget::{BudgetCall, BudgetService};
pub use decode::{DecodeError, Decoded, Descriptors, RequestView};
pub use health::HealthService;
pub use permissions::{Permissions, Protocol};
pub use quota::{MAX_QUOTA_MESSAGE_BYTES, QuotaCall, QuotaService};
pub use rate_limit::{
    HoldGuard, RateLimit, ResponseOptions, Rules, caller_deadline_below, parse_grpc_timeout,
    rejection,
};
pub use response::{PREFIX_BYTES, encode_framed, encode_message};
