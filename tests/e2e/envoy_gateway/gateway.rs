//! The xDS server of Envoy Gateway: a snapshot cache of go-control-plane over mutual TLS.
//!
//! It answers a request whose version is not that of the snapshot, counts nonces per stream, and sends
//! nothing while the snapshot stays the same.

use std::sync::Mutex;

use prost_types::Any;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use weir::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

use super::pod::Place;
use crate::support::certificates::{self, Authority};
use crate::support::management::{Management, TYPE_URL, any};

/// Envoy Gateway names a domain and its resource by the listener, and the outer descriptor by the route.
pub const DOMAIN: &str = "default/eg/http";
pub const DESCRIPTOR: &str = "httproute/default/shop/rule/0/match/0/shop_example_com";
pub const RULE: &str = "rule-0-match-0";

pub struct Gateway {
    server: Management,
    stream: Mutex<Stream>,
}

#[derive(Default)]
struct Stream {
    nonce: u32,
    version: u32,
}

impl Gateway {
    pub fn start(place: &Place, authority: &Authority) -> Gateway {
        let certificates::Identity { cert, key } = authority.sign(&[
            "envoy-gateway",
            "envoy-gateway.envoy-gateway-system.svc.cluster.local",
            "localhost",
        ]);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(cert, key))
            .client_ca_root(Certificate::from_pem(&authority.pem));
        let server = Management::start_on(
            place.xds(),
            Server::builder().tls_config(tls).expect("good certificates"),
        );
        Gateway { server, stream: Mutex::default() }
    }

    /// Waits for the first request of a stream, and checks what the snapshot cache needs of it.
    pub fn await_subscription(&self) -> DiscoveryRequest {
        let request = self.server.sotw.next();
        let node = request.node.as_ref().expect("the snapshot is that of the node");
        assert_eq!(node.id, "envoy-ratelimit");
        assert_eq!(request.type_url, TYPE_URL);
        assert!(request.resource_names.is_empty(), "all resources");
        assert!(request.response_nonce.is_empty() && request.error_detail.is_none());
        self.stream.lock().unwrap().nonce = 0;
        request
    }

    /// Publishes a snapshot with a limit of the route, per year, which weir must acknowledge.
    pub fn set_snapshot(&self, limit: u32) {
        self.publish(resources(limit));
    }

    /// Publishes a snapshot with these rules, which weir must acknowledge.
    pub fn publish(&self, resources: Vec<Any>) {
        let (version, answer) = self.answer_to(resources);
        assert_eq!(answer.error_detail, None);
        assert_eq!(answer.version_info, version);
    }

    /// Publishes a snapshot with these rules, which weir must reject. Returns its errors.
    pub fn publish_rejected(&self, resources: Vec<Any>) -> String {
        let (version, answer) = self.answer_to(resources);
        assert_ne!(answer.version_info, version);
        answer.error_detail.expect("an error").message
    }

    /// Publishes a snapshot. Returns its version and weir's answer.
    fn answer_to(&self, resources: Vec<Any>) -> (String, DiscoveryRequest) {
        let mut stream = self.stream.lock().unwrap();
        stream.version += 1;
        stream.nonce += 1;
        let (version, nonce) = (stream.version.to_string(), stream.nonce.to_string());
        self.server.sotw.send(DiscoveryResponse {
            version_info: version.clone(),
            resources,
            type_url: TYPE_URL.to_owned(),
            nonce: nonce.clone(),
        });
        let answer = self.server.sotw.next();
        assert_eq!(answer.response_nonce, nonce);
        (version, answer)
    }

    /// Ends the stream, as a restart does. weir subscribes again, with the version that it has.
    pub fn restart_stream(&self) {
        self.server.sotw.end();
        let request = self.await_subscription();
        assert_eq!(request.version_info, self.stream.lock().unwrap().version.to_string());
    }
}

fn resources(limit: u32) -> Vec<Any> {
    let policy = RateLimitPolicy {
        unit: RateLimitUnit::Year.into(),
        requests_per_unit: limit,
        ..Default::default()
    };
    let named = |name: &str| RateLimitDescriptor {
        key: name.to_owned(),
        value: name.to_owned(),
        ..Default::default()
    };
    let rule = RateLimitDescriptor { rate_limit: Some(policy), ..named(RULE) };
    let route = RateLimitDescriptor { descriptors: vec![rule], ..named(DESCRIPTOR) };
    vec![any(&RateLimitConfig {
        name: DOMAIN.to_owned(),
        domain: DOMAIN.to_owned(),
        descriptors: vec![route],
        ..Default::default()
    })]
}
