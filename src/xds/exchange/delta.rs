//! Incremental: a response has new and changed resources, and the names of removed ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use super::{Acknowledgement, DiscoveryClient, Exchange, Intake, Outcome};
use crate::loader::Loader;
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use crate::xds::resources::{self, TYPE_URL};
use weir_rules::{Problem, xds};

#[derive(Debug)]
pub struct Delta {
    node: Node,
    /// The active resources.
    accepted: Resources,
    /// The resources that the server assumes weir has. It resends neither unchanged resources nor
    /// those that arrived together with an invalid one, so they are kept until that one is fixed or
    /// removed.
    received: Resources,
    intake: Intake,
}

/// Resources by name.
type Resources = BTreeMap<String, Arc<Received>>;

#[derive(Debug)]
struct Received {
    version: String,
    resource: Result<xds::Resource, Problem>,
}

impl Delta {
    pub fn new(node: Node) -> Delta {
        let (accepted, received, intake) = Default::default();
        Delta { node, accepted, received, intake }
    }

    fn request(&self) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..Default::default()
        }
    }

    fn update(&mut self, updates: Vec<Resource>, removed: &[String]) {
        for name in removed {
            self.received.remove(name);
        }
        for Resource { name, version, resource } in updates {
            let resource = match resource {
                Some(resource) => resources::decode(resource, &name),
                // A heartbeat: the resource is unchanged.
                None if self.received.contains_key(&name) => continue,
                None => Err(Problem::of_file(
                    &name,
                    "there is a name and a version, but no resource",
                    "send the resource",
                )),
            };
            self.received.insert(name, Arc::new(Received { version, resource }));
        }
    }
}

impl Exchange for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn first(&mut self) -> DeltaDiscoveryRequest {
        // The server resends what was rejected.
        self.received = self.accepted.clone();
        let versions = self.accepted.iter();
        let versions = versions.map(|(name, accepted)| (name.clone(), accepted.version.clone()));
        DeltaDiscoveryRequest { initial_resource_versions: versions.collect(), ..self.request() }
    }

    fn handle(
        &mut self,
        response: DeltaDiscoveryResponse,
        loader: &Loader,
    ) -> Acknowledgement<DeltaDiscoveryRequest> {
        let mut resources = Vec::new();
        let mut problems = loader.new_problems();
        match resources::wrong_type(&response.type_url) {
            Some(problem) => problems.of_files([problem]),
            None => self.update(response.resources, &response.removed_resources),
        }
        // They are kept even if there are too many, because the server does not resend them.
        match resources::too_many(self.received.len()) {
            Some(problem) => problems.of_files([problem]),
            None => {
                for received in self.received.values() {
                    match &received.resource {
                        Ok(resource) => resources.push(resource.clone()),
                        Err(problem) => problems.of_files([problem.clone()]),
                    }
                }
            }
        }
        let set = (response.system_version_info, &*response.nonce);
        let (outcome, error_detail) = self.intake.load(resources, problems, set, loader);
        if matches!(outcome, Outcome::Accepted(_)) {
            self.accepted = self.received.clone();
        }
        let response_nonce = response.nonce;
        let request = DeltaDiscoveryRequest { response_nonce, error_detail, ..self.request() };
        Acknowledgement { request, outcome }
    }

    fn loaded_late(&mut self, loader: &Loader) -> Option<Acknowledgement<DeltaDiscoveryRequest>> {
        let (version, response_nonce) = self.intake.loaded_late(loader)?;
        self.accepted = self.received.clone();
        let request = DeltaDiscoveryRequest { response_nonce, ..self.request() };
        Some(Acknowledgement { request, outcome: Outcome::Accepted(version) })
    }

    async fn open(
        client: &mut DiscoveryClient,
        requests: tonic::Request<ReceiverStream<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Streaming<DeltaDiscoveryResponse>>, Status> {
        client.delta_aggregated_resources(requests).await
    }
}
