//! `weir.budget.v1`: programs reserve hits under an id, and settle or cancel them.
//!
//! A request is decided as any other, by the same rules and controls. What differs is what its descriptors carry, the
//! id and a step, and the answer.

mod grpc;
mod messages;
#[cfg(test)]
mod tests;

pub use self::grpc::BudgetService;
pub use self::messages::{BudgetRequest, BudgetResponse};

use std::borrow::Cow;
use std::mem;
use std::time::Duration;

use tracing::Span;

use super::{RateLimit, store_budget};
use crate::proto::weir::budget::v1 as pb;
use weir_common::random::random_bytes;
use weir_common::value;
use weir_limiter::{Budget, BudgetStep, Descriptor, Holds, Request, RequestError};
use weir_store::{Entry, Store};

const MAX_ID_BYTES: usize = 1024;
/// The most entries of all descriptors of a request. Decoded, each takes a multiple of its bytes in the message.
const MAX_ENTRIES: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct BudgetCall {
    /// The caller's timeout, if it sent one.
    pub timeout: Option<Duration>,
    /// Whether the caller may settle and cancel, whatever the permissions of its protocol.
    pub may_settle: bool,
    /// The span of the request, if it is recorded.
    pub span: Option<Span>,
}

#[derive(Debug)]
pub struct BudgetParts<'a> {
    domain: &'a str,
    descriptors: &'a [pb::Descriptor],
    id: &'a str,
    amount: u64,
    step: fn(u32) -> BudgetStep,
}

impl<S: Store> RateLimit<S> {
    /// Answers a request to reserve, settle or cancel by the active rules. What it reserves is added to `holds`, unless
    /// it is denied or fails.
    pub async fn budget<R: BudgetRequest>(
        &self,
        request: &R,
        call: &BudgetCall,
        holds: &mut Holds,
    ) -> Result<R::Response, RequestError> {
        let parts = request.parts();
        let step = parts.check().map_err(|why| {
            let error = RequestError::BadReservation(why);
            self.limiter.count_invalid(parts.domain, &error);
            error
        })?;
        let id = match parts.id {
            "" => Cow::Owned(new_id()),
            id => Cow::Borrowed(id),
        };
        let values: Vec<Vec<(&str, Cow<'_, str>)>> = parts.descriptors.iter().map(values).collect();
        let entries =
            values.iter().map(|values| values.iter().map(|(key, value)| (*key, &**value)));
        let entries: Vec<Vec<Entry<'_>>> = entries.map(Iterator::collect).collect();
        // An entry of a request may name the id, too.
        let id_text = value::encode(id.as_bytes());
        let budget = Budget { id: &id_text, step };
        let budget = Some(&budget);
        let descriptors =
            entries.iter().map(|entries| Descriptor { entries, budget, ..Default::default() });
        let descriptors: Vec<Descriptor<'_>> = descriptors.collect();
        let mut request = Request {
            domain: parts.domain,
            descriptors: &descriptors,
            span: call.span.as_ref(),
            ..Request::default()
        };
        if !call.may_settle {
            self.check(&mut request)?;
        }
        let (mut rules, mut timeout) = (self.rules.load(), call.timeout);
        if rules.is_none() {
            timeout = self.first_rules(timeout).await;
            rules = self.rules.load();
        }
        let budget = store_budget(self.options.budget, timeout);
        // On the heap: a connection's task is as large as the largest of its futures.
        let decided =
            Box::pin(self.limiter.decide(rules.as_deref(), &request, budget, holds)).await;
        let answer = decided.and_then(|decision| R::Response::of(&id, step, &decision));
        // Before the answer: the same request, made again, must not rely on hits that are then returned.
        if let Some(denied) = holds.denied() {
            self.release(denied).await;
        }
        if answer.is_err() {
            self.release(mem::take(holds)).await;
        }
        answer
    }
}

impl BudgetParts<'_> {
    fn check(&self) -> Result<BudgetStep, &'static str> {
        let amount = u32::try_from(self.amount)
            .map_err(|_| "amount is above 4294967295: count larger units, such as thousands")?;
        let step = (self.step)(amount);
        if self.id.is_empty() && !matches!(step, BudgetStep::Reserve(_)) {
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

/// Returns the keys of a descriptor, each with the text of its value.
fn values(descriptor: &pb::Descriptor) -> Vec<(&str, Cow<'_, str>)> {
    descriptor.entries.iter().map(|entry| (&*entry.key, value::encode(&entry.value))).collect()
}

/// Returns an id that nobody can guess: 128 random bits.
fn new_id() -> String {
    format!("{:032x}", u128::from_le_bytes(random_bytes()))
}
