//! Invalid, huge and hostile requests: each gets a clear error, and the service keeps working.

use std::io::Write;
use std::net::TcpStream;

use prost::Message;
use tonic::Code as Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::support::api::{ask, channel, code, descriptor, request};
use crate::support::http;
use crate::support::weir::{Weir, serving};

fn start() -> Weir {
    serving(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: { unit: year, requests_per_unit: 2 }\n",
    )
    .start()
}

/// Sends an invalid request. Returns the code and the message of the error.
async fn error_of(weir: &Weir, request: RateLimitRequest) -> (Status, String) {
    let status = ask(weir.grpc, request).await.expect_err("an error");
    (status.code(), status.message().to_owned())
}

/// Checks that the service still works.
async fn still_works(weir: &mut Weir) {
    assert_eq!(code(weir.grpc, request("shop", &[("user", "alive")])).await, Code::Ok);
    assert!(weir.runs());
}

#[tokio::test]
async fn errors_of_the_reference_keep_their_code_and_text() {
    let mut weir = start();
    let (code, text) = error_of(&weir, request("", &[("user", "ann")])).await;
    assert_eq!((code, text.as_str()), (Status::Unknown, "rate limit domain must not be empty"));
    let none = RateLimitRequest { domain: "shop".into(), ..Default::default() };
    let (code, text) = error_of(&weir, none).await;
    let wanted = "rate limit descriptor list must not be empty";
    assert_eq!((code, text.as_str()), (Status::Unknown, wanted));
    assert_eq!(weir.metric(r#"weir_requests_total{outcome="invalid"}"#), 2);
    still_works(&mut weir).await;
}

#[tokio::test]
async fn requests_that_match_no_rule_are_allowed() {
    let mut weir = start();
    for odd in [
        request("nobody", &[("user", "ann")]),
        request("shop", &[]),
        request("shop", &[("", "")]),
        request("shop", &[("", "ann"), ("user", "")]),
        request("shop", &[("user", "ann"), ("user", "ann")]),
    ] {
        let answer = ask(weir.grpc, odd).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(answer.statuses.len(), 1);
        assert_eq!(answer.statuses[0].current_limit, None);
    }
    assert_eq!(weir.metric(r#"weir_domain_not_found_total{domain="nobody"}"#), 1);
    still_works(&mut weir).await;
}

fn with_descriptors(count: usize) -> RateLimitRequest {
    let descriptors = (0..count).map(|i| descriptor(&[("user", &i.to_string())]));
    RateLimitRequest { domain: "shop".into(), descriptors: descriptors.collect(), hits_addend: 0 }
}

#[tokio::test]
async fn descriptors_are_accepted_up_to_the_limit() {
    let mut weir = start();
    assert_eq!(ask(weir.grpc, with_descriptors(256)).await.unwrap().statuses.len(), 256);
    for count in [257, 10_000] {
        let (code, text) = error_of(&weir, with_descriptors(count)).await;
        assert_eq!(code, Status::InvalidArgument);
        assert!(text.contains(&count.to_string()), "{text}");
        assert!(text.contains("grpc.max_descriptors"), "{text}");
    }
    still_works(&mut weir).await;
}

#[tokio::test]
async fn a_descriptor_can_have_very_many_entries() {
    let mut weir = start();
    let mut many = request("shop", &[("user", "ann"); 50_000]);
    assert_eq!(code(weir.grpc, many.clone()).await, Code::Ok);
    // With an override, the entries are the key.
    many.descriptors[0].limit =
        Some(RateLimitOverride { requests_per_unit: 1, unit: 6, unit_multiplier: None });
    assert_eq!(code(weir.grpc, many.clone()).await, Code::Ok);
    assert_eq!(code(weir.grpc, many).await, Code::OverLimit);
    still_works(&mut weir).await;
}

#[tokio::test]
async fn messages_are_accepted_up_to_the_limit() {
    let mut weir = start();
    let long = |bytes: usize| request("shop", &[("user", &"x".repeat(bytes))]);
    assert_eq!(code(weir.grpc, long((1 << 20) - 100)).await, Code::Ok);
    for bytes in [1 << 20, 8 << 20] {
        let (code, text) = error_of(&weir, long(bytes)).await;
        assert_eq!(code, Status::ResourceExhausted, "{text}");
        assert!(text.contains("1048576"), "names the limit: {text}");
    }
    let body = format!(r#"{{"domain":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(http::post(weir.http, "/json", body).status, 413);
    still_works(&mut weir).await;
}

/// A request with a domain of arbitrary bytes.
#[derive(Clone, PartialEq, Message)]
struct RawRequest {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RateLimitDescriptor>,
}

#[tokio::test]
async fn text_that_is_not_utf8_is_invalid() {
    let mut weir = start();
    let codec = tonic_prost::ProstCodec::<RawRequest, RateLimitResponse>::default();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let path = PathAndQuery::from_static(path);
    let mut client = Grpc::new(channel(weir.grpc).await);
    client.ready().await.unwrap();
    let raw = RawRequest {
        domain: b"shop\xff".to_vec(),
        descriptors: vec![descriptor(&[("user", "ann")])],
    };
    let refused = client.unary(tonic::Request::new(raw), path, codec).await.unwrap_err();
    assert_eq!(refused.code(), Status::Internal, "{refused:?}");
    assert!(refused.message().contains("UTF-8"), "{refused:?}");
    assert_eq!(http::post(weir.http, "/json", b"{\"domain\":\"\xff\"}").status, 400);
    still_works(&mut weir).await;
}

#[tokio::test]
async fn an_invalid_override_is_an_error_and_not_a_crash() {
    let mut weir = start();
    for (unit, multiplier, why) in [
        (0, None, "unit"),
        (99, None, "unit"),
        (-1, None, "unit"),
        (1, Some(0), "unit_multiplier"),
        (6, Some(101), "100 years"),
        (6, Some(u32::MAX), "100 years"),
    ] {
        let mut request = request("shop", &[("user", "ann")]);
        request.descriptors[0].limit =
            Some(RateLimitOverride { requests_per_unit: 1, unit, unit_multiplier: multiplier });
        let (code, text) = error_of(&weir, request.clone()).await;
        assert_eq!(code, Status::InvalidArgument, "{text}");
        assert!(text.starts_with("descriptor 0: ") && text.contains(why), "{unit}: {text}");
        // It is an error even if the domain has no rules.
        request.domain = "nobody".into();
        assert_eq!(error_of(&weir, request).await.0, Status::InvalidArgument);
    }
    let zero = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}],"limit":{}}]}"#;
    assert_eq!(http::post(weir.http, "/json", zero).status, 400);
    still_works(&mut weir).await;
}

#[tokio::test]
async fn slow_and_silent_clients_do_not_affect_others() {
    let mut weir = start();
    let mut open = Vec::new();
    for to in [weir.grpc, weir.http, weir.debug] {
        for bytes in [&b""[..], b"POST /json HTTP/1.1\r\ncontent-length: 5\r\n\r\n{", b"\0\xff\0"] {
            let mut client = TcpStream::connect(to).unwrap();
            client.write_all(bytes).unwrap();
            open.push(client);
        }
    }
    still_works(&mut weir).await;
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
    assert_eq!(http::get(weir.debug, "/rlconfig").status, 200);
}
