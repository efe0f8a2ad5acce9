//! Answers the responses of a management server in state-of-the-world xDS, where each has all resources: loads their
//! rules, and makes the ACK or NACK.

use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::proto::google;
use crate::rule_sources::loader::{Loader, Rejection};
use crate::rule_sources::watch::fingerprint;
use crate::rule_sources::xds::resources::{self, TYPE_URL};
use weir_common::truncate::truncated;
use weir_rules::Problems;
use weir_rules::xds::Resource;

/// The state that outlives a stream.
#[derive(Debug)]
pub struct Exchange {
    node: Node,
    /// The version of the last accepted response; empty before the first one.
    version: String,
    rejected: Option<RejectedResponse>,
}

#[derive(Debug)]
pub struct Acknowledgement {
    pub request: DiscoveryRequest,
    pub outcome: ExchangeOutcome,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// The rules of this version are active.
    Accepted(String),
    Rejected,
    /// The set was rejected before. Some servers resend a rejected set immediately and continuously.
    RejectedAgain,
}

#[derive(Debug)]
struct RejectedResponse {
    fingerprint: u64,
    /// The status that was sent.
    status: google::rpc::Status,
    /// The version and the nonce of the newest response with the set.
    version: String,
    nonce: String,
}

impl Exchange {
    pub fn new(node: Node) -> Exchange {
        Exchange { node, version: String::new(), rejected: None }
    }

    /// Creates the first request of a stream, with the version of the active resources.
    pub fn first(&self) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..Default::default()
        }
    }

    /// Loads the resources of a response and creates the answer. Compiling many rules takes long.
    pub fn handle(&mut self, response: DiscoveryResponse, loader: &Loader) -> Acknowledgement {
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
        let (outcome, error_detail) = self.load(resources, problems, set, loader);
        if let ExchangeOutcome::Accepted(version) = &outcome {
            self.version.clone_from(version);
        }
        let response_nonce = response.nonce;
        let request = DiscoveryRequest { response_nonce, error_detail, ..self.first() };
        Acknowledgement { request, outcome }
    }

    /// Loads a set, except one that was just rejected; returns the outcome and, after a rejection, the status to send.
    fn load(
        &mut self,
        resources: Vec<Resource>,
        problems: Problems,
        (version, nonce): (String, &str),
        loader: &Loader,
    ) -> (ExchangeOutcome, Option<google::rpc::Status>) {
        let found = problems.list().to_vec();
        if let Some(last) = &mut self.rejected
            && last.fingerprint == fingerprint(&resources, &found)
            && loader.is_still_rejected()
        {
            (last.version, last.nonce) = (version, nonce.to_owned());
            return (ExchangeOutcome::RejectedAgain, Some(last.status.clone()));
        }
        match loader.load_resources(resources.clone(), problems) {
            Ok(_) => {
                self.rejected = None;
                (ExchangeOutcome::Accepted(version), None)
            }
            Err(rejection) => {
                let (status, nonce) = (status(&rejection), nonce.to_owned());
                let sent = status.clone();
                let fingerprint = fingerprint(&resources, &found);
                self.rejected = Some(RejectedResponse { fingerprint, status, version, nonce });
                (ExchangeOutcome::Rejected, Some(sent))
            }
        }
    }

    /// Creates the acknowledgement of a set that was rejected and has become active since, as its lists have changed;
    /// none if there is none.
    pub fn loaded_late(&mut self, loader: &Loader) -> Option<Acknowledgement> {
        let set = self.rejected.take_if(|_| !loader.is_newest_rejected())?;
        self.version.clone_from(&set.version);
        let request = DiscoveryRequest { response_nonce: set.nonce, ..self.first() };
        Some(Acknowledgement { request, outcome: ExchangeOutcome::Accepted(set.version) })
    }
}

/// The maximum length of the errors that are sent; the log and `/status` have more.
const MAX_ERROR_DETAIL_BYTES: usize = 4 << 10;

fn status(rejection: &Rejection) -> google::rpc::Status {
    let mut message = truncated(&*rejection.problems, MAX_ERROR_DETAIL_BYTES);
    if rejection.problems.len() > MAX_ERROR_DETAIL_BYTES {
        message += &format!("\n({} errors in all; weir's log lists more)", rejection.errors);
    }
    google::rpc::Status { code: tonic::Code::InvalidArgument as i32, message, details: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_has_the_first_errors_and_the_number_of_all() {
        let message = |problems: &str| {
            status(&Rejection { problems: problems.to_owned(), errors: 12_345 }).message
        };
        assert_eq!(message("a: error: x"), "a: error: x");
        let long = message(&"ü".repeat(MAX_ERROR_DETAIL_BYTES));
        assert!(long.len() < MAX_ERROR_DETAIL_BYTES + 100, "{}", long.len());
        assert!(long.ends_with("…\n(12345 errors in all; weir's log lists more)"), "{long}");
    }
}
