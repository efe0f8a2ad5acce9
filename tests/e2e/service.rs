//! The endpoints: gRPC, health, reflection, JSON, metrics and the debug pages.

use tonic::Code as Status;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::{ask, channel, code, request};
use crate::support::http;
use crate::support::weir::serving;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: year, requests_per_unit: 2 }
";

#[tokio::test]
async fn requests_pass_until_the_limit_and_then_are_over_it() {
    let weir = serving(RULES).start();
    let ann = || request("shop", &[("user", "ann")]);
    for left in [1, 0] {
        let answer = ask(weir.grpc, ann()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(answer.statuses[0].limit_remaining, left);
        let limit = answer.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!((limit.name.as_str(), limit.requests_per_unit), ("per-user", 2));
        assert!(answer.response_headers_to_add.is_empty(), "headers are off");
        assert_eq!(answer.dynamic_metadata, None);
    }
    let answer = ask(weir.grpc, ann()).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
    assert!(answer.statuses[0].duration_until_reset.unwrap().seconds > 0);

    // Other values have their own counters, and requests without a matching rule pass.
    assert_eq!(code(weir.grpc, request("shop", &[("user", "bob")])).await, Code::Ok);
    let unmatched = ask(weir.grpc, request("shop", &[("cart", "7")])).await.unwrap();
    assert_eq!(unmatched.overall_code(), Code::Ok);
    assert_eq!(unmatched.statuses[0].current_limit, None);
}

#[tokio::test]
async fn many_connections_share_one_limit() {
    let weir = serving(&RULES.replace("requests_per_unit: 2", "requests_per_unit: 100")).start();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let to = weir.grpc;
        clients.spawn(async move {
            let mut passed = 0;
            let mut client = RateLimitServiceClient::new(channel(to).await);
            for _ in 0..25 {
                let answer = client.should_rate_limit(request("shop", &[("user", "ann")])).await;
                passed += usize::from(answer.unwrap().get_ref().overall_code() == Code::Ok);
            }
            passed
        });
    }
    assert_eq!(clients.join_all().await.iter().sum::<usize>(), 100);
}

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_is_reported_per_service() {
    let weir = serving(RULES).start();
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let serving = HealthCheckResponse { status: ServingStatus::Serving.into() };
    for known in ["ratelimit", ""] {
        assert_eq!(health.check(health_of(known)).await.unwrap().get_ref(), &serving);
        let mut watched = health.watch(health_of(known)).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().as_ref(), Some(&serving));
    }
    assert_eq!(health.check(health_of("other")).await.unwrap_err().code(), Status::NotFound);
    let mut watched = health.watch(health_of("other")).await.unwrap().into_inner();
    let unknown = watched.message().await.unwrap().unwrap();
    assert_eq!(unknown.status(), ServingStatus::ServiceUnknown);
}

/// Lists the services by one version of the reflection API, and looks one up.
macro_rules! reflect {
    ($version:ident, $channel:expr) => {{
        use pb::server_reflection_request::MessageRequest;
        use pb::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::$version as pb;
        let ask =
            |what| pb::ServerReflectionRequest { host: String::new(), message_request: Some(what) };
        let asked = [
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(API.to_owned())),
        ];
        let mut client =
            pb::server_reflection_client::ServerReflectionClient::new($channel.clone());
        let answers = client.server_reflection_info(tokio_stream::iter(asked)).await;
        let mut answers = answers.unwrap().into_inner();
        let Some(MessageResponse::ListServicesResponse(services)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("no list of services");
        };
        let Some(MessageResponse::FileDescriptorResponse(files)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("no file with {API}");
        };
        assert!(!files.file_descriptor_proto.is_empty());
        services.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
    }};
}

const API: &str = "envoy.service.ratelimit.v3.RateLimitService";

#[tokio::test]
async fn both_versions_of_reflection_list_the_services() {
    let weir = serving(RULES).start();
    let channel = channel(weir.grpc).await;
    for services in [reflect!(v1, channel), reflect!(v1alpha, channel)] {
        for wanted in [API, "weir.budget.v1.BudgetService", "grpc.health.v1.Health"] {
            assert!(services.iter().any(|name| name == wanted), "{wanted} in {services:?}");
        }
    }
}

