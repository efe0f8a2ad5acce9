//! The standard gRPC health service (`grpc.health.v1`), answered from the service's readiness.

use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as Api;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::health::Health;

/// Reports two services: `ratelimit` follows the health state; the empty name always serves, as the process answers.
#[derive(Debug)]
pub struct HealthService(pub Arc<Health>);

type HealthStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

fn answer(serving: bool) -> HealthCheckResponse {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Api for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            "" => Ok(Response::new(answer(true))),
            "ratelimit" => Ok(Response::new(answer(self.0.is_serving()))),
            _ => Err(Status::not_found("unknown service: use \"ratelimit\" or \"\"")),
        }
    }

    type WatchStream = HealthStream;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthStream>, Status> {
        let fixed = match request.get_ref().service.as_str() {
            "ratelimit" => {
                let watched = self.0.watch().map(|serving| Ok(answer(serving)));
                return Ok(Response::new(Box::pin(watched) as HealthStream));
            }
            "" => answer(true),
            _ => HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() },
        };
        let until_closed = self.0.watch().filter_map(|_| None);
        let unchanging = tokio_stream::once(Ok(fixed)).chain(until_closed);
        Ok(Response::new(Box::pin(unchanging) as HealthStream))
    }
}
