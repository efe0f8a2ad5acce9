//! Answers while Redis is unreachable.

use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::{ask, channel};
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;

/// A domain with a limit of 10 per year and further keys.
fn domain(name: &str, keys: &str) -> String {
    format!(
        "domain: {name}\n{keys}descriptors:\n  - key: user\n    \
         rate_limit: {{ unit: year, requests_per_unit: 10 }}\n"
    )
}

/// A domain for each policy, and one without a policy, for which the settings have one.
fn all_domains(port: u16, policy: &str) -> Setup {
    let setup = Setup::new().file("rules/plain.yaml", &domain("plain", ""));
    let setup = ["error", "allow", "deny", "local"].iter().fold(setup, |setup, name| {
        let keys = format!("on_store_failure: {name}\n");
        setup.file(&format!("rules/{name}.yaml"), &domain(name, &keys))
    });
    let rules = setup.path("rules");
    setup
        .arg("serve")
        .arg("--rules")
        .arg(rules.to_str().expect("text"))
        .env("REDIS_URL", format!("127.0.0.1:{port}"))
        .env("WEIR__STORE__ON_FAILURE", policy)
        .env("WEIR__STORE__REPLICAS", "4")
}

/// Sends twelve requests. Returns how many are admitted, or None if they fail.
async fn admitted(weir: &Weir, domain: &str) -> Option<usize> {
    let mut count = 0;
    for _ in 0..12 {
        match ask(weir.grpc, request(domain, &[("user", "ann")])).await {
            Ok(answer) => count += usize::from(answer.overall_code() == Code::Ok),
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::Unknown, "{status}");
                return None;
            }
        }
    }
    Some(count)
}

#[tokio::test]
async fn the_policy_of_a_domain_overrides_that_of_the_settings() {
    // Each of four replicas has a share of 3.
    let of_policy = [("error", None), ("allow", Some(12)), ("deny", Some(0)), ("local", Some(3))];
    for (policy, of_plain) in of_policy {
        let redis = Server::start();
        let proxy = Proxy::start(redis.port());
        let weir = all_domains(proxy.port(), policy).start();
        // Nearly used up in Redis, but local counts start at zero.
        for left in (1..10).rev() {
            let answer = ask(weir.grpc, request("local", &[("user", "ann")])).await.unwrap();
            assert_eq!(answer.statuses[0].limit_remaining, left);
        }
        proxy.refuse();
        wait_for("all connections are down", || {
            let down = weir.metric(r#"weir_redis_connections_down{redis="main"}"#);
            (down >= connections()).then_some(())
        });
        for (domain, wanted) in of_policy.into_iter().chain([("plain", of_plain)]) {
            assert_eq!(admitted(&weir, domain).await, wanted, "{domain} with {policy}");
        }
        let degraded = |policy| {
            weir.metric(&format!(r#"weir_store_degraded_charges_total{{policy="{policy}"}}"#))
        };
        for (name, wanted) in [("error", 1), ("allow", 12), ("deny", 12), ("local", 12)] {
            let twice = if name == policy { 2 } else { 1 };
            assert!(degraded(name) >= twice * wanted, "{name} with {policy}: {}", degraded(name));
        }
        let failed = ["unavailable", "timed_out"].map(|reason| {
            weir.metric(&format!(r#"weir_store_failed_charges_total{{reason="{reason}"}}"#))
        });
        let sum: u64 = ["error", "allow", "deny", "local"].map(degraded).iter().sum();
        assert_eq!(failed.iter().sum::<u64>(), sum, "each for one of two reasons");
    }
}

/// The number of connections: one for each serving thread, of which there is one per core.
pub(super) fn connections() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

#[tokio::test]
async fn policies_answer_within_the_budget() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = all_domains(proxy.port(), "error").default_store_times().start();
    for refused in [true, false] {
        if refused {
            proxy.refuse();
        } else {
            proxy.resume();
            proxy.stall();
        }
        let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
        for domain in ["error", "allow", "deny", "local"] {
            let mut took = Vec::new();
            for _ in 0..21 {
                let sent = Instant::now();
                let _ = client.should_rate_limit(request(domain, &[("user", "bob")])).await;
                took.push(sent.elapsed());
            }
            took.sort();
            // A busy machine delays some requests, but not half of them.
            assert!(took[10] < Duration::from_millis(15), "{domain}: {took:?}");
        }
    }
}
