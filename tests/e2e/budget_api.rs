//! Budgets for programs: `weir.budget.v1` over gRPC, and `/v1/budget` over HTTP.

mod cancelled;
mod crashes;

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tonic::codec::CompressionEncoding;
use tonic::{Code as Status, Response};
use weir::proto::weir::budget::v1 as pb;
use weir::proto::weir::budget::v1::budget_service_client::BudgetServiceClient;
use weir::proto::weir::budget::v1::reserve_response::Code;
use weir::proto::weir::budget::v1::settle_response::Result as Settled;

use crate::connections::{connect, framed_request, send};
use crate::support::api::channel;
use crate::support::files::read;
use crate::support::markdown::{blocks_of, file_name};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{console, http, wait_until};

const RULES: &str = "\
domain: llm
descriptors:
  - key: user
    rate_limit: { name: tokens, unit: year, requests_per_unit: 10000 }
  - key: team
    rate_limit: { unit: year, requests_per_unit: 100000 }
    reserve: { id: call, settle: end, estimate: 1000, at_least: 500, at_most: 5000 }
  - key: one
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
";

/// A client of either protocol.
enum Client {
    Grpc(BudgetServiceClient<tonic::transport::Channel>),
    Http(SocketAddr),
}

/// The code, and of each descriptor whether it is over the limit, what is reserved and what remains.
type Reserved = (Code, Vec<(Code, u32, u32)>);

fn some(of: &[&str]) -> Vec<pb::Descriptor> {
    let entry = |key: &&str| pb::Entry { key: (*key).to_owned(), value: "x".into() };
    of.iter().map(|key| pb::Descriptor { entries: vec![entry(key)] }).collect()
}

fn reserve(of: &[&str], id: &str, amount: u64) -> pb::ReserveRequest {
    pb::ReserveRequest { domain: "llm".into(), descriptors: some(of), id: id.into(), amount }
}

fn settle(of: &[&str], id: &str, amount: u64) -> pb::SettleRequest {
    pb::SettleRequest { domain: "llm".into(), descriptors: some(of), id: id.into(), amount }
}

fn body(of: &[&str], id: &str, amount: Option<u64>) -> Value {
    let descriptors: Vec<Value> =
        of.iter().map(|key| json!({ "entries": [{ "key": key, "value": "x" }] })).collect();
    let mut body = json!({ "domain": "llm", "descriptors": descriptors, "id": id });
    if let Some(amount) = amount {
        body["amount"] = amount.into();
    }
    body
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap_or_else(|| panic!("{value}"))).unwrap()
}

impl Client {
    async fn both(weir: &Weir) -> [Client; 2] {
        [Client::Grpc(grpc(weir).await), Client::Http(weir.http)]
    }

    async fn reserve(&mut self, of: &[&str], id: &str, amount: u64) -> Result<Reserved, Status> {
        let code = |code: &str| Code::from_str_name(code).unwrap();
        match self {
            Client::Grpc(client) => {
                let response = client.reserve(reserve(of, id, amount)).await;
                let response = response.map_err(|error| error.code())?.into_inner();
                let statuses = response.statuses.iter();
                let statuses = statuses.map(|it| (it.code(), it.reserved, it.remaining)).collect();
                assert!(id.is_empty() || response.id == id);
                Ok((response.code(), statuses))
            }
            Client::Http(to) => {
                let (status, answer) = post(*to, "reserve", &body(of, id, Some(amount)));
                if let Some(code) = failed(status) {
                    return Err(code);
                }
                assert!(id.is_empty() || answer["id"] == id);
                let statuses = answer["statuses"].as_array().unwrap().iter().map(|it| {
                    let own = code(it["code"].as_str().unwrap());
                    (own, number(&it["reserved"]), number(&it["remaining"]))
                });
                let overall = code(answer["code"].as_str().unwrap());
                assert_eq!(status == 429, overall == Code::OverLimit);
                Ok((overall, statuses.collect()))
            }
        }
    }

