//! Messages designed to take memory and time, and sets that are rejected repeatedly.

use prost_types::Any;

use super::{any, asking, bad, rules, with_shop};
use crate::support::http;
use crate::support::management::{Management, TYPE_URL};
use crate::support::messages::messages;

/// The size of a message, in bytes.
const SIZE: usize = 500_000;

/// The maximum growth of memory and of the log for one, in bytes: `docs/xds.md` has the limit.
const MOST_MEMORY: u64 = (32 << 20) + 150 * SIZE as u64;
const MOST_LOG: usize = 200_000;

#[test]
fn bad_messages_are_not_amplified() {
    for (name, value) in messages(SIZE) {
        let server = Management::start();
        let weir = asking(server.address).start_unhealthy();
        server.sotw.next();
        let before = weir.peak_memory();
        let resources = vec![Any { type_url: TYPE_URL.to_owned(), value }];
        let answer = server.answer_to("1", resources);
        let more = weir.peak_memory() - before;
        assert!(more <= MOST_MEMORY, "{name}: {more} bytes");
        let said = weir.said().len();
        assert!(said <= MOST_LOG, "{name}: {said} bytes in the log");
        let why = answer.error_detail.map_or(0, |why| why.message.len());
        assert!(why <= 5_000, "{name}: {why} bytes for the server");
    }
}

#[test]
fn a_server_that_sends_bad_sets_continuously_does_not_fill_the_log() {
    let server = Management::start();
    let weir = with_shop(&server);
    for i in 0..50 {
        let others = (0..40).map(|k| format!("d{i}x{k}"));
        let domains = std::iter::once(format!("d{i}")).chain(others);
        let resources = domains.map(|domain| any(&bad(&domain))).collect();
        let why = server.rejected(&format!("bad {i}"), resources, "1");
        assert!(why.starts_with(&format!("d{i}-resource: error: ")), "{why}");
    }
    // Those of one set in ten seconds are logged.
    let said = weir.said();
    let logged = said.matches("rules are rejected").count();
    assert!((1..=10).contains(&logged) && said.len() <= MOST_LOG, "{logged} lines: {said}");
    // Metrics and status still have every set.
    assert_eq!(weir.metric("weir_config_load_error_total"), 50);
    let status = http::get(weir.debug, "/status").json();
    assert!(status["refused"]["problems"].as_str().unwrap().contains("d49-resource"), "{status}");
}

#[test]
fn a_server_that_sends_good_sets_continuously_does_not_fill_the_log() {
    let server = Management::start();
    let weir = with_shop(&server);
    for i in 2..50 {
        server.set(&i.to_string(), vec![any(&rules("shop", i))]);
    }
    for i in 50..200 {
        server.set(&i.to_string(), vec![any(&rules("shop", 49))]);
    }
    assert_eq!(weir.metric("weir_config_load_success_total"), 199);
    let said = weir.said();
    let logged = said.matches("rules are loaded").count();
    // The first set, and one of those that changed something in ten seconds.
    assert!((1..=10).contains(&logged), "{logged} lines: {said}");
    assert!(!said.contains("changes=\"none\""), "{said}");
    let changes = http::get(weir.debug, "/status").json()["rules"]["changes"].take();
    assert_eq!(changes["changed"], 0, "{changes}");
}

#[test]
fn a_server_that_ends_every_stream_does_not_fill_the_log() {
    let server = Management::start();
    let weir = asking(server.address).start_unhealthy();
    for _ in 0..30 {
        server.sotw.next();
        server.sotw.end();
    }
    server.sotw.next();
    assert!(weir.metric("weir_xds_stream_failures_total") >= 30);
    let said = weir.said();
    for line in ["connected to the management server", "no stream from the management server"] {
        let logged = said.matches(line).count();
        assert!((1..=10).contains(&logged), "{logged} lines: {line}");
    }
}
