//! Lists of values that rules name.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

use prost_types::Any;
use serde_json::json;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

use crate::support::api::{request, wait_for_code};
use crate::support::management::{Management, any};
use crate::support::weir::{Setup, Weir};
use crate::support::{http, wait_for};

const RULES: &str = "domain: shop\ndescriptors:\n- key: ip\n  values_file: lists/blocked.txt\n  \
                     rate_limit: { unit: year, requests_per_unit: 0 }\n";

/// Waits until an address is blocked, or is not.
async fn until(weir: &Weir, ip: &str, wanted: Code) {
    wait_for_code(weir.grpc, request("shop", &[("ip", ip)]), wanted).await;
}

/// Waits until this is among the errors of a rejected set.
fn until_rejected(weir: &Weir, why: &str) {
    wait_for(&format!("{why:?} is reported"), || {
        let status = http::get(weir.debug, "/status").json();
        status["refused"]["problems"].as_str()?.contains(why).then_some(())
    });
}

#[tokio::test]
async fn a_list_is_reloaded_and_a_broken_line_keeps_the_old_rules() {
    // A directory that is watched as a whole, and a file: then the list beside it is watched too.
    for named in ["rules", "rules/shop.yaml"] {
        let setup = Setup::new().file("rules/shop.yaml", RULES);
        let setup = setup.file("rules/lists/blocked.txt", "203.0.113.0/24\n");
        let setup = setup.arg("serve").arg("--rules").arg(named).env("WEIR__RULES__POLL", "0");
        let weir = setup.start();
        until(&weir, "203.0.113.7", Code::OverLimit).await;
        until(&weir, "198.51.100.7", Code::Ok).await;
        let list = weir.path("rules/lists/blocked.txt");
        fs::write(&list, "198.51.100.0/24\n").unwrap();
        until(&weir, "198.51.100.7", Code::OverLimit).await;
        until(&weir, "203.0.113.7", Code::Ok).await;
        fs::write(&list, "203.0.113.0/24\n198.51.100.1/24\n").unwrap();
        until_rejected(
            &weir,
            "lists/blocked.txt:2:1: error: config error, '198.51.100.1/24' has bits",
        );
        until(&weir, "198.51.100.7", Code::OverLimit).await;
        until(&weir, "203.0.113.7", Code::Ok).await;
        fs::remove_file(&list).unwrap();
        until_rejected(&weir, "lists/blocked.txt': cannot be read");
        until(&weir, "198.51.100.7", Code::OverLimit).await;
        fs::write(&list, "203.0.113.0/24\n").unwrap();
        until(&weir, "203.0.113.7", Code::OverLimit).await;
        until(&weir, "198.51.100.7", Code::Ok).await;
    }
}

/// Rules whose list has this name.
fn resource(list: &str) -> Any {
    let policy = RateLimitPolicy { unit: RateLimitUnit::Year.into(), ..Default::default() };
    let descriptor = RateLimitDescriptor {
        key: "ip".to_owned(),
        values_file: list.to_owned(),
        rate_limit: Some(policy),
        ..Default::default()
    };
    any(&RateLimitConfig {
        name: "shop-rules".to_owned(),
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    })
}

