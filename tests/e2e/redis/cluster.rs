//! A cluster with a failed node, and one with a new node.

use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;

use super::*;
use crate::support::api::{ask, descriptor};
use crate::support::load::Load;
use crate::support::redis::cluster::Cluster;

const POLICIES: [&str; 3] = ["error", "allow", "deny"];

/// Finds a user of a domain whose key is on the given master.
fn user(cluster: &Cluster, domain: &str, master: usize) -> String {
    let slot = |user: &str| {
        let name = format!("{{{domain}|user={user}}}");
        let slot = cluster.masters[1].command(&["CLUSTER", "KEYSLOT", &name]).int();
        u16::try_from(slot).expect("a slot")
    };
    let mut users = (0..).map(|i| format!("u{i}"));
    users.find(|user| cluster.master_of(slot(user)) == master).expect("a user")
}

/// Returns for each descriptor whether it is allowed and what remains of its limit of 4.
fn outcomes(answer: &RateLimitResponse) -> Vec<(bool, u32)> {
    let statuses = answer.statuses.iter();
    statuses.map(|status| (status.code() == Code::Ok, status.limit_remaining)).collect()
}

/// Starts a service, and waits until each of its threads knows all masters: two that serve gRPC, and that of /json.
fn started(setup: Setup, masters: u64, store_times: &str) -> Weir {
    let weir = setup.env("WEIR__RUNTIME__THREADS", "2").store_times(store_times).start();
    wait_for_connections(&weir, 3 * masters);
    weir
}

#[tokio::test]
async fn a_failed_node_affects_only_its_own_keys() {
    let mut cluster = Cluster::start(3, 0);
    let mut setup = Setup::new();
    for name in POLICIES {
        let rules = format!(
            "domain: {name}\non_store_failure: {name}\ndescriptors:\n  - key: user\n    \
             rate_limit: {{ unit: year, requests_per_unit: 4 }}\n"
        );
        setup = setup.file(&format!("rules/{name}.yaml"), &rules);
    }
    let rules = setup.path("rules");
    let setup = setup
        .arg("serve")
        .arg("--rules")
        .arg(rules.to_str().expect("text"))
        .env("WEIR__STORE__REDIS__TOPOLOGY", "cluster")
        .env("WEIR__STORE__REDIS__URL", cluster.addresses().join(","));
    let weir = started(setup, 3, "1s");
    let users = POLICIES.map(|name| [0, 1, 2].map(|master| user(&cluster, name, master)));

    // One of four is used before the failure.
    for (name, users) in POLICIES.iter().zip(&users) {
        for user in users {
            let answer = ask(weir.grpc, request(name, &[("user", user)])).await;
            assert_eq!(outcomes(&answer.unwrap()), [(true, 3)]);
        }
    }
    cluster.masters[0].kill();
    let weir = &weir;
    for (name, users) in POLICIES.iter().zip(&users) {
        let mut all = request(name, &[]);
        all.descriptors = users.iter().map(|user| descriptor(&[("user", user)])).collect();
        let mut alive = all.clone();
        alive.descriptors.remove(0);
        for left in [2, 1] {
            let answer = ask(weir.grpc, if *name == "error" { alive.clone() } else { all.clone() });
            let mut outcomes = outcomes(&answer.await.unwrap());
            if *name != "error" {
                let by_policy = if *name == "allow" { (true, 4) } else { (false, 0) };
                assert_eq!(outcomes.remove(0), by_policy, "{name}");
            }
            assert_eq!(outcomes, [(true, left), (true, left)], "{name}");
        }
        if *name == "error" {
            let refused = ask(weir.grpc, all).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Unknown, "{refused}");
        }
    }
}

/// The new master has no slots when the first charge is redirected to it.
#[test]
fn moving_slots_to_a_new_node_under_load_fails_no_request() {
    let mut cluster = Cluster::start(2, 0);
    let setup = serving(HIGH_LIMIT)
        .env("WEIR__STORE__REDIS__TOPOLOGY", "cluster")
        .env("WEIR__STORE__REDIS__URL", cluster.addresses().join(","));
    let weir = started(setup, 2, "5s");
    let users: Vec<String> = (0..10).map(|i| format!("moves{i}")).collect();
    let requests: Vec<_> = users.iter().map(|user| request("shop", &[("user", user)])).collect();
    let load = Load::start(weir.grpc, 50, &requests);
    load.wait_for_outcomes(requests.len());
    cluster.add_empty_master();
    let moving = Instant::now();
    for user in &users {
        let name = format!("{{shop|user={user}}}");
        let slot = cluster.masters[1].command(&["CLUSTER", "KEYSLOT", &name]).int();
        let slot = u16::try_from(slot).expect("a slot");
        for step in [Cluster::begin_to_move, Cluster::move_keys, Cluster::end_the_move] {
            step(&cluster, slot, 2);
            load.wait_for_outcomes(requests.len());
        }
    }
    load.wait_for_outcomes(5 * requests.len());
    let samples = load.stop();
    let failed: Vec<_> =
        samples.iter().filter(|sample| sample.sent >= moving && sample.got != Got::Ok).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(cluster.masters[2].command(&["DBSIZE"]).int(), 10);
}
