//! Log messages about keys that fail.

use super::*;
use crate::support::api::ask;
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
