//! Log messages about keys that fail.

use super::*;
use crate::support::api::ask;
use crate::support::load::Load;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::{Config, Server};

const RULES: &str = "\
domain: shop
descriptors:
  - key: window
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: windows
    rate_limits:
      - { unit: minute, requests_per_unit: 5 }
      - { unit: hour, requests_per_unit: 50 }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: token_bucket }
";

#[tokio::test]
async fn a_failed_key_is_named() {
    let redis = Server::start();
    for (entry, key, reason) in [
        ("window", "weir:{shop|window=ann}f3600", "state cannot be read"),
        ("windows", "weir:{shop|windows=ann}f60+f3600", "state cannot be read"),
        ("bucket", "weir:{shop|bucket=ann}t60000000us", "is not weir's"),
    ] {
        let mut weir = with_redis(redis.port(), RULES).start();
        match entry {
            "bucket" => redis.command(&["RPUSH", key, "x"]),
            _ => redis.command(&["SET", key, "no number"]),
        };
        assert!(ask(weir.grpc, request("shop", &[(entry, "ann")])).await.is_err());
        let rest = weir.until_said("redis key failed").unwrap();
        assert!(rest.contains(&format!("key=\"{key}\"")), "{rest}");
        assert!(rest.contains(reason), "{rest}");
    }
}

/// A missing permission shows only inside the script.
#[tokio::test]
async fn a_missing_permission_is_logged() {
    for (without, entry) in [
        ("get", "windows"),
        ("set", "bucket"),
        ("incrby", "window"),
        ("time", "window"),
        ("time", "windows"),
        ("time", "bucket"),
    ] {
        let redis = Server::with(Config {
            lines: vec![
                "user default on >root ~* &* +@all".into(),
                format!("user weir on >pw ~* +@all -{without}"),
            ],
            password: Some("root".into()),
            ..Config::default()
        });
        let url = format!("redis://weir:pw@127.0.0.1:{}", redis.port());
        let mut weir = serving(RULES).env("REDIS_URL", url).start();
        let rest = weir.until_said("the redis user lacks permissions").unwrap();
        assert!(rest.contains(&format!(" missing=\"+{without}\"")), "{rest}");
        assert!(ask(weir.grpc, request("shop", &[(entry, "ann")])).await.is_err());
        // Some versions also name the command.
        let rest = weir.until_said("redis command failed").unwrap();
        assert!(rest.contains(" run ") && !rest.contains("arithmetic"), "{rest}");
    }
}

/// A server that answers late is not lost: the connections are called slow, in one line.
#[test]
fn slow_connections_are_one_line_and_not_down() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = with_redis(proxy.port(), HIGH_LIMIT).env("WEIR__RUNTIME__THREADS", "2");
    let mut weir = setup.env("WEIR__STORE__REDIS__SLOW_AFTER", "300ms").start();
    let count =
        |state: &str| weir.metric(&format!(r#"weir_redis_connections{state}{{redis="main"}}"#));
    // Two threads that serve gRPC, and that of /json.
    let all = 3;
    wait_for_connections(&weir, all);
    let counts = connection_counts(&weir);
    // Less than the second after which a connection counts as lost.
    proxy.delay(Duration::from_millis(500));
    wait_for("connections are slow", || (count("_slow") == all).then_some(()));
    assert_eq!((count(""), count("_down")), (0, 0));
    proxy.resume();
    wait_for_connections(&weir, all);
    assert_eq!(count("_slow"), 0);
    assert_eq!(connection_counts(&weir), counts, "slow connections are not lost");
    weir.signal("INT");
    weir.wait_until_ended();
    let said = weir.said_in_all();
    let lines = connection_lines(&said);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let start = format!(" WARN redis connection slow, probing server=127.0.0.1:{} ", proxy.port());
    let (_, fields) = lines[0].split_once(&start).unwrap_or_else(|| panic!("{lines:#?}"));
    let elapsed = fields.split(' ').next().unwrap().strip_prefix("elapsed_ms=").unwrap();
    assert!(elapsed.parse::<u64>().unwrap() >= 300, "{fields}");
    assert!(fields.ends_with(" slow_after_ms=300 suppressed=0"), "{fields}");
}

/// Returns how often connections went down, and came up.
fn connection_counts(weir: &Weir) -> (u64, u64) {
    let count =
        |what: &str| weir.metric(&format!(r#"weir_redis_connection_{what}_total{{redis="main"}}"#));
    (count("failures"), count("recoveries"))
}

/// The lines of the log about connections to Redis.
fn connection_lines(said: &str) -> Vec<&str> {
    let about = ["redis connection", "connect to redis"];
    said.lines().filter(|line| about.iter().any(|text| line.contains(text))).collect()
}

/// Each thread has a connection of its own; some notice a loss at once, others only when idle.
#[test]
fn a_restart_of_redis_is_one_line_down_and_one_line_up() {
    let mut redis = Server::start();
    let setup = with_redis(redis.port(), HIGH_LIMIT).env("WEIR__RUNTIME__THREADS", "4");
    let mut weir = setup.store_times("2s").start();
    // Four threads that serve gRPC, and that of /json.
    wait_for_connections(&weir, 5);
    let load = Load::start(weir.grpc, 200, &[user_request()]);
    load.wait_for_outcomes(40);
    redis.restart();
    let rest = weir.until_said("redis connections up again").unwrap();
    load.stop();
    assert!(rest.contains(" connections=5 "), "{rest}");
    weir.signal("INT");
    weir.wait_until_ended();
    let said = weir.said_in_all();
    let lines = connection_lines(&said);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains(" WARN "), "{lines:#?}");
    assert!(lines[1].contains(" INFO redis connections up again server="), "{lines:#?}");
}
