//! StatsD and DogStatsD.

use crate::support::api::{code, request, user_request};
use crate::support::statsd::StatsdServer;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
";

const RULE: &str = "ratelimit.service.rate_limit.shop.user";
const METHOD: &str = "ratelimit_server.ShouldRateLimit";

/// A service that reports often.
fn sending_to(server: &StatsdServer) -> Setup {
    serving(RULES)
        .env("STATSD_HOST", "127.0.0.1")
        .env("STATSD_PORT", server.address.port().to_string())
        .env("STATS_FLUSH_INTERVAL", "20ms")
}

async fn ask_three_times(weir: &Weir) {
    for _ in 0..3 {
        code(weir.grpc, user_request()).await;
    }
}

#[tokio::test]
async fn the_reference_s_statistics_are_sent_over_tcp() {
    let server = StatsdServer::tcp();
    let weir = sending_to(&server).start();
    ask_three_times(&weir).await;
    code(weir.grpc, request("unknown", &[("user", "ann")])).await;
    server.wait_for_sum(&format!("{METHOD}.total_requests"), "", 4);
    for (counter, sum) in
        [("total_hits", 3), ("over_limit", 1), ("near_limit", 1), ("within_limit", 2)]
    {
        server.wait_for_sum(&format!("{RULE}.{counter}"), "", sum);
    }
    server.wait_for_sum("ratelimit.service.config_load_success", "", 1);
    server.wait_for_sum("ratelimit.service.rate_limit.unknown.domain_not_found", "", 1);
    wait_for("all response times", || {
        let timed = server.timed(&format!("{METHOD}.response_time"));
        ((timed - 4.0).abs() < 1e-6).then_some(())
    });
    // A counter that never moved is not sent.
    assert!(server.lines().iter().all(|line| !line.contains("shadow_mode")));
    assert_eq!(server.connections(), 1, "one connection for all reports");
}

#[tokio::test]
async fn nothing_is_lost_when_the_server_closes_the_connection() {
    let server = StatsdServer::tcp();
    let weir = sending_to(&server).start();
    for round in 1..=3 {
        ask_three_times(&weir).await;
        server.wait_for_sum(&format!("{RULE}.total_hits"), "", 3 * round);
        server.close_connections();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_report_is_sent_at_the_end() {
    for (protocol, server) in [("tcp", StatsdServer::tcp()), ("udp", StatsdServer::udp())] {
        let mut weir = sending_to(&server)
            .env("STATSD_PROTOCOL", protocol)
            .env("STATS_FLUSH_INTERVAL", "1h")
            .env("WEIR__DRAIN__DELAY", "0s")
            .start();
        ask_three_times(&weir).await;
        weir.signal("TERM");
        assert_eq!(weir.wait_until_ended().code(), Some(0));
        server.wait_for_sum(&format!("{RULE}.total_hits"), "", 3);
    }
}

#[test]
fn a_server_that_cannot_be_reached_delays_nothing() {
    let server = StatsdServer::tcp();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = unused.local_addr().unwrap().port().to_string();
    drop(unused);
    let mut weir = sending_to(&server).env("STATSD_PORT", port).start();
    weir.until_said("cannot send metrics").unwrap();
    assert!(weir.is_healthy());
    weir.signal("INT");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
}

#[tokio::test]
async fn dogstatsd_has_tags_and_mogrified_names_beside_all_other_sinks() {
    let (plain, dog) = StatsdServer::tcp_and_udp();
    let weir = sending_to(&dog)
        .env("USE_DOG_STATSD", "true")
        .env("USE_STATSD", "true")
        .env("USE_PROMETHEUS", "true")
        .env("PROMETHEUS_ADDR", "127.0.0.1:0")
        .env("EXTRA_TAGS", "zone:b,env:te.st")
        .env("USE_DOG_STATSD_MOGRIFIERS", "RULE,ANY")
        .env("DOG_STATSD_MOGRIFIER_RULE_PATTERN", r"rate_limit\.(.*)\.(.*)\.(.*)$")
        .env("DOG_STATSD_MOGRIFIER_RULE_NAME", "limits.$3")
        .env("DOG_STATSD_MOGRIFIER_RULE_TAGS", "domain:$1,rule:$2,odd:$9")
        .env("DOG_STATSD_MOGRIFIER_ANY_PATTERN", r"(rate_limit|config)\.?")
        .env("DOG_STATSD_MOGRIFIER_ANY_NAME", "any.$1")
        .start();
    ask_three_times(&weir).await;
    dog.wait_for_sum("limits.total_hits", "|#env:te_st,zone:b,domain:shop,rule:user,odd:$9", 3);
    dog.wait_for_sum("any.config", "|#env:te_st,zone:b", 1);
    plain.wait_for_sum(&format!("{RULE}.total_hits.__env=te_st.__zone=b"), "", 3);
    let page = http::get(weir.http, "/metrics").body;
    let hits = "ratelimit_service_rate_limit_total_hits\
                {domain=\"shop\",env=\"te.st\",key1=\"user\",zone=\"b\"} 3\n";
    assert!(page.contains(hits), "{page}");
}

#[test]
fn a_wrong_mogrifier_stops_the_start_and_names_its_variable() {
    let setup = || serving(RULES).env("USE_DOG_STATSD", "true");
    let one = || setup().env("USE_DOG_STATSD_MOGRIFIERS", "A");
    let pattern = || one().env("DOG_STATSD_MOGRIFIER_A_PATTERN", "a");
    for (setup, error) in [
        (one(), "DOG_STATSD_MOGRIFIER_A_PATTERN: it is missing; write a regular expression"),
        (
            one().env("DOG_STATSD_MOGRIFIER_A_PATTERN", "("),
            "DOG_STATSD_MOGRIFIER_A_PATTERN: it is \"(\": unclosed group; write a regular expression",
        ),
        (pattern(), "DOG_STATSD_MOGRIFIER_A_NAME: it is missing; write the name of the metric"),
        (
            pattern()
                .env("DOG_STATSD_MOGRIFIER_A_NAME", "n")
                .env("DOG_STATSD_MOGRIFIER_A_TAGS", "t:"),
            "DOG_STATSD_MOGRIFIER_A_TAGS: a tag has no name or no value; \
             write name:value, with commas between several",
        ),
    ] {
        let (status, said) = setup.run();
        assert_eq!(status.code(), Some(64), "{said}");
        assert!(said.contains(error), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disable_stats_sends_nothing() {
    let server = StatsdServer::udp();
    let mut weir = sending_to(&server)
        .env("STATSD_PROTOCOL", "udp")
        .env("USE_DOG_STATSD", "true")
        .env("USE_STATSD", "true")
        .env("DISABLE_STATS", "true")
        .env("WEIR__DRAIN__DELAY", "0s")
        .start();
    ask_three_times(&weir).await;
    weir.signal("INT");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert_eq!(server.lines(), Vec::<String>::new());
}
