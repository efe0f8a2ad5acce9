//! Rule files change while the service runs. Tests of events turn polling off.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::{ask, channel, request};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

/// Rules of a domain, identified by their limit.
fn rules(domain: &str, limit: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n  - key: user\n    \
         rate_limit: {{ unit: year, requests_per_unit: {limit} }}\n"
    )
}

/// Waits until exactly these domains are active, each with its limit.
pub fn until(weir: &Weir, wanted: &[(&str, u32)]) {
    let line = |(domain, limit): &(&str, u32)| {
        format!("{domain}.user: unit=YEAR requests_per_unit={limit},")
    };
    let wanted: Vec<_> = wanted.iter().map(line).collect();
    wait_for(&format!("{wanted:?} is active"), || {
        let body = http::get(weir.debug, "/rlconfig").body;
        let mut lines: Vec<_> = body.lines().collect();
        lines.sort();
        let all = lines.len() == wanted.len()
            && lines.iter().zip(&wanted).all(|(line, wanted)| line.starts_with(wanted));
        all.then_some(())
    });
}

/// `weir serve` with one file in the directory `rules`.
fn directory() -> Setup {
    let setup = Setup::new().file("rules/shop.yaml", &rules("shop", 1)).arg("serve");
    setup.arg("--rules").arg("rules").env("WEIR__RULES__POLL", "0")
}

