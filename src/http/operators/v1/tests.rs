//! The router: its guard, its errors, and the document about it.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::{Value, json};
use tower_service::Service;

use super::api::to_json;
use super::*;
use crate::health::Health;
use crate::http::Peer;
use crate::http::operators::access::AccessOptions;
use crate::http::operators::change_log::ChangeLog;
use crate::rule_sources::loader::Loader;
use weir_common::clock::SystemClock;
use weir_common::failure::OnStoreFailure;
use weir_controls::{ActiveRules, ControlClock, Controls};
use weir_limiter::{Limiter, LimiterOptions};
use weir_quotas::{Fallback, QuotaOptions, QuotaReport, Quotas, ReportedId, Usage};
use weir_rules::source::RuleFile;
use weir_store::memory::MemoryStore;
use weir_top::Top;

type TestStore = MemoryStore<Arc<SystemClock>>;

fn router() -> Router {
    routed(sources())
}

fn sources() -> Sources<TestStore> {
    let clock = Arc::new(SystemClock::new());
    let control_clock = ControlClock::new(clock.clone());
    let rules = Arc::new(ActiveRules::new(control_clock.clone(), u64::MAX));
    let controls = Controls::new(rules.clone(), weir_controls::ControlsOptions::default(), || ());
    let health = Arc::new(Health::new(Default::default()));
    let options = weir_rules::RuleOptions::default();
    let redact = vec!["token".to_owned()];
    let top = weir_top::TopOptions { entries: 100, redact, threads: 1, share: false };
    let top = Arc::new(Top::new(top, clock.clone()));
    let limiter = Limiter::new(MemoryStore::new(clock.clone(), 100), LimiterOptions::default());
    Sources {
        replica: String::new(),
        grpc_port: None,
        limiter: Arc::new(limiter.with_redaction(top.redaction().clone())),
        quotas: None,
        top,
        loader: Arc::new(Loader::new(rules.clone(), options, health.clone())),
        rules,
        controls: Arc::new(controls),
        health,
        identities: Arc::default(),
        watch: Arc::default(),
        log: Arc::new(ChangeLog::new(control_clock)),
        clock,
        limits_follow: "it",
        started: std::time::Instant::now(),
    }
}

fn routed(sources: Sources<TestStore>) -> Router {
    let sources = Arc::new(sources);
    let access = Arc::new(Access::load(AccessOptions::default()).unwrap());
    let api = v1(sources, access, Arc::default(), Duration::from_secs(60));
    Router::new().nest("/v1", api).fallback(async || "another page")
}

fn request(method: &str, uri: &str) -> Request {
    let peer = Peer::Tcp("127.0.0.1:1".parse().unwrap(), None);
    let request = Request::builder().method(method).uri(uri).header(HOST, "localhost");
    request.header(CONTENT_TYPE, JSON).extension(peer).body(Body::empty()).unwrap()
}

async fn answer(request: Request) -> (StatusCode, HeaderMap, String) {
    answer_of(router(), request).await
}

async fn answer_of(mut router: Router, request: Request) -> (StatusCode, HeaderMap, String) {
    let Ok(response) = router.call(request).await;
    let (head, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// Returns the status and the error, of which there is one.
async fn error(request: Request) -> (u16, String, String) {
    let (status, headers, body) = answer(request).await;
    assert_eq!(headers[CONTENT_TYPE], JSON, "{body}");
    assert_eq!(headers[CACHE_CONTROL], "no-store");
    let error: Value = serde_json::from_str(&body).unwrap();
    let mut members = error.as_object().unwrap().keys();
    assert!(members.all(|name| ["error", "help", "kind"].contains(&&**name)), "{body}");
    let text = |name: &str| error[name].as_str().unwrap().to_owned();
    (status.as_u16(), text("error"), text("help"))
}

/// The paths of the document with their methods.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let methods = |path: &Value| {
        let members = path.as_object().unwrap().keys();
        members.filter(|name| *name != "parameters").map(|name| name.to_uppercase()).collect()
    };
    let paths = document["paths"].as_object().unwrap().iter();
    paths.map(|(path, operations)| (path.clone(), methods(operations))).collect()
}

#[tokio::test]
async fn the_document_has_the_methods_of_each_path() {
    for (path, methods) in documented() {
        let allowed = error(request("TRACE", &path.replace("{id}", "x"))).await;
        assert_eq!(allowed.0, 405, "{path} is not served: {allowed:?}");
        let (_, headers, _) = answer(request("TRACE", &path.replace("{id}", "x"))).await;
        let allowed = headers[ALLOW].to_str().unwrap().split(',').filter(|name| *name != "HEAD");
        assert_eq!(allowed.map(str::to_owned).collect::<BTreeSet<_>>(), methods, "{path}");
    }
}

#[test]
fn the_document_has_every_path() {
    let source = include_str!("../v1.rs");
    let routes = source.split(".route(").skip(1).map(|rest| rest.split('"').nth(1).unwrap());
    let routes: BTreeSet<_> = routes.map(|path| format!("/v1{path}")).collect();
    assert_eq!(routes, documented().into_keys().collect());
}

