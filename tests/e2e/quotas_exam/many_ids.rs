//! Ten thousand buckets of one Envoy, which it forgets when weir abandons them.

use super::*;
use crate::support::{http, wait_for};

/// The value of an entry that is a header.
const HEADER: &str = "{ custom_value: { name: user, typed_config: { \"@type\": \
                      type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user } } }";

const USERS: usize = 10_000;

/// How long Envoy may know a bucket without requests: four reports, and a window in which it may be denied.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(180);

/// Lets each user of a group send a request, some 100 a second, then waits until all buckets are abandoned. Returns the
/// most buckets, and the bytes that Envoy has allocated then and at the end.
fn pass(weir: &Weir, envoy: &Envoy, group: char, users: usize) -> (u64, u64, u64) {
    for user in 0..users {
        let user = format!("{group}{user}");
        http::get_with(envoy.address, "/", &[("x-user", user.as_str())]);
        sleep(Duration::from_millis(9));
    }
    let buckets = || weir.metric("weir_rlqs_buckets");
    let (most, busy) = (buckets(), envoy.allocated_bytes());
    let deadline = now() + FORGOTTEN_AFTER.as_micros() as Micros;
    while is_long() && buckets() > 0 {
        assert!(now() < deadline, "{} buckets are not abandoned", buckets());
        sleep(Duration::from_millis(500));
    }
    assert!(weir.metric("weir_rlqs_streams") > 0, "the stream has ended");
    let idle = envoy.allocated_bytes();
    println!("group {group}: {most} buckets, {busy} bytes allocated, then {idle}");
    (most, busy, idle)
}

#[test]
fn buckets_without_requests_are_abandoned_and_take_no_memory() {
    let (weir, backend) = (quotas(LONG).start(), Backend::start());
    let envoy = start_envoy(&weir, &backend, HEADER);
    if !is_long() {
        pass(&weir, &envoy, 's', 100);
        // Envoy reports them at once, or with the next report: after 5 seconds.
        wait_for("all are reported", || (weir.metric("weir_rlqs_buckets") == 100).then_some(()));
        let is_admitted = || envoy.statuses(1, "/", &[("x-user", "s1")]) == [200];
        wait_for("a user is granted hits", || is_admitted().then_some(()));
        return;
    }
    let (most, busy, idle) = pass(&weir, &envoy, 'a', USERS);
    assert!(most > 1_000, "{most}");
    let (_, busy_again, idle_again) = pass(&weir, &envoy, 'b', USERS);
    let level = |before: u64| before + before / 4 + (1 << 20);
    assert!(busy_again <= level(busy), "{busy}, then {busy_again}");
    assert!(idle_again <= level(idle), "{idle}, then {idle_again}");
}
