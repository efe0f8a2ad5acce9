//! Envoys that count themselves: a real one with the quota filter, as examples/envoy/quota.yaml and quota-strict.yaml
//! configure it.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::backend::Backend;
use crate::support::envoy::{self, Envoy};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

pub const EXAMPLE: &str = include_str!("../../examples/envoy/quota.yaml");
pub const STRICT: &str = include_str!("../../examples/envoy/quota-strict.yaml");

const RULES: &str = include_str!("../../examples/rules/quota.yaml");

/// How often an Envoy reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

const LIMIT: u64 = 20;

/// weir with the rules of the examples and another limit for each user, whose window does not end during a test.
/// `fallback` is what Envoys do before the first assignment.
pub fn weir(limit: u64, fallback: &str) -> Setup {
    let rules = RULES.replace("rate: 100/m", &format!("rate: {limit}/year"));
    assert_ne!(rules, RULES);
    serving(&rules).env("WEIR__RLQS__ENABLED", "true").env("WEIR__RLQS__FALLBACK", fallback)
}

/// Starts Envoy with one of the examples, on free ports.
pub fn start_envoy(config: &str, weir: &Weir) -> Envoy {
    envoy::on_free_ports(config, weir, Backend::start())
}

/// Sends a request of a user to Envoy. Returns its status.
pub fn status(envoy: &Envoy, user: &str) -> u16 {
    http::get_with(envoy.address, "/", &[("x-user", user)]).status
}

/// Charges hits to the key of a bucket as another client, not through Envoy; 0 only looks. Returns what remains.
pub fn take(weir: &Weir, (key, value): (&str, &str), hits: u64) -> u64 {
    let entries = json!([{ "key": key, "value": value }]);
    let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
    let request = json!({ "domain": "quota", "descriptors": [descriptor] });
    let answer = http::post(weir.http, "/json", request.to_string()).json();
    let status = &answer["statuses"][0];
    assert!(status["currentLimit"].is_object(), "a rule matches: {answer}");
    status["limitRemaining"].as_u64().unwrap_or(0)
}

/// Returns the hits that weir has charged for Envoys and not returned.
fn charged(weir: &Weir) -> u64 {
    let metric = |name: &str| weir.metric(&format!("weir_rlqs_{name}_hits_total"));
    metric("granted") + metric("excess") - metric("returned")
}

#[test]
fn a_strict_filter_admits_only_what_was_granted() {
    let weir = weir(LIMIT, "deny").start();
    let envoy = start_envoy(STRICT, &weir);
    let mut admitted = 0;
    let mut is_admitted = || {
        let status = status(&envoy, "ann");
        assert!([200, 429].contains(&status), "{status}");
        admitted += u64::from(status == 200);
        status == 200
    };

    assert!(!is_admitted(), "nothing is granted yet");
    let asked = Instant::now();
    wait_for("a grant", || is_admitted().then_some(()));
    assert!(asked.elapsed() < REPORT_INTERVAL, "a new bucket is reported at once");
    // Half of what is left is granted at once, and then with each report.
    let mut count = 1;
    wait_for("three quarters of the limit", || {
        count += u64::from(is_admitted());
        (count >= LIMIT * 3 / 4).then_some(())
    });
    let reported = Instant::now() + REPORT_INTERVAL;
    while Instant::now() < reported {
        is_admitted();
        thread::sleep(Duration::from_millis(20));
    }

    assert!(admitted <= LIMIT, "{admitted}");
    assert_eq!(envoy.backend.seen() as u64, admitted);
    assert_eq!(weir.metric("weir_rlqs_streams"), 1);
    assert_eq!(weir.metric("weir_rlqs_excess_hits_total"), 0);
    wait_for("the key has what was granted", || {
        (take(&weir, ("user", "ann"), 0) == LIMIT - charged(&weir)).then_some(())
    });
}

#[test]
fn the_example_admits_a_new_user_at_once_and_charges_what_has_passed() {
    let weir = weir(LIMIT, "allow").start();
    let envoy = start_envoy(EXAMPLE, &weir);
    assert_eq!(status(&envoy, "ann"), 200);
    // The request, and half of what it has left.
    let left = (LIMIT - 1) / 2;
    wait_for("both are charged", || {
        (take(&weir, ("user", "ann"), 0) == left && charged(&weir) == LIMIT - left).then_some(())
    });
    assert_eq!(weir.metric("weir_rlqs_excess_hits_total"), 1);

    // Another client has used up this user's limit.
    assert_eq!(take(&weir, ("user", "bob"), LIMIT), 0);
    assert_eq!(status(&envoy, "bob"), 200, "weir has not answered yet");
    let asked = Instant::now();
    wait_for("bob is denied", || (status(&envoy, "bob") == 429).then_some(()));
    assert!(asked.elapsed() < REPORT_INTERVAL);

    let statuses = envoy.statuses(2 * LIMIT as usize, "/", &[("x-user", "ann")]);
    let admitted = statuses.iter().filter(|status| **status == 200).count() as u64;
    assert!((LIMIT / 2..LIMIT).contains(&admitted), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");

    // Without a user.
    assert_eq!(http::get(envoy.address, "/").status, 200);
    wait_for("the common bucket is charged", || {
        (take(&weir, ("kind", "anonymous"), 0) < 600).then_some(())
    });
}