#[tokio::test]
async fn a_management_server_names_lists_of_one_directory() {
    let server = Management::start();
    let serving = |setup: Setup| {
        let setup = setup.arg("serve").env("CONFIG_TYPE", "GRPC_XDS_SOTW");
        let setup = setup.env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string());
        let weir = setup.env("WEIR__RULES__POLL", "0").start_unhealthy();
        server.sotw.next();
        weir
    };
    let without = serving(Setup::new());
    let reason = server.rejected("1", vec![resource("blocked.txt")], "");
    assert!(reason.contains("`values_file` over xDS, but no directory has lists"), "{reason}");
    assert!(reason.contains("set rules.values_dir"), "{reason}");
    drop(without);

    let setup = Setup::new().file("lists/blocked.txt", "203.0.113.0/24\n");
    let directory = setup.path("lists");
    let weir = serving(setup.env("WEIR__RULES__VALUES_DIR", directory));
    let reason = server.rejected("1", vec![resource("../blocked.txt")], "");
    assert!(reason.contains("`values_file` is '../blocked.txt'"), "{reason}");
    server.set("2", vec![resource("blocked.txt")]);
    until(&weir, "203.0.113.7", Code::OverLimit).await;
    let list = weir.path("lists/blocked.txt");
    fs::write(&list, "198.51.100.0/24\n").unwrap();
    until(&weir, "198.51.100.7", Code::OverLimit).await;
    until(&weir, "203.0.113.7", Code::Ok).await;
    fs::write(&list, "198.51.100.1/24\n").unwrap();
    until_rejected(&weir, "lists/blocked.txt:1:1: error: config error, '198.51.100.1/24' has bits");
    until(&weir, "198.51.100.7", Code::OverLimit).await;
    fs::write(&list, "203.0.113.0/24\n").unwrap();
    until(&weir, "203.0.113.7", Code::OverLimit).await;
}

/// A weir with rules from a server, and a directory for their lists.
fn with_lists(server: &Management) -> Weir {
    let setup = Setup::new().file("lists/other.txt", "");
    let directory = setup.path("lists");
    let setup = setup.arg("serve").env("CONFIG_TYPE", "GRPC_XDS_SOTW");
    let setup = setup.env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string());
    let setup = setup.env("WEIR__RULES__VALUES_DIR", directory);
    let weir = setup.env("WEIR__RULES__POLL", "0").start_unhealthy();
    server.sotw.next();
    weir
}

#[tokio::test]
async fn a_set_whose_list_is_missing_is_loaded_and_acknowledged_once_the_list_is_there() {
    let server = Management::start();
    let weir = with_lists(&server);
    let reason = server.rejected("1", vec![resource("blocked.txt")], "");
    assert!(reason.contains("blocked.txt': cannot be read"), "{reason}");
    assert!(!weir.is_healthy());
    let list = weir.path("lists/blocked.txt");
    fs::write(&list, "203.0.113.0/24\n").unwrap();
    let late = server.sotw.next();
    let wanted = ("1", "nonce of 1", None);
    assert_eq!((&*late.version_info, &*late.response_nonce, late.error_detail), wanted);
    until(&weir, "203.0.113.7", Code::OverLimit).await;
    assert!(weir.is_healthy());
    let status = http::get(weir.debug, "/status").json();
    assert_eq!((&status["source"]["version"], &status["refused"]), (&"1".into(), &json!(null)));
    // It is followed.
    fs::write(&list, "198.51.100.0/24\n").unwrap();
    until(&weir, "198.51.100.7", Code::OverLimit).await;
}

#[tokio::test]
async fn a_set_that_was_rejected_for_its_list_is_loaded_when_it_is_sent_again() {
    let server = Management::start();
    let weir = with_lists(&server);
    server.rejected("1", vec![resource("blocked.txt")], "");
    server.rejected("1", vec![resource("blocked.txt")], "");
    server.sotw.end();
    server.sotw.next();
    fs::write(weir.path("lists/blocked.txt"), "203.0.113.0/24\n").unwrap();
    wait_for("the rules are loaded", || weir.is_healthy().then_some(()));
    until(&weir, "203.0.113.7", Code::OverLimit).await;
    while server.answer_to("2", vec![resource("blocked.txt")]).version_info != "2" {}
    assert_eq!(weir.metric("weir_config_last_load_successful"), 1);
}