#[test]
fn json_answers_200_then_429_and_400_to_invalid_requests() {
    let weir = serving(RULES).start();
    let json = |body: &str| http::post(weir.http, "/json", body);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let first = json(body);
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    assert_eq!(first.json()["overallCode"], "OK");
    assert_eq!(first.json()["statuses"][0]["currentLimit"]["unit"], "YEAR");
    assert_eq!(first.json()["statuses"][0]["limitRemaining"], 1);
    assert_eq!(json(body).status, 200);
    let over = json(body);
    assert_eq!((over.status, over.json()["overallCode"].as_str()), (429, Some("OVER_LIMIT")));
    let reset = &over.json()["statuses"][0]["durationUntilReset"];
    assert!(reset.as_str().is_some_and(|text| text.ends_with('s')), "{reset}");

    for addend in ["hitsAddend", "hits_addend"] {
        let user = format!(r#"[{{"entries":[{{"key":"user","value":"{addend}"}}]}}]"#);
        let body = format!(r#"{{"domain":"shop","{addend}":2,"descriptors":{user}}}"#);
        let answer = json(&body);
        assert_eq!(answer.status, 200);
        // Nothing remains, and 0 is omitted.
        assert_eq!(answer.json()["statuses"][0].get("limitRemaining"), None);
    }
    for bad in ["", "{", "[]", r#"{"domian":"shop"}"#, r#"{"domain":"shop"}"#, r#"{"domain":1}"#] {
        let answer = json(bad);
        assert_eq!((answer.status, answer.body.as_str()), (400, "Bad Request\n"), "{bad}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    // Any method, as with the reference.
    let put = http::ask(weir.http, "PUT", "/json", &[], body.as_bytes()).unwrap();
    assert_eq!(put.status, 429);
}

#[tokio::test]
async fn metrics_rules_and_health_are_served_over_http() {
    let weir = serving(RULES).start();
    for _ in 0..3 {
        code(weir.grpc, request("shop", &[("user", "ann")])).await;
    }
    let labels = r#"{domain="shop",rule="user"}"#;
    assert_eq!(weir.metric(&format!("weir_rule_hits_total{labels}")), 3);
    assert_eq!(weir.metric(&format!("weir_rule_over_limit_total{labels}")), 1);
    assert_eq!(weir.metric(r#"weir_requests_total{outcome="ok"}"#), 2);
    assert_eq!(weir.metric(r#"weir_requests_total{outcome="over_limit"}"#), 1);
    let metrics = http::get(weir.debug, "/metrics");
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(metrics.header("content-type"), Some(content_type));
    let accept = ("accept", "application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.1");
    let metrics = http::get_with(weir.debug, "/metrics", &[accept]);
    assert!(metrics.body.ends_with("# EOF\n"), "{metrics:?}");

    let rules = http::get(weir.debug, "/rlconfig");
    assert_eq!(rules.status, 200);
    assert!(rules.body.contains("shop.user: unit=YEAR requests_per_unit=2"), "{}", rules.body);
    let index = http::get(weir.debug, "/whatever");
    assert!(index.status == 200 && index.body.contains("/rlconfig: "), "{index:?}");

    let health = http::get(weir.http, "/healthcheck");
    assert_eq!((health.status, health.body.as_str()), (200, "OK"));
    assert_eq!(http::get(weir.http, "/whatever").status, 404);
    assert_eq!(http::get(weir.http, "/rlconfig").status, 404);
}

#[test]
fn prometheus_scrapes_a_listener_of_its_own() {
    let setup = serving(RULES).env("USE_PROMETHEUS", "true").env("PROMETHEUS_PATH", "/scrape");
    let mut weir = setup.env("PROMETHEUS_ADDR", "127.0.0.1:0").start();
    let rest = weir.until_said("Listening for metrics on '").unwrap();
    let address = rest.split('\'').next().unwrap().parse().unwrap();
    let page = http::get(address, "/scrape");
    let content_type = page.header("content-type");
    assert_eq!(content_type, Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "# TYPE weir_rule_hits_total counter",
        r#"weir_rule_hits_total{domain="shop",rule="user"} 0"#,
        r#"weir_connections{listener="metrics"} 1"#,
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(page.body.lines().any(|it| it == line), "{line}: {page:?}");
    }
    for path in ["/metrics", "/", "/json", "/healthcheck", "/{scrape}"] {
        assert_eq!(http::get(address, path).status, 404, "{path}");
    }
}

#[test]
fn the_start_logs_what_is_loaded_and_a_command_to_try() {
    let mut weir = serving(RULES).start();
    let tried = weir.until_said("example request command=curl -i localhost:").unwrap();
    let said = weir.said();
    for wanted in ["rules are loaded", "domains=1", "rules=1"] {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
    let tried = tried.split_once("-d '").unwrap().1;
    let answer = http::post(weir.http, "/json", tried.trim_end_matches('\''));
    assert_eq!(answer.json()["statuses"][0]["limitRemaining"], 1);
}