/// Writes beside the file and renames over it, as most editors do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Creates a link, or replaces one atomically.
fn link(target: &str, path: &Path) {
    let new = path.with_extension("tmp");
    symlink(target, &new).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn files_of_a_directory_are_edited_replaced_added_and_deleted() {
    let weir = directory().start();
    let shop = weir.path("rules/shop.yaml");
    until(&weir, &[("shop", 1)]);
    fs::write(&shop, rules("shop", 2)).unwrap();
    until(&weir, &[("shop", 2)]);
    for limit in 3..5 {
        replace(&shop, &rules("shop", limit));
        until(&weir, &[("shop", limit)]);
    }
    fs::write(weir.path("rules/cart.yaml"), rules("cart", 1)).unwrap();
    until(&weir, &[("cart", 1), ("shop", 4)]);
    fs::create_dir_all(weir.path("rules/deep/deeper")).unwrap();
    fs::write(weir.path("rules/deep/deeper/a.yaml"), rules("deep", 1)).unwrap();
    until(&weir, &[("cart", 1), ("deep", 1), ("shop", 4)]);
    fs::write(weir.path("rules/deep/deeper/a.yaml"), rules("deep", 2)).unwrap();
    until(&weir, &[("cart", 1), ("deep", 2), ("shop", 4)]);
    fs::remove_file(&shop).unwrap();
    until(&weir, &[("cart", 1), ("deep", 2)]);
    fs::rename(weir.path("rules/deep"), weir.path("gone")).unwrap();
    until(&weir, &[("cart", 1)]);
}

#[test]
fn a_directory_may_be_replaced() {
    let weir = directory().start();
    for limit in 2..4 {
        fs::create_dir(weir.path("new")).unwrap();
        fs::write(weir.path("new/shop.yaml"), rules("shop", limit)).unwrap();
        fs::rename(weir.path("rules"), weir.path(&format!("old{limit}"))).unwrap();
        fs::rename(weir.path("new"), weir.path("rules")).unwrap();
        until(&weir, &[("shop", limit)]);
    }
    fs::write(weir.path("rules/shop.yaml"), rules("shop", 4)).unwrap();
    until(&weir, &[("shop", 4)]);
}

#[test]
fn one_file_is_edited_replaced_deleted_and_recreated() {
    let weir = serving(&rules("shop", 1)).env("WEIR__RULES__POLL", "0").start();
    let file = weir.path("rules.yaml");
    fs::write(&file, rules("shop", 2)).unwrap();
    until(&weir, &[("shop", 2)]);
    for limit in 3..5 {
        replace(&file, &rules("shop", limit));
        until(&weir, &[("shop", limit)]);
    }
    fs::remove_file(&file).unwrap();
    until_rejected(&weir, "cannot be read");
    until(&weir, &[("shop", 4)]);
    fs::write(&file, rules("shop", 5)).unwrap();
    until(&weir, &[("shop", 5)]);
}

#[test]
fn a_root_that_is_a_link_is_swapped() {
    let setup = Setup::new()
        .file("v1/shop.yaml", &rules("shop", 1))
        .file("v2/shop.yaml", &rules("shop", 2))
        .file("v3/shop.yaml", &rules("shop", 3))
        .env("WEIR__RULES__POLL", "0");
    link("v1", &setup.path("rules"));
    let weir = setup.arg("serve").arg("--rules").arg("rules").start();
    until(&weir, &[("shop", 1)]);
    for (target, limit) in [("v2", 2), ("v3", 3), ("v1", 1)] {
        link(target, &weir.path("rules"));
        until(&weir, &[("shop", limit)]);
    }
    // Its target is watched too.
    fs::write(weir.path("v1/shop.yaml"), rules("shop", 4)).unwrap();
    until(&weir, &[("shop", 4)]);
}

#[test]
fn a_configmap_is_updated() {
    // Mounted as a directory, or named by one file of it.
    for named in ["mount", "mount/rules.yaml"] {
        let setup = Setup::new()
            .file("mount/..v1/rules.yaml", &rules("shop", 1))
            .env("WEIR__RULES__POLL", "0");
        symlink("..v1", setup.path("mount/..data")).unwrap();
        symlink("..data/rules.yaml", setup.path("mount/rules.yaml")).unwrap();
        let weir = setup.arg("serve").arg("--rules").arg(named).start();
        until(&weir, &[("shop", 1)]);
        for limit in 2..5 {
            let version = weir.path(&format!("mount/..v{limit}"));
            fs::create_dir(&version).unwrap();
            fs::write(version.join("rules.yaml"), rules("shop", limit)).unwrap();
            symlink(format!("..v{limit}"), weir.path("mount/..data_tmp")).unwrap();
            fs::rename(weir.path("mount/..data_tmp"), weir.path("mount/..data")).unwrap();
            fs::remove_dir_all(weir.path(&format!("mount/..v{}", limit - 1))).unwrap();
            until(&weir, &[("shop", limit)]);
        }
        assert_eq!(weir.metric("weir_config_load_error_total"), 0);
    }
}

#[test]
fn the_references_runtime_root_is_swapped() {
    let setup = Setup::new()
        .file("v1/ratelimit/config/shop.yaml", &rules("shop", 1))
        .file("v2/ratelimit/config/shop.yaml", &rules("shop", 2))
        .file("v3/ratelimit/config/shop.yaml", &rules("shop", 3));
    link("v1", &setup.path("current"));
    let root = setup.path("current");
    let weir = setup
        .arg("serve")
        .env("RUNTIME_ROOT", root)
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("RUNTIME_WATCH_ROOT", "true")
        .env("WEIR__RULES__POLL", "0")
        .start();
    until(&weir, &[("shop", 1)]);
    for (target, limit) in [("v2", 2), ("v3", 3)] {
        link(target, &weir.path("current"));
        until(&weir, &[("shop", limit)]);
    }
}

#[test]
fn the_references_app_directory_changes() {
    let setup = Setup::new().file("root/ratelimit/config/shop", &rules("shop", 1)).arg("serve");
    let root = setup.path("root");
    let weir = setup
        .env("RUNTIME_ROOT", root)
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("RUNTIME_WATCH_ROOT", "false")
        .env("WEIR__RULES__POLL", "0")
        .start();
    until(&weir, &[("shop", 1)]);
    fs::write(weir.path("root/ratelimit/config/shop"), rules("shop", 2)).unwrap();
    until(&weir, &[("shop", 2)]);
    fs::write(weir.path("root/ratelimit/config/cart"), rules("cart", 1)).unwrap();
    until(&weir, &[("cart", 1), ("shop", 2)]);
}

#[test]
fn polling_finds_changes_without_events() {
    let weir = directory().env("WEIR__RULES__POLL", "100ms").start();
    // A change through another name of the file causes no event in the directory.
    fs::hard_link(weir.path("rules/shop.yaml"), weir.path("other-name")).unwrap();
    fs::write(weir.path("other-name"), rules("shop", 2)).unwrap();
    until(&weir, &[("shop", 2)]);
}

#[test]
fn changes_are_loaded_while_something_always_changes() {
    let weir = directory().start();
    let noise = weir.path("rules/noise");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::write(&noise, "noise").unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        });
        for limit in 2..5 {
            replace(&weir.path("rules/shop.yaml"), &rules("shop", limit));
            until(&weir, &[("shop", limit)]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Unchanged content is not loaded again: these sets and the first.
    assert_eq!(weir.metric("weir_config_load_success_total"), 4);
}

/// The errors of a rejected set, if any.
fn rejected(weir: &Weir) -> Option<String> {
    let status = http::get(weir.debug, "/status").json();
    Some(status["refused"]["problems"].as_str()?.to_owned())
}

fn until_rejected(weir: &Weir, why: &str) {
    wait_for(&format!("{why:?} is reported"), || rejected(weir)?.contains(why).then_some(()));
}

fn until_fixed(weir: &Weir) {
    wait_for("nothing is wrong", || rejected(weir).is_none().then_some(()));
}

#[test]
fn an_invalid_edit_changes_nothing_until_it_is_fixed() {
    let mut weir = directory().start();
    let bad = "domain: cart\ndescriptors:\n  - kye: user\n";
    fs::write(weir.path("rules/cart.yaml"), bad).unwrap();
    fs::write(weir.path("rules/shop.yaml"), rules("shop", 2)).unwrap();
    until_rejected(&weir, "cart.yaml:3:5");
    // Valid files of an invalid set are not used either.
    until(&weir, &[("shop", 1)]);
    // Two if the files were read between the two edits.
    assert!(weir.metric("weir_config_load_error_total") >= 1);
    assert_eq!(weir.metric("weir_config_last_load_successful"), 0);
    weir.until_said("the previous ones stay active").unwrap();
    weir.until_said("cart.yaml:3:5").unwrap();
    assert!(weir.is_healthy());

    fs::write(weir.path("rules/cart.yaml"), rules("cart", 1)).unwrap();
    until(&weir, &[("cart", 1), ("shop", 2)]);
    until_fixed(&weir);
    assert_eq!(weir.metric("weir_config_last_load_successful"), 1);
}

#[test]
fn a_partly_written_file_changes_nothing() {
    let weir = directory().start();
    let whole = rules("shop", 1);
    fs::write(weir.path("rules/shop.yaml"), &whole[..whole.len() - 20]).unwrap();
    until_rejected(&weir, "shop.yaml");
    // The active rules are valid again.
    fs::write(weir.path("rules/shop.yaml"), &whole).unwrap();
    until_fixed(&weir);
    until(&weir, &[("shop", 1)]);
}

#[tokio::test]
async fn weir_starts_without_valid_rules_and_waits_for_them() {
    let bad = "domain: shop\ndescriptors:\n  - kye: user\n";
    for first in [Some(bad), None] {
        let setup = serving(bad).env("WEIR__RULES__POLL", "0");
        if first.is_none() {
            fs::remove_file(setup.path("rules.yaml")).unwrap();
        }
        let mut weir = setup.start_unhealthy();
        until_rejected(&weir, "rules.yaml");
        assert!(!weir.is_healthy());
        weir.until_said("every request gets an error").unwrap();
        weir.until_said("rules.yaml").unwrap();
        let refused = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unknown);
        assert_eq!(refused.message(), "no rate limit configuration loaded");

        replace(&weir.path("rules.yaml"), &rules("shop", 1));
        wait_for("weir is healthy", || weir.is_healthy().then_some(()));
        let answer = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
    }
}