#[tokio::test]
async fn a_list_that_is_rewritten_continuously_keeps_its_last_whole_version() {
    let networks = |from: u32| -> String {
        (from..from + 200).map(|i| format!("10.{}.{}.0/24\n", i / 100, i % 100)).collect()
    };
    let setup = Setup::new().file("rules/shop.yaml", RULES);
    let setup = setup.file("rules/lists/blocked.txt", &networks(0));
    let weir = setup.arg("serve").arg("--rules").arg("rules").start();
    until(&weir, "10.0.7.7", Code::OverLimit).await;
    let list = weir.path("rules/lists/blocked.txt");
    // Rewrites the list for a second, in parts. Returns the longest time without a change.
    let rewrite = || {
        let (end, mut changed) = (Instant::now() + Duration::from_secs(1), Instant::now());
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            let mut file = fs::File::create(&list).unwrap();
            for part in networks(0).as_bytes().chunks(1_000) {
                longest = longest.max(changed.elapsed());
                changed = Instant::now();
                thread::sleep(Duration::from_millis(5));
                file.write_all(part).unwrap();
            }
        }
        longest.max(changed.elapsed())
    };
    let is_blocked = || {
        let entries = json!([{ "key": "ip", "value": "10.1.99.7" }]);
        let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
        let answer = http::ask(weir.http, "POST", "/json", &[], body.to_string().as_bytes());
        answer.unwrap().status == 429
    };
    // On a busy machine the writer may pause for so long that a part of the list is whole for weir.
    let mut rounds = 0;
    for _ in 0..30 {
        let (longest, are_blocked) = thread::scope(|scope| {
            let writer = scope.spawn(rewrite);
            let mut are_blocked = true;
            while !writer.is_finished() {
                are_blocked &= is_blocked();
            }
            (writer.join().unwrap(), are_blocked)
        });
        if longest < Duration::from_millis(70) {
            assert!(are_blocked, "a part of the list is loaded, {longest:?} without a change");
            rounds += 1;
        }
        if rounds == 3 {
            break;
        }
        until(&weir, "10.1.99.7", Code::OverLimit).await;
    }
    assert!(rounds > 0, "the machine is too busy");
    fs::write(&list, networks(300)).unwrap();
    until(&weir, "10.4.7.7", Code::OverLimit).await;
    until(&weir, "10.0.7.7", Code::Ok).await;
}

#[tokio::test]
async fn a_list_whose_read_blocks_stops_only_itself() {
    const BLOCKS: &str = "/proc/kmsg";
    if fs::File::open(BLOCKS).is_err() {
        // Only root may open it; units have the rest.
        return;
    }
    let setup = Setup::new().file("rules/shop.yaml", RULES);
    let setup = setup.file("rules/lists/blocked.txt", "203.0.113.0/24\n");
    let mut weir = setup.arg("serve").arg("--rules").arg("rules").start();
    until(&weir, "203.0.113.7", Code::OverLimit).await;
    let list = weir.path("rules/lists/blocked.txt");
    symlink(BLOCKS, weir.path("rules/lists/link")).unwrap();
    fs::rename(weir.path("rules/lists/link"), &list).unwrap();
    let more = RULES.replace("shop", "cart").replace("lists/blocked.txt", "lists/more.txt");
    fs::write(weir.path("rules/lists/more.txt"), "198.51.100.0/24\n").unwrap();
    fs::write(weir.path("rules/cart.yaml"), more).unwrap();
    wait_for_code(weir.grpc, request("cart", &[("ip", "198.51.100.7")]), Code::OverLimit).await;
    until(&weir, "203.0.113.7", Code::OverLimit).await;
    weir.until_said("their last whole versions stay in use").unwrap();
    let (_, problem) =
        weir.problems().into_iter().find(|(kind, _)| kind == "file").expect("a problem");
    assert!(problem["file"].as_str().unwrap().ends_with("lists/blocked.txt"), "{problem}");
    fs::remove_file(&list).unwrap();
    fs::write(&list, "192.0.2.0/24\n").unwrap();
    until(&weir, "192.0.2.7", Code::OverLimit).await;
}
