//! The formats of logs that `weir replay` reads, filters of fields, and the client's address.

use std::fs;

use crate::support::program::{Ended, weir_with};
use serde_json::Value;

const RULES: &str = "\
domain: shop
descriptors:
  - key: client
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: address
    network: [0.0.0.0/0, '::/0']
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn replay(args: &[&str], log: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    let command = ["replay", "rules.yaml", "-d", "shop"];
    weir_with(directory.path(), &[&command, args].concat(), log)
}

/// The keys that were denied most.
fn denied(args: &[&str], log: &str) -> Vec<String> {
    let (code, out, err) = replay(&[args, &["--output", "json"]].concat(), log);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["traffic"]["invalid"], 0, "{out}");
    let rules = json["rules"]["rules"].as_array().unwrap();
    let keys = rules.iter().flat_map(|rule| rule["denied"]["worst_keys"].as_array().unwrap());
    keys.map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

const ISTIO: &str = r#"[2026-11-22T10:00:00.000Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 12 3 2 "192.0.2.1,192.0.2.2" "curl/8.5.0" "r1" "shop.example" "10.0.0.9:8080" outbound|80||cart.shop.svc.cluster.local 10.0.0.7:1 10.0.0.7:8080 192.0.2.2:51000 - default
[2026-11-22T10:00:01.000Z] "GET /b HTTP/1.1" 200 - via_upstream - "-" 0 12 3 2 "192.0.2.1,192.0.2.3" "a \"b" "r2" "shop.example" "10.0.0.9:8080" outbound|80||cart.shop.svc.cluster.local 10.0.0.7:1 10.0.0.7:8080 192.0.2.2:51001 - default
"#;

const GATEWAY: &str = r#"{":authority":"shop.example","downstream_remote_address":"192.0.2.2:51000","start_time":"2026-11-22T10:00:00.000Z","method":"GET","x-envoy-origin-path":"/a","response_code":200,"x-forwarded-for":"192.0.2.1,192.0.2.2"}
{":authority":"shop.example","downstream_remote_address":"192.0.2.2:51001","start_time":"2026-11-22T10:00:01.000Z","method":"GET","x-envoy-origin-path":"/a","response_code":200,"x-forwarded-for":"192.0.2.1,192.0.2.3"}
"#;

const COMBINED: &str = r#"192.0.2.2 - - [22/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl \"x\""
192.0.2.2 - ann [22/Nov/2026:11:00:01 +0100] "GET /a HTTP/1.1" 200 12 "http://a/" "curl"
192.0.2.2 - - [22/Nov/2026:10:00:02 +0000] "\x16\x03" 400 0 "-" "-"
"#;

const CLIENT: &str = "client={client_address}";

#[test]
fn logs_of_proxies_are_read() {
    let istio_json = GATEWAY
        .replace("x-envoy-origin-path", "path")
        .replace("x-forwarded-for", "x_forwarded_for")
        .replace(":authority", "authority");
    for (format, log) in [
        ("istio", ISTIO),
        ("istio", istio_json.as_str()),
        ("envoy-gateway", GATEWAY),
        ("combined", COMBINED),
    ] {
        let client = ["--format", format, "--descriptor", CLIENT];
        assert_eq!(denied(&client, log), ["client=192.0.2.2"], "{format}");
        let path = ["--format", format, "--descriptor", "client={path}-{status}"];
        let expected: &[&str] = if log == ISTIO { &[] } else { &["client=/a-200"] };
        assert_eq!(denied(&path, log), expected, "{format}");
    }
    for (format, log) in [("istio", ISTIO), ("envoy-gateway", GATEWAY)] {
        let hops = ["--format", format, "--descriptor", CLIENT, "--trusted-hops", "1"];
        assert_eq!(denied(&hops, log), ["client=192.0.2.1"], "{format}");
    }
    // Behind a load balancer, which adds the client to the header: nginx and Apache log it as it came.
    let forwarded = COMBINED.replace("\n", " \"6.6.6.6, 203.0.113.7\"\n");
    for (hops, wanted) in [("0", "192.0.2.2"), ("1", "203.0.113.7"), ("2", "6.6.6.6")] {
        let args = ["--format", "combined", "--descriptor", CLIENT, "--trusted-hops", hops];
        assert_eq!(denied(&args, &forwarded), [format!("client={wanted}")], "{args:?}");
    }
    let envoy = "[2026-11-22T10:00:00Z] \"GET / HTTP/1.1\" 200 - 0 512 3 2 \"192.0.2.1, 192.0.2.7\" \"curl\" \"r1\" \
                 \"shop\" \"127.0.0.1:8080\"\n";
    assert_eq!(denied(&["--descriptor", CLIENT], &envoy.repeat(2)), ["client=192.0.2.7"]);
    let hops = ["--descriptor", CLIENT, "--trusted-hops", "1"];
    assert_eq!(denied(&hops, &envoy.repeat(2)), ["client=192.0.2.1"]);
}

