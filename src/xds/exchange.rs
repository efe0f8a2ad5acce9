//! The two variants of the protocol: all resources in each response, or only changes.

mod delta;
mod sotw;

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::loader::{Loader, Rejection};
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::proto::google;
use crate::watch::fingerprint;
pub use delta::Delta;
pub use sotw::Sotw;
use weir_rules::Problems;
use weir_rules::truncate;
use weir_rules::xds::Resource;

/// The generated client.
pub type DiscoveryClient = AggregatedDiscoveryServiceClient<Channel>;

/// A variant of the protocol, with the state that outlives a stream.
pub trait Exchange: Send + 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// Creates the first request of a stream, with the versions of the active resources.
    fn first(&mut self) -> Self::Request;

    /// Loads the resources of a response and creates the answer. Compiling many rules takes long.
    fn handle(
        &mut self,
        response: Self::Response,
        loader: &Loader,
    ) -> Acknowledgement<Self::Request>;

    /// Creates the acknowledgement of a set that was rejected and has become active since; none if there is none.
    fn loaded_late(&mut self, loader: &Loader) -> Option<Acknowledgement<Self::Request>>;

    /// Opens a stream.
    fn open(
        client: &mut DiscoveryClient,
        requests: tonic::Request<ReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;
}

/// The answer to a response.
#[derive(Debug)]
pub struct Acknowledgement<R> {
    pub request: R,
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rules of this version are active.
    Accepted(String),
    Rejected,
    /// The set was rejected before. Some servers resend a rejected set immediately and continuously.
    RejectedAgain,
}

/// Loads rules, except a set that was just rejected.
#[derive(Debug, Default)]
struct Intake {
    rejected: Option<RejectedSet>,
}

/// The last rejected set.
#[derive(Debug)]
struct RejectedSet {
    fingerprint: u64,
    /// The status that was sent.
    status: google::rpc::Status,
    /// Those of the newest response with it.
    version: String,
    nonce: String,
}

impl Intake {
    /// Loads a set; returns the outcome and, after a rejection, the status to send.
    fn load(
        &mut self,
        resources: Vec<Resource>,
        problems: Problems,
        (version, nonce): (String, &str),
        loader: &Loader,
    ) -> (Outcome, Option<google::rpc::Status>) {
        let fingerprint = fingerprint(&resources, problems.list());
        if let Some(last) = self.rejected.as_mut().filter(|last| last.fingerprint == fingerprint)
            && loader.is_still_rejected()
        {
            (last.version, last.nonce) = (version, nonce.to_owned());
            return (Outcome::RejectedAgain, Some(last.status.clone()));
        }
        match loader.load_resources(resources, problems) {
            Ok(_) => {
                self.rejected = None;
                (Outcome::Accepted(version), None)
            }
            Err(rejection) => {
                let (status, nonce) = (status(&rejection), nonce.to_owned());
                let sent = status.clone();
                self.rejected = Some(RejectedSet { fingerprint, status, version, nonce });
                (Outcome::Rejected, Some(sent))
            }
        }
    }

    /// Returns the version and the nonce of the rejected set if it has become active since: its lists have changed.
    fn loaded_late(&mut self, loader: &Loader) -> Option<(String, String)> {
        let set = self.rejected.take_if(|_| !loader.is_newest_rejected())?;
        Some((set.version, set.nonce))
    }
}

/// The maximum length of the errors that are sent; the log and `/status` have more.
const MAX_ERROR_DETAIL_BYTES: usize = 4 << 10;

/// The `error_detail` of a rejection.
fn status(rejection: &Rejection) -> google::rpc::Status {
    let mut message = rejection.problems.clone();
    if message.len() > MAX_ERROR_DETAIL_BYTES {
        truncate(&mut message, MAX_ERROR_DETAIL_BYTES);
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