    /// Settles, or cancels where there is no amount. Returns the result, what was charged and what remains.
    async fn end(
        &mut self,
        of: &[&str],
        id: &str,
        amount: Option<u64>,
    ) -> Result<(Settled, u32, u32), Status> {
        match self {
            Client::Grpc(client) => {
                let response = match amount {
                    Some(amount) => client.settle(settle(of, id, amount)).await,
                    None => {
                        let (domain, descriptors) = ("llm".to_owned(), some(of));
                        let id = id.to_owned();
                        client.cancel(pb::CancelRequest { domain, descriptors, id }).await
                    }
                };
                let it = response.map_err(|error| error.code())?.into_inner();
                Ok((it.result(), it.charged, it.remaining))
            }
            Client::Http(to) => {
                let step = if amount.is_some() { "settle" } else { "cancel" };
                let (status, answer) = post(*to, step, &body(of, id, amount));
                if let Some(code) = failed(status) {
                    return Err(code);
                }
                let result = Settled::from_str_name(answer["result"].as_str().unwrap()).unwrap();
                Ok((result, number(&answer["charged"]), number(&answer["remaining"])))
            }
        }
    }

    /// Returns what remains.
    async fn left(&mut self, of: &str) -> u32 {
        self.end(&[of], "nobody's", Some(0)).await.unwrap().2
    }
}

async fn grpc(weir: &Weir) -> BudgetServiceClient<tonic::transport::Channel> {
    BudgetServiceClient::new(channel(weir.grpc).await)
}

fn post(to: SocketAddr, step: &str, body: &Value) -> (u16, Value) {
    let answer = http::post(to, &format!("/v1/budget/{step}"), body.to_string());
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    (answer.status, answer.json())
}

/// Returns the code over gRPC of a failure over HTTP.
fn failed(status: u16) -> Option<Status> {
    match status {
        200 | 429 => None,
        400 => Some(Status::InvalidArgument),
        503 => Some(Status::Unavailable),
        other => panic!("{other}"),
    }
}

/// A service whose HTTP clients may settle, too.
fn service() -> Setup {
    serving(RULES).env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true")
}

/// A service that counts in the Redis at `port`, with generous time limits.
fn with_redis(port: u16) -> Setup {
    service().env("REDIS_URL", format!("127.0.0.1:{port}"))
}

