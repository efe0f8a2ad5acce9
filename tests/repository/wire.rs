//! The messages of `proto/` have Envoy's wire format: an independent set of Envoy's types encodes the same
//! values to the same bytes, and decodes them.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

/// The values of a request: domain, hits, descriptors.
type Request = (String, u32, Vec<Descriptor>);
/// Entries, limit (requests and unit), hits, whether these are negative.
type Descriptor = (Vec<(String, String)>, Option<(u32, i32)>, Option<u64>, bool);
/// The values of a response: overall code, statuses, headers for the response and for the request,
/// body, metadata.
type Response = (i32, Vec<Status>, Vec<Header>, Vec<Header>, Vec<u8>, Option<Vec<(String, f64)>>);
/// Code, limit (name, requests, unit), remaining, seconds until the reset.
type Status = (i32, Option<(String, u32, i32)>, u32, Option<i64>);
type Header = (String, String, Vec<u8>);

/// Converts a message to the other set of types.
fn same<B: Message + Default>(a: &impl Message) -> B {
    B::decode(&*a.encode_to_vec()).expect("the same message")
}

/// Constructs requests and responses with one set of types.
macro_rules! with_types_of {
    ($module:ident, $($root:ident)::+, $wrap:expr) => {
        mod $module {
            use super::same;
            use $($root)::+::envoy::config::core::v3::HeaderValue;
            use $($root)::+::envoy::extensions::common::ratelimit::v3 as common;
            use $($root)::+::envoy::service::ratelimit::v3 as rls;
            use common::rate_limit_descriptor::{Entry, RateLimitOverride};
            use rls::rate_limit_response::{DescriptorStatus, RateLimit};

            // Fields that the other set of types lacks stay unset.
            #[allow(clippy::needless_update)]
            pub fn request(values: super::Request) -> rls::RateLimitRequest {
                let (domain, hits_addend, descriptors) = values;
                let entry = |(key, value)| Entry { key, value };
                let descriptors = descriptors.into_iter().map(|(entries, limit, hits, negative)| {
                    common::RateLimitDescriptor {
                        entries: entries.into_iter().map(entry).collect(),
                        limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride {
                            requests_per_unit,
                            unit,
                            ..Default::default()
                        }),
                        hits_addend: hits.map($wrap),
                        is_negative_hits: negative,
                    }
                });
                rls::RateLimitRequest { domain, descriptors: descriptors.collect(), hits_addend }
            }

            #[allow(clippy::needless_update)]
            pub fn response(values: super::Response) -> rls::RateLimitResponse {
                let (overall_code, statuses, to_client, to_backend, body, metadata) = values;
                let statuses = statuses.into_iter().map(|(code, limit, remaining, reset)| {
                    DescriptorStatus {
                        code,
                        current_limit: limit.map(|(name, requests_per_unit, unit)| RateLimit {
                            name,
                            requests_per_unit,
                            unit,
                            ..Default::default()
                        }),
                        limit_remaining: remaining,
                        duration_until_reset: reset
                            .map(|seconds| same(&prost_types::Duration { seconds, nanos: 0 })),
                        ..Default::default()
                    }
                });
                let header = |(key, value, raw_value)| HeaderValue { key, value, raw_value };
                let headers =
                    |headers: Vec<super::Header>| headers.into_iter().map(header).collect();
                rls::RateLimitResponse {
                    overall_code,
                    statuses: statuses.collect(),
                    response_headers_to_add: headers(to_client),
                    request_headers_to_add: headers(to_backend),
                    raw_body: body,
                    dynamic_metadata: metadata.map(|fields| same(&super::metadata(fields))),
                    ..Default::default()
                }
            }
        }
    };
}

with_types_of!(ours, weir::proto, |hits| hits);
with_types_of!(theirs, envoy_types::pb, |value| {
    envoy_types::pb::google::protobuf::UInt64Value { value }
});

/// At most one field, because the order of a map may differ between the two sets of types.
fn metadata(fields: Vec<(String, f64)>) -> prost_types::Struct {
    let number = |n| prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(n)) };
    let fields = fields.into_iter().map(|(name, n)| (name, number(n)));
    prost_types::Struct { fields: fields.collect() }
}

/// Checks that both messages encode to the same bytes, and that each decodes those of the other.
fn assert_same<A, B>(ours: &A, theirs: &B)
where
    A: Message + Default + PartialEq + std::fmt::Debug,
    B: Message + Default + PartialEq + std::fmt::Debug,
{
    assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec(), "{ours:?} {theirs:?}");
    assert_eq!(&same::<A>(theirs), ours);
    assert_eq!(&same::<B>(ours), theirs);
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    (
        vec(any::<(String, String)>(), 0..4),
        any::<Option<(u32, i32)>>(),
        any::<Option<u64>>(),
        any::<bool>(),
    )
}

