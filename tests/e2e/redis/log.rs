//! Log messages about keys that fail.

use super::*;
use crate::support::api::ask;
use crate::support::load::Load;
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
        let mut weir = with_time_limit(with_redis(redis.port(), RULES), GENEROUS).start();
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
    for (without, entry) in [("get", "windows"), ("set", "bucket"), ("incrby", "window")] {
        let redis = Server::with(Config {
            lines: vec![
                "user default on >root ~* &* +@all".into(),
                format!("user weir on >pw ~* +@all -{without}"),
            ],
            password: Some("root".into()),
            ..Config::default()
        });
        let url = format!("redis://weir:pw@127.0.0.1:{}", redis.port());
        let mut weir = with_time_limit(serving(RULES).env("REDIS_URL", url), GENEROUS).start();
        assert!(ask(weir.grpc, request("shop", &[(entry, "ann")])).await.is_err());
        let rest = weir.until_said("redis key failed").unwrap();
        assert!(rest.contains(&format!("{entry}=ann")), "{rest}");
        match entry {
            "window" => assert!(rest.contains("ACL LOG"), "{rest}"),
            // Some versions also name the command.
            _ => assert!(rest.contains(" run "), "{rest}"),
        }
    }
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
    let mut weir = with_time_limit(setup, "2s").start();
    let load = Load::start(weir.grpc, 200, &[user_request()]);
    std::thread::sleep(Duration::from_millis(200));
    redis.restart();
    let rest = weir.until_said("redis connections up again").unwrap();
    load.stop();
    // Four threads that serve gRPC, and that of /json.
    assert!(rest.contains(" connections=5 "), "{rest}");
    weir.signal("INT");
    weir.wait_until_ended();
    let said = weir.said_in_all();
    let lines = connection_lines(&said);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains(" WARN "), "{lines:#?}");
    assert!(lines[1].contains(" INFO redis connections up again server="), "{lines:#?}");
}