#[tokio::test]
async fn a_reservation_is_settled_once_over_both_protocols_and_in_both_stores() {
    let redis = Server::start();
    for setup in [service(), with_redis(redis.port())] {
        let weir = setup.start();
        let mut left = 10_000;
        for mut client in Client::both(&weir).await {
            let reserved = Ok((Code::Ok, vec![(Code::Ok, 600, left - 600)]));
            assert_eq!(client.reserve(&["user"], "a", 600).await, reserved);
            // The same request again: the same answer, and charged once.
            assert_eq!(client.reserve(&["user"], "a", 600).await, reserved);
            assert_eq!(client.reserve(&["user"], "a", 601).await, Err(Status::InvalidArgument));
            left -= 123;
            let settled = Ok((Settled::Settled, 123, left));
            assert_eq!(client.end(&["user"], "a", Some(123)).await, settled);
            let unknown = Ok((Settled::Unknown, 0, left));
            assert_eq!(client.end(&["user"], "a", Some(123)).await, unknown);
            assert_eq!(client.end(&["user"], "a", None).await, unknown);
            client.reserve(&["user"], "b", 600).await.unwrap();
            assert_eq!(client.end(&["user"], "b", None).await, Ok((Settled::Settled, 0, left)));
            assert_eq!(client.end(&["user"], "b", None).await, unknown);
            // The rule's estimate, its least and its most.
            for (amount, reserved) in [(0, 1_000), (1, 500), (1 << 20, 5_000)] {
                let (_, statuses) = client.reserve(&["team"], "c", amount).await.unwrap();
                assert_eq!(statuses, [(Code::Ok, reserved, 100_000 - reserved)]);
                client.end(&["team"], "c", None).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_denied_request_reserves_nothing() {
    let redis = Server::start();
    for setup in [service(), with_redis(redis.port())] {
        let weir = setup.start();
        let [mut grpc, mut http] = Client::both(&weir).await;
        assert_eq!(grpc.reserve(&["one"], "first", 1).await.unwrap().0, Code::Ok);
        for client in [&mut grpc, &mut http] {
            for i in 0..100 {
                let denied = client.reserve(&["user", "one"], &i.to_string(), 50).await.unwrap();
                assert_eq!(denied.0, Code::OverLimit);
                assert_eq!((denied.1[0].1, denied.1[1]), (0, (Code::OverLimit, 0, 0)));
            }
            assert_eq!(client.left("user").await, 10_000);
            let ended = client.end(&["user", "one"], "7", Some(3)).await.unwrap();
            assert_eq!((ended.0, ended.1), (Settled::Unknown, 0));
        }
    }
}

#[tokio::test]
async fn callers_that_race_never_reserve_more_than_the_limit() {
    let redis = Server::start();
    for setup in [service(), with_redis(redis.port())] {
        let weir = setup.start();
        let client = grpc(&weir).await;
        let mut callers = tokio::task::JoinSet::new();
        for i in 0..200 {
            let mut client = client.clone();
            callers.spawn(async move {
                let id = format!("call {i}");
                let answer = client.reserve(reserve(&["team"], &id, 2_000)).await.unwrap();
                match answer.get_ref().code() {
                    Code::Ok => {
                        let used = settle(&["team"], &id, 1_999);
                        (answer.get_ref().statuses[0].reserved, Some(used))
                    }
                    _ => (0, None),
                }
            });
        }
        let (reserved, used): (Vec<u32>, Vec<_>) = callers.join_all().await.into_iter().unzip();
        assert_eq!(reserved.iter().sum::<u32>(), 100_000);
        let mut client = client;
        for used in used.into_iter().flatten() {
            let settled = client.settle(used).await.map(Response::into_inner).unwrap();
            assert_eq!((settled.result(), settled.charged), (Settled::Settled, 1_999));
        }
        assert_eq!(Client::Grpc(client).left("team").await, 50);
    }
}

#[tokio::test]
async fn invalid_requests_say_what_to_send_instead() {
    let mut weir = service().start();
    let mut client = grpc(&weir).await;
    let long = "x".repeat(1_025);
    let nameless = pb::ReserveRequest { domain: String::new(), ..reserve(&["user"], "a", 1) };
    for (request, text) in [
        (nameless, "domain must not be empty"),
        (reserve(&[], "a", 1), "descriptor list must not be empty"),
        (reserve(&["user", "free"], "a", 1), "descriptor 1: its rule is unlimited"),
        (reserve(&["other"], "a", 1), "descriptor 0: no rule applies"),
        (reserve(&["user"], &long, 1), "id is longer than 1024 bytes"),
        (reserve(&["user"], "a", 1 << 32), "amount is above 4294967295"),
        (reserve(&["user"; 65], "a", 1), "more than 64 entries"),
    ] {
        let status = client.reserve(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Status::InvalidArgument);
        assert!(status.message().contains(text), "{status}");
        let of: Vec<&str> = request.descriptors.iter().map(|it| &*it.entries[0].key).collect();
        let mut body = body(&of, &request.id, Some(request.amount));
        body["domain"] = request.domain.into();
        let (status, answer) = post(weir.http, "reserve", &body);
        assert_eq!((status, answer["error"]["reason"].as_str()), (400, Some("invalid_request")));
        assert!(answer["error"]["message"].as_str().unwrap().contains(text), "{answer}");
    }
    let status = client.settle(settle(&["user"], "", 1)).await.unwrap_err();
    assert!(status.code() == Status::InvalidArgument && status.message().contains("id is empty"));
    // Too large to be read.
    let huge = "x".repeat(1_000_000);
    let status = client.reserve(reserve(&["user"], &huge, 1)).await.unwrap_err();
    assert_eq!(status.code(), Status::OutOfRange);
    assert_eq!(post(weir.http, "reserve", &body(&["user"], &huge, Some(1))).0, 400);
    let (status, answer) = post(weir.http, "reserve", &body(&["user"], &huge.repeat(2), Some(1)));
    assert_eq!((status, answer["error"]["reason"].as_str()), (413, Some("too_large")));
    for bad in [
        json!([]),
        json!({ "domian": "llm" }),
        json!({ "domain": 1 }),
        json!({ "amount": -1 }),
        json!({ "amount": 1.5 }),
        json!({ "amount": 1e300 }),
        json!({ "descriptors": [{ "entries": [{ "name": "user" }] }] }),
    ] {
        let (status, answer) = post(weir.http, "reserve", &bad);
        let reason = answer["error"]["reason"].as_str();
        assert_eq!((status, reason), (400, Some("invalid_json")), "{bad}");
    }
    // A cancellation has no amount.
    assert_eq!(post(weir.http, "cancel", &body(&["user"], "a", Some(1))).0, 400);
    assert_eq!(http::get(weir.http, "/v1/budget/reserve").status, 405);
    assert_eq!(http::post(weir.http, "/v1/budget/other", "{}").status, 404);
    assert_eq!(Client::Http(weir.http).left("user").await, 10_000);
    assert!(weir.runs());
}

#[tokio::test]
async fn an_answer_has_the_names_of_the_protocol_and_all_its_numbers() {
    let weir = service().start();
    let ask = |step: &str, body: &Value| {
        let (status, mut answer) = post(weir.http, step, body);
        if let Some(first) = answer.pointer_mut("/statuses/0") {
            for time in ["resetAfter", "retryAfter"] {
                let is_time = |it: &Value| it.as_str().is_some_and(|text| text.ends_with('s'));
                if first.get(time).is_some_and(is_time) {
                    first[time] = "some".into();
                }
            }
        }
        (status, answer)
    };
    let first = json!({ "code": "OK", "id": "a", "statuses": [
        { "code": "OK", "reserved": 1, "remaining": 0, "resetAfter": "some", "limitName": "" },
    ] });
    assert_eq!(ask("reserve", &body(&["one"], "a", None)), (200, first));
    let denied = json!({ "code": "OVER_LIMIT", "id": "b", "statuses": [
        { "code": "OVER_LIMIT", "reserved": 0, "remaining": 0, "retryAfter": "some",
          "resetAfter": "some", "limitName": "" },
    ] });
    assert_eq!(ask("reserve", &body(&["one"], "b", None)), (429, denied));
    let unknown = json!({ "result": "UNKNOWN", "charged": 0, "remaining": 0 });
    assert_eq!(ask("settle", &body(&["one"], "b", Some(1))), (200, unknown));
    let settled = json!({ "result": "SETTLED", "charged": 0, "remaining": 1 });
    assert_eq!(ask("cancel", &body(&["one"], "a", None)), (200, settled));
    // An id is made where there is none. Numbers may be texts.
    let mut body = body(&["user"], "", None);
    body["amount"] = "600".into();
    let (status, made) = ask("reserve", &body);
    assert_eq!((status, made["statuses"][0]["reserved"].as_u64()), (200, Some(600)));
    body["id"] = made["id"].clone();
    assert_eq!(made["id"].as_str().map(str::len), Some(32));
    assert_eq!(ask("settle", &body).1["result"], "SETTLED");
}

#[tokio::test]
async fn http_clients_settle_with_the_token_of_operators() {
    let setup = serving(RULES).file("read", "reader\n").file("write", "writer\n");
    let (read, write) = (setup.path("read"), setup.path("write"));
    let setup =
        setup.env("WEIR__DEBUG__READ_TOKEN_FILE", read).env("WEIR__DEBUG__WRITE_TOKEN_FILE", write);
    let weir = setup.start();
    assert_eq!(post(weir.http, "reserve", &body(&["user"], "a", Some(600))).0, 200);
    let settle = |token: &str| {
        let header = ("authorization", format!("Bearer {token}"));
        let body = body(&["user"], "a", Some(1)).to_string();
        let headers = [(header.0, header.1.as_str())];
        http::ask(weir.http, "POST", "/v1/budget/settle", &headers, body.as_bytes()).unwrap()
    };
    for token in ["", "wrong", "reader"] {
        let refused = settle(token);
        assert_eq!(refused.status, 400, "{token}");
        assert!(refused.body.contains("http.allow_negative_hits"), "{refused:?}");
    }
    assert_eq!(settle("writer").json()["result"], "SETTLED");
    // gRPC has a setting of its own.
    let weir = serving(RULES).env("WEIR__GRPC__ALLOW_NEGATIVE_HITS", "false").start();
    let mut client = Client::Grpc(grpc(&weir).await);
    assert_eq!(client.reserve(&["user"], "a", 600).await.unwrap().0, Code::Ok);
    assert_eq!(client.end(&["user"], "a", Some(1)).await, Err(Status::InvalidArgument));
    assert_eq!(client.end(&["user"], "a", None).await, Err(Status::InvalidArgument));
}

#[test]
fn json_settles_only_where_it_may_refund() {
    for (allowed, status, left) in [("false", 400, 99_000), ("true", 200, 100_000)] {
        let weir = serving(RULES).env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", allowed).start();
        assert_eq!(post(weir.http, "reserve", &body(&["team"], "a", Some(1_000))).0, 200);
        let ask = |entries: &[(&str, &str)], hits: u32| {
            let entries: Vec<Value> =
                entries.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
            let descriptor = json!({ "entries": entries, "hitsAddend": hits });
            let body = json!({ "domain": "llm", "descriptors": [descriptor] }).to_string();
            http::ask(weir.http, "POST", "/json", &[], body.as_bytes()).unwrap()
        };
        let settled = ask(&[("team", "x"), ("call", "a"), ("end", "1")], 0);
        assert_eq!(settled.status, status, "{settled:?}");
        assert_eq!(settled.body.contains("http.allow_negative_hits"), status == 400, "{settled:?}");
        let look = ask(&[("team", "x")], 0).json();
        assert_eq!(look["statuses"][0]["limitRemaining"], left, "{look}");
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_unavailable() {
    let mut redis = Server::start();
    let port = redis.port();
    let weir = service().env("REDIS_URL", format!("127.0.0.1:{port}")).start();
    for mut client in Client::both(&weir).await {
        let reserved = async || client.reserve(&["user"], "a", 600).await.is_ok();
        wait_until("Redis answers", reserved).await;
        redis.kill();
        assert_eq!(client.reserve(&["user"], "b", 600).await, Err(Status::Unavailable));
        assert_eq!(client.end(&["user"], "a", Some(1)).await, Err(Status::Unavailable));
        assert_eq!(client.end(&["user"], "a", None).await, Err(Status::Unavailable));
        redis.restart();
    }
}

#[test]
fn the_examples_of_the_document_work_as_pasted() {
    let name = "docs/budgets.md";
    let document = read(name);
    let mut shown = blocks_of(&document, "yaml").into_iter();
    let rules = shown.find(|block| file_name(&block.text) == Some("llm.yaml")).unwrap();
    let setup = Setup::new().file("rules.yaml", &rules.text).arg("serve").arg("--rules");
    let path = setup.path("rules.yaml");
    let setup = setup.arg(path.to_str().unwrap());
    let weir = setup.env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true").start();
    let with_address = |text: &str| text.replace("localhost:8080", &weir.http.to_string());
    let examples = blocks_of(&document, "console");
    assert!(!examples.is_empty());
    for example in examples {
        let ran = console::run(&with_address(&example.text), &weir.path(""));
        ran.unwrap_or_else(|error| panic!("{name}:{}: {error}", example.line));
    }
    let program = read("examples/budget.py");
    let output = Command::new("python3").args(["-c", &with_address(&program)]).output().unwrap();
    let [printed, error] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    let (_, shown) = program.split_once("prints:\n\n").unwrap();
    let (shown, _) = shown.split_once("\"\"\"").unwrap();
    assert_eq!((printed.as_str(), error.as_str()), (shown, ""));
}

#[tokio::test]
async fn requests_may_be_compressed_with_gzip() {
    let weir = serving(RULES).start();
    let mut client = grpc(&weir).await.send_compressed(CompressionEncoding::Gzip);
    let reserved = client.reserve(reserve(&["user"], "a", 10)).await.unwrap().into_inner();
    assert_eq!(reserved.code(), Code::Ok);
    // The size of a request is bounded when it is inflated, too.
    let large = client.reserve(reserve(&["user"], &"x".repeat(1 << 20), 10)).await.unwrap_err();
    assert_eq!(large.code(), Status::ResourceExhausted, "{large}");
    let head =
        tonic::codegen::http::Request::post("http://weir/weir.budget.v1.BudgetService/Reserve")
            .header("content-type", "application/grpc")
            .header("grpc-encoding", "deflate");
    let mut client = connect(&weir).await;
    let answer = send(&mut client, head, &[framed_request("x")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("12"), "{}", answer.message);
    assert_eq!(answer.accepts.as_deref(), Some("gzip,identity"));
}
