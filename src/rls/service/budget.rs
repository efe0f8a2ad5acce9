//! `weir.budget.v1.BudgetService`: a program reserves hits of limits under an id before it knows how many it needs.
//! Later it settles the reservation with the number that it used, or cancels it.
//!
//! A request is decided as any other, by the same rules and controls. What differs is the answer, and that its
//! descriptors carry the id and the step: reserve, settle or cancel.

pub(super) mod messages;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use tonic::{Code, Response, Status};
use tracing::Span;

use self::messages::{BudgetRequest, BudgetResponse};
use super::rate_limit::{HoldGuard, RateLimit, parse_grpc_timeout, store_timeout};
use crate::proto::weir::budget::v1 as pb;
use pb::budget_service_server;
use weir_common::random::random_bytes;
use weir_common::value;
use weir_limiter::{Budget, Descriptor, Holds, Request, RequestError, TakenHolds};
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
    /// Answers a request to reserve, settle or cancel by the active rules. What it reserves is added to `holds`, to be
    /// cancelled if the response cannot be sent; nothing is added if it is denied or fails.
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
            // One that nobody can guess: 128 random bits.
            "" => Cow::Owned(format!("{:032x}", u128::from_le_bytes(random_bytes()))),
            id => Cow::Borrowed(id),
        };
        // Keys, each with the text of its value.
        let values = parts.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            entries.map(|entry| (&*entry.key, value::encode(&entry.value))).collect()
        });
        let values: Vec<Vec<(&str, Cow<'_, str>)>> = values.collect();
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
        let timeout = store_timeout(self.options.store_timeout, timeout);
        // On the heap: a connection's task is as large as the largest of its futures.
        let decided =
            Box::pin(self.limiter.decide(rules.as_deref(), &request, timeout, holds)).await;
        let answer = decided.and_then(|decision| R::Response::of(&id, step, &decision));
        // Before the answer: the same request, made again, must not rely on hits that are then returned.
        if let Some(denied) = holds.as_mut().and_then(TakenHolds::denied) {
            self.release(denied).await;
        }
        if answer.is_err()
            && let Some(taken) = holds.take()
        {
            self.release(taken).await;
        }
        answer
    }
}

/// Answers over gRPC. A request that is recorded has its [`Span`] in its extensions, and a response the
/// [`HoldGuard`] of its reservation.
#[derive(Debug)]
pub struct BudgetService<S>(pub RateLimit<S>);

impl<S: Store> BudgetService<S> {
    async fn answer<R: BudgetRequest>(
        &self,
        request: tonic::Request<R>,
    ) -> Result<Response<R::Response>, Status> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.and_then(|text| parse_grpc_timeout(text.as_encoded_bytes()));
        let span = request.extensions().get::<Span>().cloned();
        let (rate_limit, request) = (self.0.clone(), request.into_inner());
        // To its end, also if the client goes away: only then is it known what to return.
        let answered = tokio::spawn(async move {
            let (call, mut holds) =
                (BudgetCall { timeout, span, ..Default::default() }, Holds::default());
            let answer = rate_limit.budget(&request, &call, &mut holds).await;
            (answer, HoldGuard::new(&rate_limit, holds))
        });
        let (answer, guard) = answered.await.map_err(|_| Status::unknown("see the log"))?;
        let mut response = Response::new(answer.map_err(rejection)?);
        response.extensions_mut().insert(guard);
        Ok(response)
    }
}

#[tonic::async_trait]
impl<S: Store> budget_service_server::BudgetService for BudgetService<S> {
    async fn reserve(
        &self,
        request: tonic::Request<pb::ReserveRequest>,
    ) -> Result<Response<pb::ReserveResponse>, Status> {
        self.answer(request).await
    }

    async fn settle(
        &self,
        request: tonic::Request<pb::SettleRequest>,
    ) -> Result<Response<pb::SettleResponse>, Status> {
        self.answer(request).await
    }

    async fn cancel(
        &self,
        request: tonic::Request<pb::CancelRequest>,
    ) -> Result<Response<pb::SettleResponse>, Status> {
        self.answer(request).await
    }
}

fn rejection(error: RequestError) -> Status {
    let code = match error {
        RequestError::Store(_) | RequestError::NoRules => Code::Unavailable,
        _ => Code::InvalidArgument,
    };
    Status::new(code, error.to_string())
}