#[tokio::test]
async fn every_path_is_guarded() {
    let paths = documented().into_keys().map(|path| path.replace("{id}", "x"));
    for path in paths.chain(["/v1".into(), "/v1/unknown".into()]) {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let mut foreign = request(method, &path);
            foreign.headers_mut().insert(HOST, HeaderValue::from_static("evil.example"));
            assert_eq!(error(foreign).await.0, 403, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_have_errors() {
    let (status, error_text, help) = error(request("GET", "/v1/unknown")).await;
    assert_eq!((status, error_text.as_str()), (404, "there is no /v1/unknown"));
    assert_eq!(help, "GET /v1/openapi.json lists all paths");
    assert_eq!(error(request("PUT", "/v1/controls")).await.0, 405);
    assert_eq!(error(request("GET", "/v1/controls/a/b")).await.0, 404);
    assert_eq!(error(request("GET", "/v1/controls/%ff")).await.0, 400);
    let (_, _, body) = answer(request("GET", "/elsewhere")).await;
    assert_eq!(body, "another page");
}

#[tokio::test]
async fn writes_need_a_content_type() {
    for (content_type, status) in [
        (Some("application/json"), 404),
        (Some("Application/JSON; charset=utf-8"), 404),
        (Some("text/plain"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some("application/jsonx"), 415),
        (None, 415),
    ] {
        let mut delete = request("DELETE", "/v1/controls/x");
        match content_type {
            Some(value) => delete.headers_mut().insert(CONTENT_TYPE, value.parse().unwrap()),
            None => delete.headers_mut().remove(CONTENT_TYPE),
        };
        assert_eq!(error(delete).await.0, status, "{content_type:?}");
    }
    let mut get = request("GET", "/v1/controls");
    get.headers_mut().remove(CONTENT_TYPE);
    assert_eq!(answer(get).await.0, 200);
}

#[tokio::test]
async fn parameters_are_checked() {
    for (uri, wanted) in [
        ("/v1/top?bye=hits", "did you mean `by`?"),
        ("/v1/top?by=deneid", "did you mean denied?"),
        ("/v1/top?by=everything", "write one of hits, denied, would_be_denied, near, banned"),
        ("/v1/top?window=1min", "write one of 1m, 10m, 1h, start"),
        ("/v1/top?window=yesterday", "write one of 1m, 10m, 1h, start"),
        ("/v1/top?scope=her", "did you mean here?"),
        ("/v1/top?limit=0", "write a number from 1 to 10000"),
        ("/v1/quotas?limit=0", "write a number from 1 to 10000"),
        ("/v1/quotas?descriptor=a", "write its entries: ?descriptor=key=value,key2=value2"),
        ("/v1/state?domain=d", "write its entries: ?descriptor=key=value,key2=value2"),
        ("/v1/state?descriptor=a=b", "name the domain: ?domain=shop, or -d shop in a command"),
        ("/v1/count?domain=d&descriptor=a=b", "write one or more durations: ?span=5m,1h"),
        ("/v1/count?domain=d&descriptor=a=b&span=5", "write one or more durations: ?span=5m,1h"),
        ("/v1/controls?x=1", "this path has no parameters"),
        ("/v1/audit?x=1", "this path has no parameters"),
        ("/v1/rules?x=1", "the parameters are format, domain"),
        ("/v1/rules?format=yml", "write json or yaml"),
        ("/v1/rules?domain=d", "add `format=yaml`"),
        ("/v1/top?rule=user", "name the domain of the rule: ?domain=shop&rule=user"),
        ("/v1/status?after=now", "write the member `newest` of an answer"),
        ("/v1/history?stpe=1s", "did you mean `step`?"),
        ("/v1/history?step=1m", "write 1s or 10s"),
        ("/v1/history?rule=user", "write both, ?domain=shop&rule=user, or neither for all rules"),
        ("/v1/openapi.json?x=1", "this path has no parameters"),
    ] {
        let (status, error, help) = error(request("GET", uri)).await;
        assert_eq!((status, help.as_str()), (400, wanted), "{uri}: {error}");
    }
    let spans = vec!["1s"; 17].join(",");
    let uri = format!("/v1/count?domain=d&descriptor=a=b&span={spans}");
    assert_eq!(error(request("GET", &uri)).await.2, "write up to 16");
}

/// Shows the thread that writes it.
struct Writer;

impl Serialize for Writer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", std::thread::current().id()))
    }
}

#[tokio::test]
async fn large_answers_are_written_on_another_thread() {
    let here = serde_json::to_string(&Writer).unwrap() + "\n";
    let written = String::from_utf8(to_json(|| Ok(Writer)).await.unwrap()).unwrap();
    assert!(written.starts_with('"') && written != here, "{written}");
    let error = to_json(|| Err::<Writer, _>(ApiError::bad_request("wrong", ""))).await;
    assert_eq!(error.unwrap_err().error, "wrong");
}

#[tokio::test]
async fn without_rules_the_error_says_so() {
    let (status, error_text, _) = error(request("GET", "/v1/state?domain=d&descriptor=a=b")).await;
    assert_eq!((status, error_text.as_str()), (503, "no rules are loaded"));
}

const QUOTA_RULES: &str = "domain: shop
descriptors:
  - key: user
    descriptors:
      - {key: token, rate_limit: {unit: year, requests_per_unit: 100}}
";

/// Returns sources with quotas that are on.
fn with_quotas() -> (Sources<TestStore>, Arc<Quotas<TestStore>>) {
    let mut sources = sources();
    let file = RuleFile { name: "rules.yaml".into(), text: QUOTA_RULES.into() };
    sources.loader.load(vec![file], Vec::new()).unwrap();
    let options = QuotaOptions {
        unsupported: Fallback::Deny,
        fallback: Fallback::Deny,
        replicas: 1,
        store_timeout: Duration::from_secs(10),
        on_failure: OnStoreFailure::Error,
        max_streams: 10,
        max_stream_buckets: 10,
        max_buckets: 10,
    };
    let (limiter, rules) = (sources.limiter.clone(), sources.rules.clone());
    let quotas = Arc::new(Quotas::new(limiter, rules, sources.clock.clone(), options));
    sources.quotas = Some(quotas.clone());
    (sources, quotas)
}

#[tokio::test]
async fn quotas_are_listed_and_part_of_the_state() {
    let (status, _, body) = answer(request("GET", "/v1/quotas")).await;
    assert!(status == 404 && body.contains("set rlqs.enabled = true, and restart"), "{body}");

    let (sources, quotas) = with_quotas();
    let router = routed(sources);
    let mut stream = quotas.open("10.0.0.1:5".to_owned()).unwrap();
    let reports = ["ann", "bob"].map(|user| {
        let entries = [("user", user.as_bytes()), ("token", b"s3cret".as_slice())];
        (ReportedId::new(entries.into_iter()), Usage::default())
    });
    let report =
        QuotaReport { domain: "shop", buckets: reports.into_iter(), waited: Duration::ZERO };
    stream.report(report, |_| true).unwrap();
    while stream.next().await.is_some() {}
    let read = async |uri: &str| {
        let (status, _, body) = answer_of(router.clone(), request("GET", uri)).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };

    let all = read("/v1/quotas").await;
    assert_eq!((&all["found"], &all["streams"]), (&2.into(), &1.into()), "{all}");
    assert!(!all.to_string().contains("s3cret") && all.to_string().contains("hash:"), "{all}");
    assert_eq!(read("/v1/quotas?domain=other").await["found"], 0);
    let one = read("/v1/quotas?domain=shop&descriptor=user=a*&limit=1").await;
    let bucket = &one["buckets"][0];
    assert_eq!((&one["found"], &bucket["entries"][1]["value"]), (&1.into(), &"ann".into()));
    assert!(bucket["order"] == "admit" && bucket["client"] == "10.0.0.1:5", "{bucket}");
    assert!(bucket["granted"].as_u64() > Some(0) && bucket["share"] == 100, "{bucket}");

    let granted = json!({ "hits": bucket["outstanding"], "streams": 1 });
    let key = "domain=shop&descriptor=user=ann,token=s3cret";
    let state = read(&format!("/v1/state?{key}")).await;
    assert_eq!(state["granted"], granted, "{state}");
    let explained = read(&format!("/v1/explain?{key}")).await;
    assert_eq!(explained["descriptors"][0]["state"]["granted"], granted, "{explained}");
    let other = read("/v1/state?domain=shop&descriptor=user=eve,token=s3cret").await;
    assert_eq!(other.get("granted"), None, "{other}");
}

#[tokio::test]
async fn a_status_that_is_known_is_not_sent_again() {
    let mut router = router();
    let mut ask = async |known: Option<&HeaderValue>| {
        let mut request = request("GET", "/v1/status?after=0");
        if let Some(known) = known {
            request.headers_mut().insert(IF_NONE_MATCH, known.clone());
        }
        let Ok(response) = router.call(request).await;
        response
    };
    let first = ask(None).await;
    assert_eq!(first.status(), 200);
    let tag = first.headers()[ETAG].clone();
    let body = to_bytes(first.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["newest"], &body["changes"]), (&0.into(), &Value::Array(Vec::new())));
    assert_eq!(body["status"]["serving"], false);
    let again = ask(Some(&tag)).await;
    assert_eq!((again.status(), &again.headers()[ETAG]), (StatusCode::NOT_MODIFIED, &tag));
    assert!(to_bytes(again.into_body(), 1).await.unwrap().is_empty());
    assert_eq!(ask(Some(&HeaderValue::from_static("W/\"x-0\""))).await.status(), 200);
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let mut put = request("PUT", "/v1/controls/x");
    *put.body_mut() = Body::from(vec![b' '; MAX_BODY + 1]);
    let (status, error_text, _) = error(put).await;
    assert_eq!(status, 413, "{error_text}");
}

const MAX_BODY: usize = 128 << 10;
