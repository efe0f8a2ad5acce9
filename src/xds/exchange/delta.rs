//! Changes only: a response has what is new or changed, and names what is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use super::{Answer, Client, Exchange, Intake, Outcome};
use crate::loader::Loader;
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use crate::rules::Problem;
use crate::rules::source::RuleFile;
use crate::xds::resources::{self, TYPE_URL};

#[derive(Debug)]
pub struct Delta {
    node: Node,
    /// What is in force, by names.
    taken: Resources,
    /// What the server takes to be here. It does not send again what came along with a bad
    /// resource, nor what it has not changed, so that all of it is kept until the bad one is mended
    /// or gone.
    sent: Resources,
    intake: Intake,
}

type Resources = BTreeMap<String, Arc<Sent>>;

/// A resource as it came.
#[derive(Debug)]
struct Sent {
    version: String,
    file: Result<RuleFile, Problem>,
}

impl Delta {
    pub fn new(node: Node) -> Delta {
        let (taken, sent, intake) = Default::default();
        Delta { node, taken, sent, intake }
    }

    fn request(&self) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..Default::default()
        }
    }

    fn change(&mut self, updates: Vec<Resource>, gone: &[String]) {
        for name in gone {
            self.sent.remove(name);
        }
        for Resource { name, version, resource } in updates {
            let file = match resource {
                Some(resource) => resources::rule_file(resource, &name),
                // The server only says that it is still good.
                None if self.sent.contains_key(&name) => continue,
                None => Err(Problem::of_file(
                    &name,
                    "there is a name and a version, but no resource",
                    "send the resource",
                )),
            };
            self.sent.insert(name, Arc::new(Sent { version, file }));
        }
    }
}

impl Exchange for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn first(&mut self) -> DeltaDiscoveryRequest {
        // What was refused is to be sent again.
        self.sent = self.taken.clone();
        let versions = self.taken.iter();
        let versions = versions.map(|(name, sent)| (name.clone(), sent.version.clone()));
        DeltaDiscoveryRequest { initial_resource_versions: versions.collect(), ..self.request() }
    }

    fn take_in(
        &mut self,
        response: DeltaDiscoveryResponse,
        loader: &Loader,
    ) -> Answer<DeltaDiscoveryRequest> {
        let mut files = Vec::new();
        let mut problems = loader.new_problems();
        match resources::wrong_type(&response.type_url) {
            Some(problem) => problems.of_files([problem]),
            None => self.change(response.resources, &response.removed_resources),
        }
        // What the server takes to be here is kept: it would not send it again.
        match resources::too_many(self.sent.len()) {
            Some(problem) => problems.of_files([problem]),
            None => {
                for sent in self.sent.values() {
                    match &sent.file {
                        Ok(file) => files.push(file.clone()),
                        Err(problem) => problems.of_files([problem.clone()]),
                    }
                }
            }
        }
        let version = response.system_version_info;
        let (outcome, error_detail) = self.intake.load(files, problems, version, loader);
        if matches!(outcome, Outcome::Taken(_)) {
            self.taken = self.sent.clone();
        }
        let response_nonce = response.nonce;
        let request = DeltaDiscoveryRequest { response_nonce, error_detail, ..self.request() };
        Answer { request, outcome }
    }

    async fn open(
        client: &mut Client,
        requests: tonic::Request<ReceiverStream<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Streaming<DeltaDiscoveryResponse>>, Status> {
        client.delta_aggregated_resources(requests).await
    }
}