#[test]
fn health_may_ignore_rules() {
    let weir = serving("no rules").env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true").start();
    until_rejected(&weir, "rules.yaml");
    assert!(weir.is_healthy());
}

#[tokio::test]
async fn counts_and_metrics_survive_a_change() {
    let weir = directory().start();
    let left = async || {
        let answer = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap();
        (answer.overall_code(), answer.statuses[0].limit_remaining)
    };
    assert_eq!(left().await, (Code::Ok, 0));
    fs::write(weir.path("rules/shop.yaml"), rules("shop", 5)).unwrap();
    until(&weir, &[("shop", 5)]);
    assert_eq!(left().await, (Code::Ok, 3));
    fs::write(weir.path("rules/shop.yaml"), rules("shop", 2)).unwrap();
    until(&weir, &[("shop", 2)]);
    assert_eq!(left().await, (Code::OverLimit, 0));
    assert_eq!(weir.metric(r#"weir_rule_hits_total{domain="shop",rule="user"}"#), 3);
    assert_eq!(weir.metric(r#"weir_rule_over_limit_total{domain="shop",rule="user"}"#), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_succeed_during_fifty_reloads() {
    let weir = Arc::new(directory().start());
    let stop = Arc::new(AtomicBool::new(false));
    let (grpc, stopped) = (weir.grpc, stop.clone());
    let asking = tokio::spawn(async move {
        let mut client = RateLimitServiceClient::new(channel(grpc).await);
        let mut asked = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            let answer = client.should_rate_limit(request("shop", &[("user", "ann")])).await;
            let answer = answer.expect("no request fails").into_inner();
            assert!(answer.statuses[0].current_limit.is_some(), "some rule is active");
            asked += 1;
        }
        asked
    });
    let reloading = tokio::task::spawn_blocking(move || {
        for limit in 1..=50 {
            replace(&weir.path("rules/shop.yaml"), &rules("shop", limit));
            until(&weir, &[("shop", limit)]);
        }
        weir
    });
    let weir = reloading.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let asked = asking.await.unwrap();
    assert!(asked >= 50, "{asked}");
    let answered = ["ok", "over_limit"]
        .map(|outcome| weir.metric(&format!(r#"weir_requests_total{{outcome="{outcome}"}}"#)));
    assert_eq!(answered.iter().sum::<u64>(), asked);
    assert_eq!(weir.metric("weir_config_load_error_total"), 0);
    assert_eq!(weir.metric(r#"weir_requests_total{outcome="invalid"}"#), 0);
}
