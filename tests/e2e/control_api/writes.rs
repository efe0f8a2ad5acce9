//! Writes: who made them, and what they do while Redis does not answer or without their client.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use serde_json::json;

use super::Bench;
use crate::support::control_api::{ControlApi, of_user};
use crate::support::redis::Server;
use crate::support::{http, wait_for};

#[test]
fn writes_are_logged_with_who_and_from_where() {
    let mut bench = Bench::start(None);
    let api = &bench.api;
    let block = |by: &str| of_user("ann", &json!({ "action": "block", "by": by }));
    api.put_good("b", &block("ann\nfake"));
    api.delete("/v1/controls/b");
    api.delete("/v1/state?domain=shop&descriptor=user=ann");
    api.put_good("b", &block(""));
    api.delete("/v1/controls/b?by=bob");
    api.delete("/v1/state?domain=shop&descriptor=user=ann&by=bob");
    let host = [("host", "localhost")];
    let level = http::ask(bench.weir.debug, "PUT", "/log_level?level=debug", &host, b"").unwrap();
    assert_eq!(level.status, 200);
    let records = &api.good("/v1/audit")["records"];
    let shown =
        |i: usize| ["who", "action", "subject"].map(|name| records[i][name].as_str().unwrap());
    assert_eq!(shown(0), ["loopback", "set log level", "info to debug"]);
    assert_eq!(shown(1), ["bob", "reset state", "shop user=ann"]);
    assert_eq!(shown(2), ["bob", "delete control", "b: block shop user=ann"]);
    assert_eq!(shown(3), ["loopback", "put control", "b: block shop user=ann"]);
    assert_eq!(shown(4), ["loopback", "reset state", "shop user=ann"]);
    assert_eq!(shown(5), ["loopback", "delete control", "b: block shop user=ann"]);
    assert_eq!(shown(6), ["ann\nfake", "put control", "b: block shop user=ann"]);
    assert!(records[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{records}");
    let line = bench.weir.until_said("operator change who=\"ann\\nfake\"").unwrap();
    assert!(line.contains("action=\"put control\""), "{line}");
}

#[test]
fn a_write_that_waits_for_redis_delays_no_other_request() {
    let bench = Bench::start(Some(Server::start()));
    let redis = bench.redis.as_ref().unwrap();
    redis.stop();
    wait_for("an answer while a write waits", || {
        let api = ControlApi::new(&bench.weir);
        let block = of_user("ann", &json!({ "action": "block" }));
        let write = thread::spawn(move || api.put_good("b", &block));
        wait_for("the write is made", || {
            (bench.api.get("/v1/controls/b").0 == 200 || write.is_finished()).then_some(())
        });
        assert_eq!(http::get(bench.weir.debug, "/livez").status, 200);
        let was_waiting = !write.is_finished();
        let written = write.join().unwrap();
        assert_eq!((&written["shared"], &written["kept"]), (&json!(false), &json!(false)));
        bench.api.delete("/v1/controls/b");
        was_waiting.then_some(())
    });
    assert!(bench.api.good("/v1/controls")["share_error"].is_string());
    redis.go_on();
}

#[test]
fn a_write_is_finished_and_recorded_if_its_client_disconnects() {
    let bench = Bench::start(Some(Server::start()));
    let redis = bench.redis.as_ref().unwrap();
    redis.stop();
    let body = of_user("ann", &json!({ "action": "block" })).to_string();
    let head =
        "PUT /v1/controls/b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut client = TcpStream::connect(bench.weir.debug).unwrap();
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    wait_for("the write is made", || (bench.api.get("/v1/controls/b").0 == 200).then_some(()));
    drop(client);
    wait_for("the write is recorded", || {
        let records = &bench.api.good("/v1/audit")["records"];
        (records[0]["action"] == "put control").then_some(())
    });
    redis.go_on();
}
