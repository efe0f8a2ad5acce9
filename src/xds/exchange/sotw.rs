//! State of the world: each response has all resources.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use super::{Acknowledgement, DiscoveryClient, Exchange, Intake, Outcome};
use crate::loader::Loader;
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::xds::resources::{self, TYPE_URL};

#[derive(Debug)]
pub struct Sotw {
    node: Node,
    /// The version of the last accepted response; empty before the first one.
    version: String,
    intake: Intake,
}

impl Sotw {
    pub fn new(node: Node) -> Sotw {
        Sotw { node, version: String::new(), intake: Intake::default() }
    }

    fn request(&self) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..Default::default()
        }
    }
}

impl Exchange for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn first(&mut self) -> DiscoveryRequest {
        self.request()
    }

    fn handle(
        &mut self,
        response: DiscoveryResponse,
        loader: &Loader,
    ) -> Acknowledgement<DiscoveryRequest> {
        let mut resources = Vec::new();
        let mut problems = loader.new_problems();
        problems.of_files(resources::wrong_type(&response.type_url));
        let mut received = response.resources;
        if let Some(problem) = resources::too_many(received.len()) {
            problems.of_files([problem]);
            received.clear();
        }
        for (number, resource) in received.into_iter().enumerate() {
            match resources::decode(resource, &format!("resource {}", number + 1)) {
                Ok(resource) => resources.push(resource),
                Err(problem) => problems.of_files([problem]),
            }
        }
        let set = (response.version_info, &*response.nonce);
        let (outcome, error_detail) = self.intake.load(resources, problems, set, loader);
        if let Outcome::Accepted(version) = &outcome {
            self.version.clone_from(version);
        }
        let response_nonce = response.nonce;
        let request = DiscoveryRequest { response_nonce, error_detail, ..self.request() };
        Acknowledgement { request, outcome }
    }

    fn loaded_late(&mut self, loader: &Loader) -> Option<Acknowledgement<DiscoveryRequest>> {
        let (version, response_nonce) = self.intake.loaded_late(loader)?;
        self.version.clone_from(&version);
        let request = DiscoveryRequest { response_nonce, ..self.request() };
        Some(Acknowledgement { request, outcome: Outcome::Accepted(version) })
    }

    async fn open(
        client: &mut DiscoveryClient,
        requests: tonic::Request<ReceiverStream<DiscoveryRequest>>,
    ) -> Result<Response<Streaming<DiscoveryResponse>>, Status> {
        client.stream_aggregated_resources(requests).await
    }
}