#[test]
fn a_format_may_be_written_out() {
    let envoy = "%START_TIME%|%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%|%DOWNSTREAM_REMOTE_ADDRESS%|%REQ(X-User-Id)%";
    let log = "2026-11-22T10:00:00Z|/a|192.0.2.2:1|ann\n2026-11-22T10:00:01Z|/a|192.0.2.2:2|-\n";
    let format = ["--log-format", envoy];
    let with = |descriptor| [&format[..], &["--descriptor", descriptor]].concat();
    assert_eq!(denied(&with(CLIENT), log), ["client=192.0.2.2"]);
    assert_eq!(denied(&with("client={downstream_remote_address|host}"), log), ["client=192.0.2.2"]);
    assert_eq!(denied(&with("client={x_user_id}"), log), [""; 0]);
    let (code, _, err) = replay(&[&with(CLIENT)[..], &["--trusted-hops", "1"]].concat(), "");
    assert_eq!(code, Some(2));
    assert!(err.contains("no header X-Forwarded-For, in which --trusted-hops counts"), "{err}");
}

#[test]
fn errors_name_the_place_and_what_to_write() {
    for (args, wanted) in [
        (
            &["--log-format", "a %h", "--descriptor", CLIENT][..],
            "invalid log format 'a %h': character 3: `%` starts no operator",
        ),
        (
            &["--log-format", "%STRAT_TIME%", "--descriptor", CLIENT],
            "character 1: unknown operator `%STRAT_TIME%`: did you mean `%START_TIME%`?",
        ),
        (
            &["--log-format", "%START_TIME% %REQ(:METHOD)%", "--descriptor", "client={user}"],
            "the log format has no field `user`: its fields are time, method",
        ),
        (&["--descriptor", "client={a|lst}"], "there is no filter `lst`: write `first` or `last`"),
        (
            &["--format", "jsonl", "--trusted-hops", "1", "--descriptor", CLIENT],
            "this format has no client_address, which --trusted-hops is for",
        ),
        (
            &["--format", "istio", "--log-format", "%DURATION%", "--descriptor", CLIENT],
            "cannot be used with",
        ),
    ] {
        let (code, _, err) = replay(args, "");
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(wanted), "{wanted}: {err}");
    }
    let (_, out, _) = replay(&["--format", "istio", "--descriptor", CLIENT], "GET /\n");
    assert!(
        out.contains("line 1: not in Istio's default text format: write --log-format"),
        "{out}"
    );
    let format = "%START_TIME% %REQ(:METHOD)% %REQ(:PATH)%";
    let (_, out, _) = replay(&["--log-format", format, "--descriptor", "client={path}"], "GET /\n");
    assert!(
        out.contains("line 1: not in the format of --log-format: copy the format from"),
        "{out}"
    );
}

#[test]
fn values_that_nearly_all_differ_are_warned_about() {
    let log: String = (0..4)
        .map(|port| {
            format!("{{\"time\": {}, \"peer\": \"192.0.2.7:{port}\"}}\n", 1_795_341_600 + port)
        })
        .collect();
    let warning = "client={peer}: 4 lines, 4 keys: nearly every request has a counter of its own";
    let (_, out, _) = replay(&["--descriptor", "client={peer}"], &log);
    assert!(out.contains(warning) && out.contains("has it a port? `|host`"), "{out}");
    let (_, out, _) = replay(&["--descriptor", "client={peer|host}"], &log);
    assert!(!out.contains("counter of its own") && out.contains("3 denied"), "{out}");
    // A rule with a network counts addresses without their ports.
    let (_, out, _) = replay(&["--descriptor", "address={peer}"], &log);
    assert!(!out.contains("counter of its own") && out.contains("3 denied"), "{out}");
}