fn headers() -> impl Strategy<Value = Vec<Header>> {
    vec((any::<String>(), any::<String>(), vec(any::<u8>(), 0..9)), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn requests_are_the_same(
        request in (any::<String>(), any::<u32>(), vec(descriptor(), 0..4)),
    ) {
        assert_same(&ours::request(request.clone()), &theirs::request(request));
    }

    #[test]
    fn responses_are_the_same(
        response in (
            any::<i32>(),
            vec(any::<Status>(), 0..4),
            headers(),
            headers(),
            vec(any::<u8>(), 0..9),
            proptest::option::of(vec((any::<String>(), -1e9..1e9), 0..2)),
        ),
    ) {
        assert_same(&ours::response(response.clone()), &theirs::response(response));
    }
}

/// Constructs xDS messages with one set of types.
macro_rules! discovery_with_types_of {
    ($module:ident, $($root:ident)::+) => {
        mod $module {
            use super::{metadata, same};
            use $($root)::+::envoy::config::core::v3::{Node, node::UserAgentVersionType};
            use $($root)::+::envoy::service::discovery::v3 as discovery;
            use $($root)::+::google::rpc::Status;

            // As above.
            #[allow(clippy::needless_update)]
            pub fn node() -> Node {
                Node {
                    id: "edge".into(),
                    cluster: "shop".into(),
                    metadata: Some(same(&metadata(vec![("zone".into(), 7.0)]))),
                    user_agent_name: "weir".into(),
                    user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                        "0.1".into(),
                    )),
                    ..Default::default()
                }
            }

            fn status() -> Status {
                Status { code: 3, message: "no".into(), details: vec![same(&super::packed())] }
            }

            #[allow(clippy::needless_update)]
            pub fn request() -> discovery::DiscoveryRequest {
                discovery::DiscoveryRequest {
                    version_info: "1".into(),
                    node: Some(node()),
                    resource_names: vec!["a".into(), "b".into()],
                    type_url: "type".into(),
                    response_nonce: "n".into(),
                    error_detail: Some(status()),
                    ..Default::default()
                }
            }

            #[allow(clippy::needless_update)]
            pub fn response() -> discovery::DiscoveryResponse {
                discovery::DiscoveryResponse {
                    version_info: "1".into(),
                    resources: vec![same(&super::packed())],
                    type_url: "type".into(),
                    nonce: "n".into(),
                    ..Default::default()
                }
            }

            #[allow(clippy::needless_update)]
            pub fn delta_request() -> discovery::DeltaDiscoveryRequest {
                discovery::DeltaDiscoveryRequest {
                    node: Some(node()),
                    type_url: "type".into(),
                    resource_names_subscribe: vec!["a".into()],
                    resource_names_unsubscribe: vec!["b".into()],
                    initial_resource_versions: [("a".into(), "1".into())].into(),
                    response_nonce: "n".into(),
                    error_detail: Some(status()),
                    ..Default::default()
                }
            }

            #[allow(clippy::needless_update)]
            pub fn delta_response() -> discovery::DeltaDiscoveryResponse {
                discovery::DeltaDiscoveryResponse {
                    system_version_info: "1".into(),
                    resources: vec![discovery::Resource {
                        version: "2".into(),
                        resource: Some(same(&super::packed())),
                        name: "a".into(),
                        ..Default::default()
                    }],
                    type_url: "type".into(),
                    nonce: "n".into(),
                    removed_resources: vec!["b".into()],
                    ..Default::default()
                }
            }
        }
    };
}

discovery_with_types_of!(our_discovery, weir::proto);
discovery_with_types_of!(their_discovery, envoy_types::pb);

fn packed() -> prost_types::Any {
    prost_types::Any { type_url: "type".into(), value: b"value".to_vec() }
}

#[test]
fn xds_messages_are_the_same() {
    assert_same(&our_discovery::node(), &their_discovery::node());
    assert_same(&our_discovery::request(), &their_discovery::request());
    assert_same(&our_discovery::response(), &their_discovery::response());
    assert_same(&our_discovery::delta_request(), &their_discovery::delta_request());
    assert_same(&our_discovery::delta_response(), &their_discovery::delta_response());
}

#[test]
fn enum_values_have_the_same_names() {
    use envoy_types::pb::envoy as theirs;
    use weir::proto::envoy as ours;
    for number in -1..100 {
        use ours::service::ratelimit::v3::rate_limit_response as a;
        use theirs::service::ratelimit::v3::rate_limit_response as b;
        let unit = a::rate_limit::Unit::try_from(number).map(|unit| unit.as_str_name());
        let same = b::rate_limit::Unit::try_from(number).map(|unit| unit.as_str_name());
        assert_eq!(unit, same);
        let code = a::Code::try_from(number).map(|code| code.as_str_name());
        assert_eq!(code, b::Code::try_from(number).map(|code| code.as_str_name()));
        if number == 7 {
            // A week, which Envoy has in responses only.
            continue;
        }
        let unit = ours::r#type::v3::RateLimitUnit::try_from(number);
        let same = theirs::r#type::v3::RateLimitUnit::try_from(number);
        assert_eq!(unit.map(|unit| unit.as_str_name()), same.map(|unit| unit.as_str_name()));
    }
}

/// The other set of types lacks this field and ignores it, so its bytes are compared with the declaration
/// of Envoy 1.40.
#[test]
fn unit_multiplier_is_field_3_of_an_override_and_4_of_a_limit() {
    use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as descriptor;
    use weir::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
    let sent = descriptor::RateLimitOverride {
        requests_per_unit: 300,
        unit: 2,
        unit_multiplier: Some(15),
    };
    let bytes = sent.encode_to_vec();
    assert_eq!(bytes, [8, 0xac, 2, 16, 2, 3 << 3 | 2, 2, 8, 15]);
    let read: envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride = same(&sent);
    assert_eq!((read.requests_per_unit, read.unit), (300, 2));

    let limit = response::RateLimit {
        name: String::new(),
        requests_per_unit: 300,
        unit: 2,
        unit_multiplier: Some(15),
    };
    assert_eq!(limit.encode_to_vec(), [8, 0xac, 2, 16, 2, 4 << 3 | 2, 2, 8, 15]);
}
