//! The two ways to keep up with a management server: all resources each time, or only changes.

mod delta;
mod sotw;

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::loader::{Loader, Refusal};
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::proto::google;
use crate::rules::Problems;
use crate::rules::source::RuleFile;
use crate::rules::truncate;
use crate::watch::fingerprint;
pub use delta::Delta;
pub use sotw::Sotw;

/// The client that generated code has.
pub type Client = AggregatedDiscoveryServiceClient<Channel>;

/// Requests and responses of one way, and what is known from one stream to the next.
pub trait Exchange: Send + 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// The first request of a stream: what is wanted, and what is there already.
    fn first(&mut self) -> Self::Request;

    /// Takes a response in and answers it. May take long: rules are compiled.
    fn take_in(&mut self, response: Self::Response, loader: &Loader) -> Answer<Self::Request>;

    /// Begins a stream.
    fn open(
        client: &mut Client,
        requests: tonic::Request<ReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;
}

/// What comes of a response.
#[derive(Debug)]
pub struct Answer<R> {
    pub request: R,
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This version is in force.
    Taken(String),
    Refused,
    /// It was refused before. Some servers send a set that was refused again at once, for ever.
    RefusedAgain,
}

/// Has rules loaded, but not again those that were refused last.
#[derive(Debug, Default)]
struct Intake {
    /// The fingerprint of what was refused, and why it was.
    refused: Option<(u64, google::rpc::Status)>,
}

impl Intake {
    /// The outcome, where `version` is what was loaded; why, where it was refused.
    fn load(
        &mut self,
        files: Vec<RuleFile>,
        problems: Problems,
        version: String,
        loader: &Loader,
    ) -> (Outcome, Option<google::rpc::Status>) {
        let fingerprint = fingerprint(&files, problems.list());
        if let Some((_, why)) = self.refused.as_ref().filter(|(last, _)| *last == fingerprint) {
            return (Outcome::RefusedAgain, Some(why.clone()));
        }
        match loader.load_sent(files, problems) {
            Ok(_) => {
                self.refused = None;
                (Outcome::Taken(version), None)
            }
            Err(refusal) => {
                let why = status(&refusal);
                self.refused = Some((fingerprint, why.clone()));
                (Outcome::Refused, Some(why))
            }
        }
    }
}

/// Bytes of problems that are sent; the log and `/status` have more.
const MAX_REFUSAL_BYTES: usize = 4 << 10;

/// Why a response is refused, as it is sent.
fn status(refusal: &Refusal) -> google::rpc::Status {
    let mut message = refusal.problems.clone();
    if message.len() > MAX_REFUSAL_BYTES {
        truncate(&mut message, MAX_REFUSAL_BYTES);
        message += &format!("\n({} errors in all; weir's log lists more)", refusal.errors);
    }
    google::rpc::Status { code: tonic::Code::InvalidArgument as i32, message, details: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_problems_up_to_a_limit_and_their_number() {
        let message = |problems: &str| {
            status(&Refusal { problems: problems.to_owned(), errors: 12_345 }).message
        };
        assert_eq!(message("a: error: x"), "a: error: x");
        let long = message(&"ü".repeat(MAX_REFUSAL_BYTES));
        assert!(long.len() < MAX_REFUSAL_BYTES + 100, "{}", long.len());
        assert!(long.ends_with("…\n(12345 errors in all; weir's log lists more)"), "{long}");
    }
}
