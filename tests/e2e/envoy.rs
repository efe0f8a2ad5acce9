//! A real Envoy with weir as its rate-limit service, seen from a client of Envoy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::weir::{Setup, serving};
use crate::support::{PATIENCE, envoy, http, wait_for};

const RULES: &str = "\
domain: edge
descriptors:
  - key: service
    value: shop
    rate_limit: { unit: year, requests_per_unit: 1000 }
  - key: user
    value: ann
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: tenant
    value: acme
    descriptors:
      - key: remote_address
        rate_limit: { unit: year, unit_multiplier: 2, requests_per_unit: 2 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// The longest period above: two years.
const LONGEST_PERIOD_SECONDS: u64 = 2 * 31_536_000;

fn weir() -> Setup {
    serving(RULES)
}

#[test]
fn clients_see_200_until_the_limit_then_429_with_headers() {
    let weir = weir().env("LIMIT_RESPONSE_HEADERS_ENABLED", "true").start();
    let envoy = envoy::in_front_of(&weir, "");
    let ask = || http::get_with(envoy.address, "/", &[("x-user", "ann")]);
    for left in ["2", "1", "0"] {
        let answer = ask();
        assert_eq!((answer.status, answer.body.as_str()), (200, "hi\n"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(answer.header("RateLimit-Remaining"), Some(left));
    }
    let answer = ask();
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(envoy.backend.seen(), 3, "denied requests do not reach the backend");

    // Envoy's own headers, computed from the statuses.
    let limit = answer.header("x-ratelimit-limit").unwrap();
    assert!(limit.starts_with("3, 1000;w=31536000, 3;w=31536000"), "{limit}");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    let reset = answer.header("x-ratelimit-reset").unwrap();
    assert!((1..=LONGEST_PERIOD_SECONDS).contains(&reset.parse().unwrap()), "{reset}");

    // weir's headers.
    assert_eq!(answer.header("RateLimit-Limit"), Some("3"));
    assert_eq!(answer.header("RateLimit-Remaining"), Some("0"));
    assert!(
        (1..=LONGEST_PERIOD_SECONDS)
            .contains(&answer.header("RateLimit-Reset").unwrap().parse().unwrap())
    );
}

/// A limit of which more may come at once than in a period.
#[test]
fn headers_of_weir_show_the_burst_that_remains() {
    let shown = |limit: &str| {
        let rules = format!("domain: edge\ndescriptors: [{{ key: user, {limit} }}]\n");
        let weir = serving(&rules)
            .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
            .env("WEIR__RESPONSE__RATELIMIT_FIELDS", "true")
            .start();
        let envoy = envoy::in_front_of(&weir, "");
        let answer = http::get_with(envoy.address, "/", &[("x-user", "ann")]);
        let body =
            r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
        let json = http::ask(weir.http, "POST", "/json", &[], body.as_bytes()).unwrap().body;
        assert!(json.contains(r#""limitRemaining":19"#), "{json}");
        for name in ["x-ratelimit-remaining", "RateLimit-Remaining"] {
            assert_eq!(answer.header(name), Some("19"), "{name}");
        }
        let named = |name| answer.header(name).unwrap().to_owned();
        // The same in the response of /json.
        for value in ["\"20\"", "q=20;w=172800"] {
            assert!(json.contains(value), "{json}");
        }
        [named("RateLimit-Limit"), named("RateLimit-Policy"), named("x-ratelimit-limit")]
    };
    let policy = r#""default";q=20;w=172800"#;
    for bucket in
        ["algorithm: gcra", "algorithm: token_bucket, refill_amount: 10, refill_interval: 1d"]
    {
        let limit = format!("rate_limit: {{ rate: 10/d, burst: 20, {bucket} }}");
        // Envoy computes its headers from the status, which has the rate.
        assert_eq!(shown(&limit), ["20", policy, "10, 10;w=86400"], "{limit}");
    }
    // The same limit, so written that both numbers are equal.
    let limit = "rate_limit: { rate: 20/2d, algorithm: gcra }";
    assert_eq!(shown(limit), ["20", policy, "20, 20;w=172800"]);
}

#[test]
fn clients_see_the_policies_of_all_limits_and_the_unix_time_of_the_reset() {
    let limits = "{ unit: year, requests_per_unit: 2 }, { unit: year, requests_per_unit: 3 }";
    let rules = format!("domain: edge\ndescriptors: [{{ key: user, rate_limits: [{limits}] }}]\n");
    let weir = serving(&rules)
        .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
        .env("WEIR__RESPONSE__RESET", "unix")
        .env("WEIR__RESPONSE__RATELIMIT_FIELDS", "true")
        .start();
    let envoy = envoy::in_front_of(&weir, "");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let answer = http::get_with(envoy.address, "/", &[("x-user", "ann")]);
    let policies = r#""default";q=2;w=31536000, "default-2";q=3;w=31536000"#;
    assert_eq!(answer.header("RateLimit-Policy"), Some(policies));
    let shown = answer.header("RateLimit").unwrap();
    assert!(shown.starts_with(r#""default";r=1;t="#), "{shown}");
    let reset: u64 = answer.header("RateLimit-Reset").unwrap().parse().unwrap();
    assert!(reset >= now, "{reset}");
    // That of Envoy stays.
    let seconds: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(seconds <= LONGEST_PERIOD_SECONDS, "{seconds}");
}

#[test]
fn every_descriptor_has_its_own_limit() {
    let weir = weir().start();
    let envoy = envoy::in_front_of(&weir, "");
    let statuses = |count, headers| envoy.statuses(count, "/", headers);
    assert_eq!(statuses(4, &[("x-user", "ann")]), [200, 200, 200, 429]);
    assert_eq!(statuses(2, &[("x-user", "bob")]), [200, 429]);
    assert_eq!(statuses(2, &[("x-user", "cleo")]), [200, 429]);
    // A nested rule; another tenant has none.
    assert_eq!(statuses(3, &[("x-tenant", "acme")]), [200, 200, 429]);
    assert_eq!(statuses(3, &[("x-tenant", "zeta")]), [200, 200, 200]);
    // One descriptor over its limit is enough.
    assert_eq!(statuses(1, &[("x-user", "dora"), ("x-tenant", "acme")]), [429]);
    // The 15 requests above and this one were all counted for the service.
    let answer = http::get(envoy.address, "/");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("984"));
    assert_eq!(answer.header("RateLimit-Limit"), None, "weir's headers are off");
}

/// Envoy copies the bytes of a header as they are.
#[test]
fn a_header_that_is_not_utf_8_is_counted_and_the_other_limits_hold() {
    let weir = serving(&RULES.replace("1000", "4")).start();
    let envoy = envoy::in_front_of(&weir, "");
    let status = |user: &[u8]| {
        let mut socket = TcpStream::connect(envoy.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\nx-user: ";
        socket.write_all(&[&head[..], user, b"\r\n\r\n"].concat()).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().to_owned()
    };
    // Each value has a limit of its own, and the fifth request is one too many for the service.
    let users = [&b"b\xff"[..], b"b\xff", b"b\xfe", b"b", b"\xff"];
    assert_eq!(users.map(status), ["200", "429", "200", "200", "429"]);
    assert_eq!(envoy.stat("cluster.backend.ratelimit.error"), 0);
}

#[test]
fn shadow_mode_counts_but_does_not_deny() {
    let weir = weir().start();
    let envoy = envoy::in_front_of(&weir, "");
    assert_eq!(envoy.statuses(3, "/", &[("x-watched", "w")]), [200, 200, 200]);
    let labels = r#"{domain="edge",rule="watched"}"#;
    assert_eq!(weir.metric(&format!("weir_rule_shadow_mode_total{labels}")), 2);

    let global = serving(RULES).env("SHADOW_MODE", "true").start();
    let envoy = envoy::in_front_of(&global, "");
    assert_eq!(envoy.statuses(3, "/", &[("x-user", "bob")]), [200, 200, 200]);
    assert_eq!(global.metric("weir_global_shadow_mode_total"), 2);
}

#[test]
fn without_weir_failure_mode_deny_decides() {
    for (deny, status) in [("true", 500), ("false", 200)] {
        let mut weir = weir().start();
        let envoy = envoy::in_front_of(&weir, &format!("failure_mode_deny: {deny}"));
        let bob = [("x-user", "bob")];
        assert_eq!(envoy.statuses(2, "/", &bob), [200, 429]);
        weir.kill();
        assert_eq!(envoy.statuses(2, "/", &bob), [status, status]);
    }
}

#[test]
fn draining_answers_all_requests_until_the_listeners_close() {
    let mut weir = weir().env("WEIR__DRAIN__DELAY", "2s").start();
    let envoy = envoy::in_front_of(&weir, "failure_mode_deny: true");
    weir.signal("TERM");
    // Health now reports not serving; requests are still answered.
    assert_eq!(envoy.statuses(2, "/", &[("x-user", "bob")]), [200, 429]);
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert_eq!(envoy.statuses(1, "/", &[("x-user", "ann")]), [500]);
}

#[test]
fn failure_mode_deny_applies_to_error_responses() {
    // The second descriptor exceeds the maximum, so the request is refused with an error.
    let weir = weir().env("WEIR__GRPC__MAX_DESCRIPTORS", "1").start();
    for (deny, status) in [("true", 500), ("false", 200)] {
        let envoy = envoy::in_front_of(&weir, &format!("failure_mode_deny: {deny}"));
        assert_eq!(envoy.statuses(1, "/", &[]), [200]);
        assert_eq!(envoy.statuses(1, "/", &[("x-user", "bob")]), [status]);
    }
}

#[test]
fn the_example_limits_a_path_to_five_requests_a_minute() {
    let weir = serving(include_str!("../../examples/rules/example.yaml")).start();
    let envoy = envoy::example(&weir);
    // Eleven requests exceed the limit even if a new minute starts in between.
    let statuses = envoy.statuses(11, "/hello", &[]);
    assert!(statuses.starts_with(&[200, 200, 200, 200, 200]), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(envoy.statuses(1, "/other", &[]), [200]);
}

/// Stops other threads when dropped, because a failed test would wait for them forever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests on one connection at a steady rate, until `stop`.
fn send_requests(envoy: &envoy::Envoy, per_second: u32, stop: &AtomicBool) {
    let mut socket = TcpStream::connect(envoy.address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = Instant::now();
    for number in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let due = start + Duration::from_secs(1) * number / per_second;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        socket.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nhi\n") {
            let mut part = [0; 1024];
            let read = socket.read(&mut part).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..read]);
        }
    }
}

#[test]
fn a_stalled_weir_keeps_its_connections() {
    let weir = serving(&RULES.replace("1000", "1000000000")).start();
    // This Envoy waits for 20 ms, then resets the call and allows the request.
    let envoy = envoy::with_default_timeout(&weir);
    let failed = || envoy.stat("cluster.backend.ratelimit.error");
    let answered = || envoy.stat("cluster.backend.ratelimit.ok");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..32 {
            scope.spawn(|| send_requests(&envoy, 30, &stop));
        }
        wait_for("answers", || (answered() > 100).then_some(()));
        for stall in [130, 170, 210, 250, 130, 170, 210, 250] {
            let (failed_before, answered_before) = (failed(), answered());
            weir.signal("STOP");
            thread::sleep(Duration::from_millis(stall));
            weir.signal("CONT");
            wait_for("answers after a stall", || {
                (answered() > answered_before + 100).then_some(())
            });
            assert!(failed() > failed_before, "no request failed during the stall");
        }
    });
    // All failures were timeouts.
    assert_eq!(envoy.stat("cluster.weir.upstream_rq_timeout"), failed());
    assert_eq!(envoy.stat("cluster.weir.upstream_cx_destroy"), 0, "connections were closed");
    assert!(!weir.said().contains("abusive"), "{}", weir.said());
}
