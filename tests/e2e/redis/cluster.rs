//! A cluster with a failed node, and one with a new node.

use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

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
    let weir = setup.store_times("1s").start();
    let users = POLICIES.map(|name| [0, 1, 2].map(|master| user(&cluster, name, master)));

    // One of four is used before the failure, once every serving thread knows all nodes.
    for (name, users) in POLICIES.iter().zip(&users) {
        for user in users {
            counted(&weir, &request(name, &[("user", user)])).await;
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
    let weir = setup.store_times("5s").start();
    let users: Vec<String> = (0..10).map(|i| format!("moves{i}")).collect();
    let requests: Vec<_> = users.iter().map(|user| request("shop", &[("user", user)])).collect();
    let start = Instant::now();
    let load = Load::start(weir.grpc, 50, &requests);
    wait_for("all threads know all nodes", || {
        let samples = load.since(start);
        (samples.iter().filter(|sample| sample.got == Got::Ok).count() > 200).then_some(())
    });
    cluster.add_empty_master();
    let moving = Instant::now();
    for user in &users {
        let name = format!("{{shop|user={user}}}");
        let slot = cluster.masters[1].command(&["CLUSTER", "KEYSLOT", &name]).int();
        let slot = u16::try_from(slot).expect("a slot");
        for step in [Cluster::begin_to_move, Cluster::move_keys, Cluster::end_the_move] {
            step(&cluster, slot, 2);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    std::thread::sleep(Duration::from_millis(100));
    let samples = load.stop();
    let failed: Vec<_> =
        samples.iter().filter(|sample| sample.sent >= moving && sample.got != Got::Ok).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(cluster.masters[2].command(&["DBSIZE"]).int(), 10);
}

/// Sends a request until it is counted, because a service that has just started may not know all nodes
/// yet.
async fn counted(weir: &Weir, request: &RateLimitRequest) {
    let deadline = Instant::now() + PATIENCE;
    let failed = || {
        let count = |policy| {
            weir.metric(&format!(r#"weir_store_degraded_charges_total{{policy="{policy}"}}"#))
        };
        POLICIES.map(count)
    };
    loop {
        let before = failed();
        let answer = ask(weir.grpc, request.clone()).await;
        if failed() == before {
            assert_eq!(outcomes(&answer.unwrap()), [(true, 3)]);
            return;
        }
        assert!(Instant::now() < deadline, "not counted within {PATIENCE:?}");
    }
}
