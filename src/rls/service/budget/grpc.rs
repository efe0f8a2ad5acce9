//! The gRPC service.

use tonic::{Code, Request, Response, Status};
use tracing::Span;

use super::BudgetCall;
use super::messages::BudgetRequest;
use crate::proto::weir::budget::v1 as pb;
use crate::rls::service::rate_limit::{HoldGuard, RateLimit, parse_timeout};
use pb::budget_service_server::BudgetService as Api;
use weir_limiter::{Holds, RequestError};
use weir_store::Store;

/// Answers over gRPC. A request that is recorded has its [`Span`] in its extensions, and a response the
/// [`HoldGuard`] of its reservation.
#[derive(Debug)]
pub struct BudgetService<S>(RateLimit<S>);

impl<S: Store> BudgetService<S> {
    pub fn new(rate_limit: RateLimit<S>) -> BudgetService<S> {
        BudgetService(rate_limit)
    }

    async fn answer<R: BudgetRequest>(
        &self,
        request: Request<R>,
    ) -> Result<Response<R::Response>, Status> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.and_then(|text| parse_timeout(text.as_encoded_bytes()));
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
impl<S: Store> Api for BudgetService<S> {
    async fn reserve(
        &self,
        request: Request<pb::ReserveRequest>,
    ) -> Result<Response<pb::ReserveResponse>, Status> {
        self.answer(request).await
    }

    async fn settle(
        &self,
        request: Request<pb::SettleRequest>,
    ) -> Result<Response<pb::SettleResponse>, Status> {
        self.answer(request).await
    }

    async fn cancel(
        &self,
        request: Request<pb::CancelRequest>,
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
