//! Values of descriptors that are not UTF-8, as Envoy copies them from headers; and messages that cannot be understood.

use std::net::SocketAddr;
use std::process::{Command, Output};

use prost::Message;
use serde_json::{Value, json};
use tonic::Code as Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::weir::budget::v1 as pb;

use crate::resp::line;
use crate::support::api::channel;
use crate::support::control_api::ControlApi;
use crate::support::redis::{Client, Reply, Server};
use crate::support::weir::{Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = r#"
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: user
    value: "ÿ"
    rate_limit: { unlimited: true }
  - key: path
    value: "/a*"
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: all
    rate_limit: { unit: year, requests_per_unit: 3 }
"#;

/// A `RateLimitRequest` whose texts are bytes.
#[derive(Clone, PartialEq, Message)]
struct BytesRequest {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<BytesDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct BytesDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<BytesEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct BytesEntry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// A request with a descriptor of one entry each.
fn request(entries: &[(&[u8], &[u8])]) -> BytesRequest {
    let entry = |(key, value): &(&[u8], &[u8])| BytesDescriptor {
        entries: vec![BytesEntry { key: key.to_vec(), value: value.to_vec() }],
    };
    BytesRequest { domain: b"shop".to_vec(), descriptors: entries.iter().map(entry).collect() }
}

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Calls a method with a message of any type.
async fn call<M: Message + 'static, R: Message + Default + 'static>(
    to: SocketAddr,
    path: &'static str,
    message: M,
) -> Result<R, tonic::Status> {
    let codec = tonic_prost::ProstCodec::<M, R>::default();
    let mut client = Grpc::new(channel(to).await);
    client.ready().await.unwrap();
    let request = tonic::Request::new(message);
    let answer = client.unary(request, PathAndQuery::from_static(path), codec).await;
    answer.map(tonic::Response::into_inner)
}

/// Returns the overall code and those of the descriptors; false is over the limit.
async fn ask(to: SocketAddr, entries: &[(&[u8], &[u8])]) -> (bool, Vec<bool>) {
    let answer: RateLimitResponse = call(to, SHOULD_RATE_LIMIT, request(entries)).await.unwrap();
    let statuses = answer.statuses.iter().map(|status| status.code == i32::from(Code::Ok));
    (answer.overall_code() == Code::Ok, statuses.collect())
}

/// Runs an operator's command. Returns what it prints.
fn run(weir: &Weir, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).env_clear().env("WEIR_SERVER", format!("http://{}", weir.debug));
    let Output { status, stdout, stderr } = command.output().expect("weir runs");
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{args:?}: {out}{err}");
    out
}

#[tokio::test]
async fn such_a_value_is_counted_and_so_are_the_other_limits() {
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        let setup = serving(RULES).env("RESPONSE_DYNAMIC_METADATA", "true");
        let weir = match redis {
            Some(redis) => setup.env("REDIS_URL", redis.addr()).start(),
            None => setup.start(),
        };
        let to = weir.grpc;
        assert_eq!(ask(to, &[(b"user", b"a\xff"), (b"all", b"x")]).await, (true, vec![true; 2]));
        assert_eq!(
            ask(to, &[(b"user", b"a\xff"), (b"all", b"x")]).await,
            (false, vec![false, true])
        );
        // Others are not the same key.
        let others = [
            &b"a\xfe"[..],
            b"a\xff\xff",
            b"\xffa",
            b"a",
            br"a\xff",
            "a\u{10ffff}".as_bytes(),
            "a\u{10ffff}\u{10ff7f}".as_bytes(),
            "a\u{fffd}".as_bytes(),
            b"a%FF",
            b"\xff",
            "\u{ff}".as_bytes(),
        ];
        for other in others {
            assert_eq!(ask(to, &[(b"user", other)]).await, (true, vec![true]), "{other:?}");
        }
        // The limit of all has one hit left. That of the pattern counts all that it matches.
        assert_eq!(ask(to, &[(b"path", b"/a\xff"), (b"all", b"x")]).await, (true, vec![true; 2]));
        assert_eq!(
            ask(to, &[(b"path", b"/a\xfe"), (b"all", b"x")]).await,
            (false, vec![true, false])
        );
        assert_eq!(ask(to, &[(b"path", b"/a")]).await, (false, vec![false]));
        assert_eq!(ask(to, &[(b"path", b"/\xffa")]).await, (true, vec![true]));

        let answer: RateLimitResponse =
            call(to, SHOULD_RATE_LIMIT, request(&[(b"other", b"\xc3")])).await.unwrap();
        assert!(
            format!("{:?}", answer.dynamic_metadata).contains(r#""other=\\xc3""#),
            "{answer:?}"
        );
        if let Some(redis) = redis {
            let keys = line(&redis.command(&["KEYS", "*a%FF}*"]));
            assert!(keys.contains("weir:{shop|user=a%FF}f31536000"), "{keys}");
        }
        assert_eq!(weir.metric(r#"weir_requests_total{outcome="invalid"}"#), 0);
    }
}

#[tokio::test]
async fn operators_name_such_a_value_as_it_is_shown() {
    let weir = serving(RULES).start();
    assert!(ask(weir.grpc, &[(b"user", b"a\xff")]).await.0);
    assert!(!ask(weir.grpc, &[(b"user", b"a\xff")]).await.0);
    assert!(ask(weir.grpc, &[(b"user", br"a\xff")]).await.0);

    let top = run(&weir, &["top"]);
    assert!(top.contains(r"user=a\xff") && top.contains(r"user=a\\xff"), "{top}");
    let state = |value: &str| run(&weir, &["state", "-d", "shop", &format!("user={value}")]);
    assert!(state(r"a\xff").contains(r"a%FF"), "{}", state(r"a\xff"));
    let why = run(&weir, &["why", "-d", "shop", r"user=a\xff"]);
    assert!(why.contains(r"user=a\xff"), "{why}");

    let api = ControlApi::new(&weir);
    let rows = api.good("/v1/top?by=hits")["rows"].clone();
    let entries: Vec<&Value> =
        rows.as_array().unwrap().iter().map(|row| &row["entries"][0]).collect();
    let bytes = json!({ "key": "user", "value": r"a\xff", "escaped": true });
    let text = json!({ "key": "user", "value": r"a\xff" });
    assert!(entries.contains(&&bytes) && entries.contains(&&text), "{rows}");

    run(&weir, &["reset", "-d", "shop", r"user=a\xff"]);
    assert!(ask(weir.grpc, &[(b"user", b"a\xff")]).await.0);

    // A control of a text never matches bytes; one of bytes matches them only.
    run(&weir, &["block", "-d", "shop", r"user=b\\xff"]);
    assert!(ask(weir.grpc, &[(b"user", b"b\xff")]).await.0);
    run(&weir, &["block", "-d", "shop", r"user=c\xff"]);
    assert!(!ask(weir.grpc, &[(b"user", b"c\xff")]).await.0);
    assert!(ask(weir.grpc, &[(b"user", br"c\xff")]).await.0);
    let controls = run(&weir, &["controls"]);
    assert!(controls.contains(r"user=c\xff") && controls.contains(r"user=b\\xff"), "{controls}");
    // What the API lists can be sent back.
    let row = json!({ "domain": "shop", "entries": [{ "key": "user", "value": r"d\xff*", "escaped": true }], "action": "block" });
    api.put_good("d", &row);
    assert!(!ask(weir.grpc, &[(b"user", b"d\xffe")]).await.0);
    assert!(ask(weir.grpc, &[(b"user", br"d\xffe")]).await.0);
    assert!(run(&weir, &["unblock", "-d", "shop", r"user=c\xff"]).contains("deleted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_such_a_value_are_kept_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let setup = || {
        serving(RULES)
            .env("WEIR__STORE__KIND", "disk")
            .env("WEIR__STORE__DISK__PATH", directory.path().join("counters"))
            .env("WEIR__DRAIN__DELAY", "0")
    };
    let mut weir = setup().start();
    assert!(ask(weir.grpc, &[(b"user", b"a\xff")]).await.0);
    weir.signal("TERM");
    weir.wait_until_ended();
    let weir = setup().start();
    assert!(!ask(weir.grpc, &[(b"user", b"a\xff")]).await.0);
    assert!(ask(weir.grpc, &[(b"user", b"a\xfe")]).await.0);
}

/// A `ReserveRequest` whose values are bytes.
#[derive(Clone, PartialEq, Message)]
struct BytesReserve {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<BytesDescriptor>,
    #[prost(bytes = "vec", tag = "3")]
    id: Vec<u8>,
    #[prost(uint64, tag = "4")]
    amount: u64,
}

const RESERVE: &str = "/weir.budget.v1.BudgetService/Reserve";

#[tokio::test]
async fn budgets_and_the_redis_protocol_count_such_values() {
    let mut weir = serving(RULES).env("WEIR__RESP__ADDRESS", "127.0.0.1:0").start();
    let reserve = |value: &[u8], id: &str| BytesReserve {
        domain: "shop".into(),
        descriptors: request(&[(b"all", value)]).descriptors,
        id: id.into(),
        amount: 3,
    };
    // A reservation takes half of a limit at most.
    for (value, id) in [(&b"\xff"[..], "1"), (b"\xfe", "2"), (br"\xff", "3")] {
        for remaining in [2, 1, 0] {
            let id = format!("{id}-{remaining}");
            let answer: pb::ReserveResponse =
                call(weir.grpc, RESERVE, reserve(value, &id)).await.unwrap();
            assert_eq!(
                (answer.code(), answer.statuses[0].remaining),
                (pb::reserve_response::Code::Ok, remaining)
            );
        }
    }
    let answer: pb::ReserveResponse =
        call(weir.grpc, RESERVE, reserve(b"\xff", "4")).await.unwrap();
    assert_eq!(answer.code(), pb::reserve_response::Code::OverLimit);
    // It is the same key.
    assert!(!ask(weir.grpc, &[(b"all", b"\xff")]).await.0);

    let rest = weir.until_said("Listening for RESP on '").unwrap();
    let address: SocketAddr = rest.split('\'').next().unwrap().parse().unwrap();
    let mut client = Client::connect(address.port()).unwrap();
    let mut first = |words: &[&[u8]]| match client.send(words).unwrap() {
        Reply::List(list) => line(&list[0]),
        other => line(&other),
    };
    let check = |value: &'static [u8]| [&b"WEIR.CHECK"[..], b"shop", b"1", b"user", value];
    let values = [&b"\xff"[..], b"\xff", b"\xfe", br"\xff"];
    assert_eq!(values.map(|value| first(&check(value))), ["1", "2", "1", "1"]);
    let throttle = |key: &'static [u8]| [&b"CL.THROTTLE"[..], key, b"0", b"1", b"3600"];
    assert_eq!(values.map(|key| first(&throttle(key))), ["0", "1", "0", "0"]);
    let reduce = |key: &'static [u8]| [&b"RL.REDUCE"[..], key, b"1", b"3600"];
    assert_eq!(values.map(|key| first(&reduce(key))), ["1", "0", "1", "1"]);
    assert!(!ask(weir.grpc, &[(b"user", b"\xff")]).await.0);
}

#[tokio::test]
async fn messages_that_cannot_be_understood_are_counted_and_logged_once_per_client() {
    let mut weir = serving(RULES).env("WEIR__RESP__ADDRESS", "127.0.0.1:0").start();
    let rest = weir.until_said("Listening for RESP on '").unwrap();
    let address: SocketAddr = rest.split('\'').next().unwrap().parse().unwrap();
    let invalid = || weir.metric(r#"weir_requests_total{outcome="invalid"}"#);

    // A domain, a key, and an id that are not UTF-8.
    let domain = BytesRequest { domain: b"shop\xff".to_vec(), ..request(&[(b"user", b"a")]) };
    let messages = [domain, request(&[(b"user\xff", b"a")])];
    for (i, message) in messages.into_iter().enumerate() {
        let answer: Result<RateLimitResponse, _> =
            call(weir.grpc, SHOULD_RATE_LIMIT, message).await;
        assert_eq!(answer.unwrap_err().code(), Status::Internal);
        assert_eq!(invalid(), i as u64 + 1);
    }
    let id = BytesReserve { id: b"\xff".to_vec(), ..BytesReserve::default() };
    let answer: Result<pb::ReserveResponse, _> = call(weir.grpc, RESERVE, id).await;
    assert_eq!(answer.unwrap_err().code(), Status::Internal);
    assert_eq!(invalid(), 3);
    for (path, body) in
        [("/json", &b"{"[..]), ("/json", b"{\"domain\":\"\xff\"}"), ("/v1/budget/reserve", b"[]")]
    {
        assert_eq!(http::post(weir.http, path, body).status, 400);
    }
    assert_eq!(invalid(), 6);
    let mut client = Client::connect(address.port()).unwrap();
    for words in [&[&b"WEIR.CHECK"[..], b"\xff", b"1", b"user", b"a"][..], &[b"CL.THROTTLE", b"a"]]
    {
        let reply = client.send(words).unwrap();
        assert!(format!("{reply:?}").contains("ERR"), "{reply:?}");
    }
    wait_for("all are counted", || (invalid() == 8).then_some(()));
    let said = weir.said();
    assert_eq!(said.matches("cannot be understood").count(), 1, "{said}");
    let line = said.lines().find(|line| line.contains("cannot be understood")).unwrap();
    assert!(line.contains("127.0.0.1") && line.contains("UTF-8"), "{line}");
}
