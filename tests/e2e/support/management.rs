//! A management server that records the requests of weir and sends the responses of a test.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use prost::Message;
use prost_types::Any;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use weir::proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use weir::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

use super::{PATIENCE, wait_for};

pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A running server. It and its connections end when it is dropped.
#[derive(Debug)]
pub struct Management {
    pub address: SocketAddr,
    pub sotw: Arc<Side>,
    runtime: Option<Runtime>,
}

/// What the server was asked, and its answers.
#[derive(Debug)]
pub struct Side {
    asked: (Mutex<Sender<DiscoveryRequest>>, Mutex<Receiver<DiscoveryRequest>>),
    /// The answers of the newest stream.
    answers: Mutex<Option<UnboundedSender<Result<DiscoveryResponse, Status>>>>,
    headers: Mutex<MetadataMap>,
    streams: AtomicUsize,
}

impl Management {
    /// Starts a server on a free port.
    pub fn start() -> Management {
        Management::start_on("127.0.0.1:0".parse().expect("an address"), Server::builder())
    }

    /// Starts a server at an address that another server may just have released.
    pub fn start_on(address: SocketAddr, mut server: Server) -> Management {
        // Its own threads, because tests block theirs.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = wait_for(&format!("{address} is free"), || TcpListener::bind(address).ok());
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener");
        let service = Service::default();
        let sotw = service.sotw.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let service = AggregatedDiscoveryServiceServer::new(service);
            let serving = server.add_service(service);
            serving.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves");
        });
        Management { address, sotw, runtime: Some(runtime) }
    }

    /// Sends a complete set of resources. Returns the request that answers it.
    pub fn answer_to(&self, version: &str, resources: Vec<Any>) -> DiscoveryRequest {
        self.sotw.send(DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: TYPE_URL.to_owned(),
            nonce: format!("nonce of {version}"),
        });
        self.sotw.next()
    }

    /// Sends a complete set of resources, which must be acknowledged.
    pub fn set(&self, version: &str, resources: Vec<Any>) {
        let answer = self.answer_to(version, resources);
        assert_eq!(answer.error_detail, None);
        assert_eq!(answer.version_info, version);
        assert_eq!(answer.response_nonce, format!("nonce of {version}"));
    }

    /// Sends a complete set of resources, which must be rejected while the version `active` stays active.
    /// Returns the reason.
    pub fn rejected(&self, version: &str, resources: Vec<Any>, active: &str) -> String {
        let answer = self.answer_to(version, resources);
        assert_eq!(answer.version_info, active);
        assert_eq!(answer.response_nonce, format!("nonce of {version}"));
        let detail = answer.error_detail.expect("refused");
        assert_eq!(detail.code, tonic::Code::InvalidArgument as i32);
        detail.message
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The runtime of a test does not allow waiting.
            let ended = std::thread::spawn(|| runtime.shutdown_timeout(PATIENCE)).join();
            ended.expect("ends");
        }
    }
}

impl Default for Side {
    fn default() -> Side {
        let (sender, receiver) = channel();
        Side {
            asked: (Mutex::new(sender), Mutex::new(receiver)),
            answers: Mutex::default(),
            headers: Mutex::default(),
            streams: AtomicUsize::new(0),
        }
    }
}

impl Side {
    /// Waits for the next request of any stream.
    pub fn next(&self) -> DiscoveryRequest {
        self.asked.1.lock().unwrap().recv_timeout(PATIENCE).expect("a request")
    }

    /// Sends a response on the newest stream.
    pub fn send(&self, response: DiscoveryResponse) {
        self.say(Ok(response));
    }

    /// Ends the newest stream with an error.
    pub fn fail(&self, why: &str) {
        self.say(Err(Status::unavailable(why)));
    }

    /// Ends the newest stream.
    pub fn end(&self) {
        *self.answers.lock().unwrap() = None;
    }

    fn say(&self, said: Result<DiscoveryResponse, Status>) {
        let answers = self.answers.lock().unwrap();
        let sent = answers.as_ref().expect("a stream").send(said);
        assert!(sent.is_ok(), "the stream is open");
    }

    /// Returns a header of the newest stream.
    pub fn header(&self, name: &str) -> Option<String> {
        let headers = self.headers.lock().unwrap();
        headers.get(name).map(|value| value.to_str().expect("text").to_owned())
    }

    /// Returns the number of streams so far.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn open(
        self: Arc<Self>,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Response<UnboundedReceiverStream<Result<DiscoveryResponse, Status>>> {
        let (answers, sent) = unbounded_channel();
        *self.answers.lock().unwrap() = Some(answers);
        *self.headers.lock().unwrap() = request.metadata().clone();
        self.streams.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            while let Ok(Some(request)) = requests.message().await {
                self.asked.0.lock().unwrap().send(request).expect("both ends are here");
            }
        });
        Response::new(UnboundedReceiverStream::new(sent))
    }
}

#[derive(Debug, Default)]
struct Service {
    sotw: Arc<Side>,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream =
        UnboundedReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream =
        UnboundedReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Ok(self.sotw.clone().open(request))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("state of the world only"))
    }
}

/// Encodes a resource.
pub fn any(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

/// Returns a rule file as a gateway sends it: with the fields that gateways set.
pub fn config(rules: &Value) -> RateLimitConfig {
    let domain = rules["domain"].as_str().expect("a domain");
    RateLimitConfig {
        name: domain.to_owned(),
        domain: domain.to_owned(),
        descriptors: descriptors(rules),
        ..Default::default()
    }
}

fn descriptors(above: &Value) -> Vec<RateLimitDescriptor> {
    above["descriptors"].as_array().into_iter().flatten().map(descriptor).collect()
}

fn descriptor(rule: &Value) -> RateLimitDescriptor {
    let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let flag = |key: &str| rule[key].as_bool().unwrap_or_default();
    let rate_limit = rule["rate_limit"].as_object().map(|limit| {
        let unit = limit["unit"].as_str().expect("a unit").to_uppercase();
        RateLimitPolicy {
            unit: RateLimitUnit::from_str_name(&unit).expect("a known unit").into(),
            requests_per_unit: limit["requests_per_unit"].as_u64().unwrap().try_into().unwrap(),
            ..Default::default()
        }
    });
    RateLimitDescriptor {
        key: text("key"),
        value: text("value"),
        rate_limit,
        descriptors: descriptors(rule),
        shadow_mode: flag("shadow_mode"),
        quota_mode: flag("quota_mode"),
        ..Default::default()
    }
}
