//! `weir why`: what happened to a key, as one replica or several know it.

use serde_json::Value;

use super::{Ran, at, good, run, user};
use crate::support::api::{ask, request};
use crate::support::redis::{Server, free_port};
use crate::support::weir::{Weir, serving};
use crate::support::{wait_for, wait_until};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: token
    rate_limit: { unit: year, requests_per_unit: 0 }
";

/// Asks until there is a denial. Returns the answer of the only replica.
fn story(weir: &Weir, key: &str) -> Value {
    wait_for("the denial is recorded", || {
        let mut story = at(weir.debug, &format!("why -d shop {key} --output json")).json();
        let replica = story["replicas"][0].take();
        (replica["denials"][0].is_object()).then_some(replica)
    })
}

fn lines(out: &str, part: &str) -> usize {
    out.lines().filter(|line| line.contains(part)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_what_happened_to_a_key() {
    let weir = serving(RULES).start();
    for _ in 0..3 {
        user(&weir, "ann").await;
    }
    let replica = story(&weir, "user=ann");
    assert_eq!(replica["denials"][0]["limit"], "2 per year", "{replica}");
    assert_eq!(replica["explained"]["descriptors"][0]["state"]["limits"][0]["used"], 3);
    assert_eq!(replica["denied"]["rows"][0]["count"], 1);

    good(&weir, "reset -d shop user=ann --by bob");
    good(&weir, "reset -d shop user=eve --by bob");
    good(&weir, "block -d shop --for 1h user=ann --id b1 --reason scraping");
    let rules = RULES.replace("requests_per_unit: 2", "requests_per_unit: 9");
    std::fs::write(weir.path("rules.yaml"), rules).unwrap();
    let out = wait_for("the reload is recorded", || {
        let out = good(&weir, "why -d shop user=ann");
        out.contains("rules loaded: ").then_some(out)
    });
    assert!(out.starts_with("shop: user=ann\n"), "{out}");
    for part in [
        "  control: b1 blocks it for ",
        ", by ann: scraping\n",
        "  state:  9 per year: 0 used, 9 left",
        "  denied: 1 hit in ",
        "in the last 10m, the newest first:\n",
        "  rules loaded: shop.user: 2 per year → 9 per year\n",
        "  1 hit denied by user: 2 per year; retry in ",
        "note: a replica keeps the newest denial of each of up to 4096 keys, ",
        "; the setting log.denials logs more\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(lines(&out, "counters reset by bob"), 1, "{out}");
    assert_eq!(lines(&out, " started "), 1, "{out}");
    let other = good(&weir, "why -d shop user=bob");
    assert!(other.contains("  denied: no hit in ") && !other.contains(" denied by "), "{other}");
    assert_eq!(lines(&other, "reset by"), 0, "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_found_by_a_part_of_its_descriptor_and_by_a_secret_value() {
    let weir = serving(RULES).env("WEIR__TOP__REDACT", "token").start();
    drop(ask(weir.grpc, request("shop", &[("token", "s3cret")])).await);
    let replica = story(&weir, "token=s3cret");
    assert!(replica["denials"].to_string().contains("hash:"), "{replica}");
    assert!(!replica["denials"].to_string().contains("s3cret"), "{replica}");
    let other = good(&weir, "why -d shop token=other");
    assert!(!other.contains(" denied by "), "{other}");
    good(&weir, "block -d shop route=x");
    // Of all keys, one denial a second is kept.
    wait_until("the denial is recorded", async || {
        drop(ask(weir.grpc, request("shop", &[("user", "ann"), ("route", "x")])).await);
        let out = good(&weir, "why -d shop user=ann");
        out.contains("1 hit denied for user=ann,route=x by block-")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_known_while_another_client_floods() {
    let weir = serving(RULES).start();
    let users = ["ann", "bob", "cid", "dan", "eve"];
    for name in users {
        for _ in 0..20 {
            user(&weir, "mallory").await;
        }
        for _ in 0..3 {
            user(&weir, name).await;
        }
    }
    for name in users {
        wait_for(name, || {
            let out = good(&weir, &format!("why -d shop user={name} --since 1h"));
            out.contains("  1 hit denied by user: 2 per year; retry in ").then_some(())
        });
    }
    // What is there once a second is there once.
    let denials = &story(&weir, "user=mallory")["denials"];
    let mut times: Vec<_> = denials.as_array().unwrap().iter().map(|it| &it["number"]).collect();
    let all = times.len();
    times.dedup();
    assert_eq!(times.len(), all, "{denials}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failure_policy_denied_names_it() {
    let redis = Server::start();
    let setup = serving(RULES).env("REDIS_URL", redis.addr()).store_times("1s");
    let weir = setup.env("WEIR__STORE__ON_FAILURE", "local").start();
    redis.stop();
    wait_until("the policy denies", async || {
        for _ in 0..4 {
            user(&weir, "ann").await;
        }
        let out = good(&weir, "why -d shop user=ann");
        out.contains(" denied by user: 2 per year, by policy local, as the store failed; retry in ")
            && out.contains("  by policy local: 2 per year: ")
            && out.contains(" used, 0 left")
    })
    .await;
    redis.go_on();
}

#[test]
fn a_block_of_a_moment_is_known() {
    let weir = serving(RULES).start();
    good(&weir, "block -d shop user=ann --for 1h --id b1");
    good(&weir, "unblock b1");
    let out = wait_for("both changes", || {
        let out = good(&weir, "why -d shop user=ann --since 1h");
        out.contains(" removed by ann: b1, block shop user=ann").then_some(out)
    });
    assert!(out.contains(" added: b1 blocks it for 1h, by ann"), "{out}");
}

#[test]
fn several_replicas_are_asked_and_one_that_is_away_is_named() {
    let (a, b) = (serving(RULES).start(), serving(RULES).start());
    let why = |servers: &[String]| -> Ran {
        let servers: Vec<String> = servers.iter().map(|url| format!("--server {url}")).collect();
        run(&format!("why -d shop user=ann {}", servers.join(" ")), &[])
    };
    let [a, b] = [a.debug, b.debug].map(|debug| format!("http://{debug}"));
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let ran = why(&[a, b.clone()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    assert_eq!(lines(&ran.out, "shop: user=ann"), 2, "{}", ran.out);
    assert!(ran.out.contains(&b), "{}", ran.out);
    let ran = why(&[nobody.clone(), b]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.starts_with(&format!("error: no answer from {nobody}: ")), "{}", ran.err);
    assert_eq!(lines(&ran.out, "shop: user=ann"), 1, "{}", ran.out);
}
