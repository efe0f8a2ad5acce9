//! Lists of values that rules name.

use std::fs;

use prost_types::Any;
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
