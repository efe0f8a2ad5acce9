//! Replicas that count each other, so that the policy `local` divides limits by their number.

use super::policies::connections;
use super::*;
use crate::support::redis::{Config, Server};

/// The limit of one window.
const N: usize = 20;

fn counting(port: u16) -> Setup {
    let rules = format!(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: {{ unit: year, requests_per_unit: {N} }}\n"
    );
    with_redis(port, &rules)
        .env("WEIR__STORE__ON_FAILURE", "local")
        .env("WEIR__STORE__REPLICAS", "2")
        .env("WEIR__STORE__COUNT_REPLICAS", "true")
}

fn wait_until_counted(replicas: &[Weir], wanted: u64) {
    for (i, weir) in replicas.iter().enumerate() {
        wait_for(&format!("{wanted} replicas are counted by number {i}"), || {
            (weir.metric("weir_store_replicas") == wanted).then_some(())
        });
    }
}

#[tokio::test]
async fn replicas_scaled_from_two_together_admit_one_limit_without_redis() {
    let mut redis = Server::start();
    let mut replicas = Vec::new();
    for wanted in [2, 5] {
        replicas.resize_with(wanted, || counting(redis.port()).start());
        wait_until_counted(&replicas, wanted as u64);
    }
    // As if the first had started long ago: else fewer replicas are believed only after ten seconds.
    redis.command(&["HSET", "weir:{replicas}", "since", "1"]);
    let mut last = replicas.pop().expect("five");
    last.signal("INT");
    assert!(last.wait_until_ended().success(), "{}", last.said());
    wait_until_counted(&replicas, 4);
    redis.kill();
    let mut admitted = 0;
    for weir in &replicas {
        wait_for("all connections are down", || {
            let down = weir.metric(r#"weir_redis_connections_down{redis="main"}"#);
            (down >= connections()).then_some(())
        });
        for _ in 0..N {
            admitted += usize::from(code(weir.grpc, user_request()).await == Code::Ok);
        }
    }
    assert!((N..=N * 6 / 5).contains(&admitted), "{admitted} of {N}");
}

#[test]
fn a_redis_that_refuses_is_logged_once_and_the_setting_counts() {
    let redis = Server::with(Config {
        lines: vec![
            "user default on >root ~* &* +@all".into(),
            "user weir on >pw ~* +@all -hscan".into(),
        ],
        password: Some("root".into()),
        ..Config::default()
    });
    let mut weir = counting(redis.port()).env("REDIS_AUTH", "weir:pw").start();
    let line = weir.until_said("replicas are not counted any more").unwrap();
    // Redis 7 does not name it, Valkey does.
    let cause = ["can't run this command", "to run the 'hscan' command"];
    assert!(cause.iter().any(|cause| line.contains(cause)), "{line}");
    assert!(line.contains("replicas=2"), "{line}");
    assert_eq!(weir.metric("weir_store_replicas"), 2);
    let stats = redis.command(&["INFO", "commandstats"]).text();
    let calls = |command: &str| -> u64 {
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start)).expect("calls");
        line.split(',').next().expect("a number").parse().expect("a number")
    };
    // Each connection tries both once, to learn what the user may do.
    assert_eq!(calls("eval"), calls("evalsha") + 1, "it is off");
}
