//! The messages of `weir.budget.v1`: what a request to reserve, settle or cancel hits asks for, and its response.

use std::time::Duration;

use prost::Message;

use crate::proto::weir::budget::v1 as pb;
use pb::reserve_response::{Code, Status as ReserveStatus};
use pb::settle_response::Result as SettleResult;
use weir_limit::{Micros, ReservationResult};
use weir_limiter::{RequestDecision, RequestError, ReservationStep, Status};
use weir_store::StoreError;

pub(super) const MAX_ID_BYTES: usize = 1024;
/// The most entries of all descriptors of a request. Decoded, each takes a multiple of its bytes in the message.
pub(super) const MAX_ENTRIES: usize = 64;

/// The fields of a request, of whichever kind.
#[derive(Debug)]
pub struct BudgetParts<'a> {
    pub(super) domain: &'a str,
    pub(super) descriptors: &'a [pb::Descriptor],
    pub(super) id: &'a str,
    amount: u64,
    /// Makes the step, such as `Reserve`, of the amount.
    step: fn(u32) -> ReservationStep,
}

pub trait BudgetRequest: Message + Default + 'static {
    type Response: BudgetResponse;

    const NAME: &'static str;

    fn parts(&self) -> BudgetParts<'_>;
}

pub trait BudgetResponse: Message + Default + 'static {
    const NAME: &'static str;

    /// Returns the response to a step with the hits of `id`.
    fn of(
        id: &str,
        step: ReservationStep,
        decision: &RequestDecision<'_>,
    ) -> Result<Self, RequestError>;
}

impl BudgetParts<'_> {
    pub(super) fn check(&self) -> Result<ReservationStep, &'static str> {
        let amount = u32::try_from(self.amount)
            .map_err(|_| "amount is above 4294967295: count larger units, such as thousands")?;
        let step = (self.step)(amount);
        if self.id.is_empty() && !matches!(step, ReservationStep::Reserve(_)) {
            return Err("id is empty: send the one of the reservation");
        }
        if self.id.len() > MAX_ID_BYTES {
            return Err("id is longer than 1024 bytes: send a shorter one, such as a UUID");
        }
        let entries: usize =
            self.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
        if entries > MAX_ENTRIES {
            return Err(
                "the descriptors have more than 64 entries: send only those of the rules to reserve from",
            );
        }
        Ok(step)
    }
}

impl BudgetRequest for pb::ReserveRequest {
    type Response = pb::ReserveResponse;

    const NAME: &'static str = "weir.budget.v1.ReserveRequest";

    fn parts(&self) -> BudgetParts<'_> {
        let pb::ReserveRequest { domain, descriptors, id, amount } = self;
        BudgetParts { domain, descriptors, id, amount: *amount, step: ReservationStep::Reserve }
    }
}

impl BudgetRequest for pb::SettleRequest {
    type Response = pb::SettleResponse;

    const NAME: &'static str = "weir.budget.v1.SettleRequest";

    fn parts(&self) -> BudgetParts<'_> {
        let pb::SettleRequest { domain, descriptors, id, amount } = self;
        BudgetParts { domain, descriptors, id, amount: *amount, step: ReservationStep::Settle }
    }
}

impl BudgetRequest for pb::CancelRequest {
    type Response = pb::SettleResponse;

    const NAME: &'static str = "weir.budget.v1.CancelRequest";

    fn parts(&self) -> BudgetParts<'_> {
        let pb::CancelRequest { domain, descriptors, id } = self;
        BudgetParts { domain, descriptors, id, amount: 0, step: |_| ReservationStep::Cancel }
    }
}

impl BudgetResponse for pb::ReserveResponse {
    const NAME: &'static str = "weir.budget.v1.ReserveResponse";

    fn of(
        id: &str,
        _: ReservationStep,
        decision: &RequestDecision<'_>,
    ) -> Result<pb::ReserveResponse, RequestError> {
        let is_in_use = |status: &Status<'_>| status.reservation == ReservationResult::Conflict;
        if decision.statuses.iter().any(is_in_use) {
            return Err(RequestError::BadReservation(
                "id has a reservation of another amount: settle or cancel it first, or send another id",
            ));
        }
        let over = decision.over_limit;
        Ok(pb::ReserveResponse {
            code: code(over),
            id: id.to_owned(),
            statuses: decision.statuses.iter().map(|status| reserve_status(status, over)).collect(),
        })
    }
}

impl BudgetResponse for pb::SettleResponse {
    const NAME: &'static str = "weir.budget.v1.SettleResponse";

    fn of(
        _: &str,
        step: ReservationStep,
        decision: &RequestDecision<'_>,
    ) -> Result<pb::SettleResponse, RequestError> {
        // Without a rule, that of another descriptor replaces its own.
        let statuses = || decision.statuses.iter().filter(|status| status.rule.is_some());
        if statuses().any(|status| status.reservation == ReservationResult::None) {
            return Err(StoreError::Unavailable.into());
        }
        let settled = statuses().all(|status| status.reservation == ReservationResult::Settled);
        let is_charged = statuses().any(|status| status.reserved > 0);
        let (result, charged) = match (settled, step) {
            (true, ReservationStep::Settle(used)) if is_charged => (SettleResult::Settled, used),
            (true, _) => (SettleResult::Settled, 0),
            (false, _) => (SettleResult::Unknown, 0),
        };
        let remaining = statuses().map(|status| status.remaining).min().unwrap_or(0);
        Ok(pb::SettleResponse { result: result.into(), charged, remaining })
    }
}

fn code(over_limit: bool) -> i32 {
    if over_limit { Code::OverLimit.into() } else { Code::Ok.into() }
}

/// Returns the status of a descriptor of a request that is denied or not.
fn reserve_status(status: &Status<'_>, is_denied: bool) -> ReserveStatus {
    let reserved = match status.reservation {
        // What was reserved beside what is denied is returned.
        ReservationResult::Reserved if !is_denied => status.reserved,
        // An earlier request has made it.
        ReservationResult::Repeated => status.reserved,
        _ => 0,
    };
    ReserveStatus {
        code: code(status.over_limit),
        reserved,
        remaining: status.remaining,
        retry_after: status.retry_after.filter(|_| status.over_limit).map(duration),
        reset_after: Some(duration(status.reset_after)),
        limit_name: status.limit.map_or("", |limit| limit.name).to_owned(),
    }
}

fn duration(micros: Micros) -> prost_types::Duration {
    // It fits: `u64::MAX` microseconds are fewer seconds than 2^45.
    Duration::from_micros(micros).try_into().unwrap_or_default()
}
