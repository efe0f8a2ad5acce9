//! `weir.budget.v1`: programs reserve hits under an id, and settle or cancel them.
//!
//! A request is decided as any other, by the same rules and controls. What differs is what its descriptors carry, the
//! id and a step, and the answer.

pub(super) mod grpc;
pub(super) mod messages;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::mem;
use std::time::Duration;

use tracing::Span;

use self::messages::{BudgetRequest, BudgetResponse};
use super::rate_limit::{RateLimit, store_budget};
use crate::proto::weir::budget::v1 as pb;
use weir_common::random::random_bytes;
use weir_common::value;
use weir_limiter::{Budget, Descriptor, Holds, Request, RequestError};
use weir_store::{Entry, Store};

#[derive(Clone, Debug, Default)]
pub struct BudgetCall {
    /// The caller's timeout, if it sent one.
    pub timeout: Option<Duration>,
    /// Whether the caller may settle and cancel, whatever the permissions of its protocol.
    pub may_settle: bool,
    /// The span of the request, if it is recorded.
    pub span: Option<Span>,
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

/// Returns the keys of a descriptor, each with the text of its value.
fn values(descriptor: &pb::Descriptor) -> Vec<(&str, Cow<'_, str>)> {
    descriptor.entries.iter().map(|entry| (&*entry.key, value::encode(&entry.value))).collect()
}

/// Returns an id that nobody can guess: 128 random bits.
fn new_id() -> String {
    format!("{:032x}", u128::from_le_bytes(random_bytes()))
}
