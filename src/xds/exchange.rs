//! The two ways to keep up with a management server: all resources each time, or only changes.

mod delta;
mod sotw;

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::loader::Loader;
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::proto::google;
use crate::rules::source::RuleFile;
use crate::rules::{self, Problem};
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
        problems: Vec<Problem>,
        version: String,
        loader: &Loader,
    ) -> (Outcome, Option<google::rpc::Status>) {
        let fingerprint = fingerprint(&files, &problems);
        if let Some((_, why)) = self.refused.as_ref().filter(|(last, _)| *last == fingerprint) {
            return (Outcome::RefusedAgain, Some(why.clone()));
        }
        match loader.load_telling(files, problems, rules::xds::render_errors) {
            Ok(_) => {
                self.refused = None;
                (Outcome::Taken(version), None)
            }
            Err(problems) => {
                let why = refusal(&problems);
                self.refused = Some((fingerprint, why.clone()));
                (Outcome::Refused, Some(why))
            }
        }
    }
}

/// The longest account of problems that is sent, in bytes. The log has all of it.
const LONGEST: usize = 4 << 10;

/// Why a response is refused, as it is sent.
fn refusal(problems: &str) -> google::rpc::Status {
    let message = match problems.len() <= LONGEST {
        true => problems.to_owned(),
        false => {
            let ends = problems.char_indices().map(|(at, _)| at);
            let end = ends.take_while(|&at| at <= LONGEST).last().unwrap_or_default();
            format!("{}…\n(there is more; weir's log has all of it)", &problems[..end])
        }
    };
    google::rpc::Status { code: tonic::Code::InvalidArgument as i32, message, details: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_the_problems_but_not_without_end() {
        assert_eq!(refusal("a: error: x").message, "a: error: x");
        let long = refusal(&"ü".repeat(LONGEST)).message;
        assert!(long.len() < LONGEST + 100 && long.ends_with("has all of it)"), "{}", long.len());
    }
}
