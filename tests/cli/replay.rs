//! The subcommand `weir replay`: reports, formats, and invalid input. `tests/repository/console.rs` runs the examples of
//! its document.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::support::program::{Ended, run};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: path
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: user
    value: ghost
    rate_limit: { unit: minute, requests_per_unit: 1 }
";

/// Runs a command line in a shell, with `weir` in its path. Returns the exit code and the outputs.
fn shell(directory: &Path, command: &str, input: &[u8]) -> Ended {
    let programs = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    run(shell.args(["-c", command]).env("PATH", path).current_dir(directory), input)
}

/// Replays a log from standard input by [`RULES`], with descriptors of user and path.
fn replay(arguments: &str, log: &[u8]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
    let fields = "-d shop --descriptor 'user={user}' --descriptor 'path={path}'";
    shell(directory.path(), &format!("weir replay shop.yaml {fields} {arguments}"), log)
}

fn json(arguments: &str, log: &[u8]) -> Value {
    let (code, out, err) = replay(&format!("--output json {arguments}"), log);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

const LOG: &str = r#"{"time": "2026-11-22T10:00:00Z", "user": "ann", "path": "/a"}
{"time": "2026-11-22T10:00:01Z", "user": "ann", "path": "/a"}
{"time": "2026-11-22T10:00:02Z", "user": "ann", "path": "/a"}
{"time": "2026-11-22T10:00:03Z", "user": "ghost", "path": "/a"}
{"time": "2026-11-22T10:00:04Z", "user": "ghost", "path": null}
{"time": "2026-11-22T10:01:05Z", "other": 1}
{"time": "2026-11-22T10:02:00Z", "user": "ann"}
"#;

fn rule<'r>(report: &'r Value, name: &str) -> &'r Value {
    let rules = report["rules"]["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == name).unwrap()
}

#[test]
fn a_report_counts_by_rule_key_and_minute() {
    let report = json("", LOG.as_bytes());
    let traffic = &report["traffic"];
    assert_eq!((&traffic["lines"], &traffic["requests"]), (&7.into(), &6.into()));
    assert_eq!(traffic["without_descriptors"], 1);
    assert_eq!(traffic["first"], "2026-11-22T10:00:00Z");
    assert_eq!(traffic["last"], "2026-11-22T10:02:00Z");
    assert_eq!(report["rules"]["denied"]["requests"], 2);
    let user = rule(&report, "shop.user");
    assert_eq!((&user["requests"], &user["denied"]["requests"]), (&4.into(), &1.into()));
    assert_eq!(user["origin"], "shop.yaml:3:5");
    assert_eq!(user["denied"]["worst_keys"][0]["key"], "user=ann");
    assert_eq!(user["denied"]["worst_minute"]["start"], "2026-11-22T10:00:00Z");
    let ghost = rule(&report, "shop.user_ghost");
    assert_eq!((&ghost["requests"], &ghost["denied"]["requests"]), (&2.into(), &1.into()));
    // A rule in shadow mode shows what it would deny, and denies nothing.
    let path = rule(&report, "shop.path");
    assert_eq!((&path["shadow"], &path["denied"]["requests"]), (&true.into(), &1.into()));
    assert_eq!(report["series"]["bucket_seconds"], 1);
    assert_eq!(report["series"]["requests"].as_array().unwrap().len(), 121);
}

#[test]
fn bans_are_counted_by_rule() {
    const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 1 }
    ban: { after: 1, within: 1m, for: 2s }
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 9 }
";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
    let report = |output: &str| {
        let command =
            "weir replay shop.yaml -d shop --descriptor 'user={user}' --descriptor 'path={path}'";
        let command = format!("{command} --output {output}");
        let (code, out, err) = shell(directory.path(), &command, LOG.as_bytes());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        out
    };
    // Ann is banned at the second request and denied at the third, the ghost is banned at its second.
    let json: Value = serde_json::from_str(&report("json")).unwrap();
    let user = rule(&json, "shop.user");
    assert_eq!((&user["bans"], &user["denied"]["requests"]), (&2.into(), &3.into()));
    assert!(rule(&json, "shop.path").get("bans").is_none());
    let text = report("text");
    assert!(
        text.contains("2026-11-22 10:00 with 3\n    2 bans\n") && text.matches("ban").count() == 1,
        "{text}"
    );
}

#[test]
fn all_formats_give_the_same_report() {
    let csv = "path,user,time\n/a,ann,1795341600\n/a,ann,1795341601\n\"/a\",ann,1795341602.0\n\
               /a,ghost,1795341603000\n,ghost,1795341604\n,,1795341665\n,ann,1795341720\n";
    let mut expected = json("--format jsonl", LOG.as_bytes());
    assert_eq!(expected["traffic"]["first"], "2026-11-22T10:00:00Z");
    for (arguments, log, lines) in [
        ("", gzip(LOG.as_bytes()), 7),
        ("--format csv", csv.as_bytes().to_vec(), 8),
        ("--format csv", gzip(csv.as_bytes()), 8),
    ] {
        let report = json(arguments, &log);
        expected["traffic"]["lines"] = lines.into();
        assert_eq!(report, expected, "{arguments}");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_in_the_order_of_the_ends_are_sorted() {
    let mut lines: Vec<&str> = LOG.lines().collect();
    let expected = json("", LOG.as_bytes());
    lines[..5].reverse();
    assert_eq!(json("", lines.join("\n").as_bytes()), expected);
    let report = json("--reorder 1s", lines.join("\n").as_bytes());
    assert_eq!(report["traffic"]["late"], 3);
    assert_eq!(report["traffic"]["first"], "2026-11-22T10:00:03Z");
}

#[test]
fn hits_count() {
    let log = "{\"time\": 1795341600, \"user\": \"ann\", \"n\": 3}\n\
               {\"time\": 1795341600, \"user\": \"bob\", \"n\": \"0\"}\n\
               {\"time\": 1795341600, \"user\": \"bob\"}\n\
               {\"time\": 1795341600, \"user\": \"bob\", \"n\": -1}\n";
    let report = json("--hits n", log.as_bytes());
    assert_eq!(rule(&report, "shop.user")["denied"]["requests"], 1);
    assert_eq!(report["traffic"]["requests"], 3);
    let error = report["traffic"]["invalid_lines"][0]["error"].as_str().unwrap();
    assert!(error.contains("`n`") && error.contains("'-1'"), "{error}");
}

#[test]
fn rules_that_reserve_take_their_estimate_and_count_no_ids() {
    const RULES: &str = "\
domain: llm
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 10000 }
    reserve: { id: request_id, settle: settle, estimate: 1000 }
  - { key: path, rate_limit: { unit: day, requests_per_unit: 5 }, shadow_mode: true }
  - { key: tenant, rate_limit: { unit: day, requests_per_unit: 20 } }
  - key: job
    descriptors:
      - key: run
        rate_limit: { algorithm: concurrency, hold_id: run, hold_timeout: 1h, requests_per_unit: 2 }
";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("llm.yaml"), RULES).unwrap();
    let lines: Vec<String> = (0..30)
        .map(|i| {
            format!(
                "{{\"time\": {}, \"user\": \"ann\", \"id\": \"{i}\", \"n\": {}}}\n",
                1_795_341_600 + i,
                500 + i % 2
            )
        })
        .collect();
    let replay = |arguments: &str| -> Value {
        let command = format!("weir replay llm.yaml -d llm --output json {arguments}");
        let (code, out, err) = shell(directory.path(), &command, lines.concat().as_bytes());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        serde_json::from_str(&out).unwrap()
    };
    let user = "--descriptor 'user={user},request_id={id}'";
    let report = replay(user);
    let denied = &rule(&report, "llm.user")["denied"];
    assert_eq!((&denied["requests"], &denied["keys"]), (&20.into(), &1.into()));
    assert_eq!(denied["worst_keys"][0]["key"], "user=ann");
    assert_eq!(report["rules"]["denied"]["worst_keys"][0]["key"], "user=ann");
    assert_eq!(report["traffic"]["descriptors"][0]["nearly_distinct"], Value::Null);
    // Where the log has what was used, that is reserved. No more than n fit: the rest of 10,000 is granted last.
    let denied = replay(&format!("{user} --hits n"))["rules"]["denied"]["requests"].clone();
    assert_eq!(denied, 10);
    let tight = RULES.replace("10000", "5000");
    fs::write(directory.path().join("tight.yaml"), tight).unwrap();
    let compared = replay(&format!("{user} --compare tight.yaml --hits n"));
    let newly = &compared["comparison"]["newly_denied"]["total"];
    assert_eq!(
        (&newly["requests"], &newly["worst_keys"][0]["key"]),
        (&10.into(), &"user=ann".into())
    );
    // What a denied request has reserved is returned, and a rule in shadow mode beside it shows its denials.
    let report = replay(&format!("{user} --descriptor 'path=/' --descriptor 'tenant=t' --hits n"));
    assert_eq!(report["rules"]["denied"]["requests"], 30);
    assert_eq!(rule(&report, "llm.user")["denied"]["requests"], 0);
    assert_eq!(rule(&report, "llm.path")["denied"]["requests"], 30);
    // The id of a hold is no part of a key, either.
    let report = replay("--descriptor 'job=j,run={id}'");
    assert_eq!(rule(&report, "llm.job.run")["denied"]["keys"], 1);
}

#[test]
fn rules_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("shop.yaml", RULES);
    write(
        "new.yaml",
        &RULES
            .replace("requests_per_unit: 2", "requests_per_unit: 9")
            .replace("  shadow_mode: true\n  ", ""),
    );
    write(
        "free.overlay.yaml",
        "patches:\n- match: { entries: [{ key: user, value: ghost }] }\n  set: { rate_limit: { unlimited: true } }\n",
    );
    let run = |arguments: &str| {
        let command = format!(
            "weir replay shop.yaml --output json -d shop --descriptor 'user={{user}}' \
             --descriptor 'path={{path}}' {arguments}"
        );
        let (code, out, err) = shell(directory.path(), &command, LOG.as_bytes());
        assert_eq!((code, err.as_str()), (Some(0), ""));
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let report = run("--compare new.yaml");
    let comparison = &report["comparison"];
    assert_eq!(comparison["rules"]["files"], "new.yaml");
    let newly = &comparison["newly_denied"];
    assert_eq!(newly["total"]["requests"], 1);
    assert_eq!(newly["rules"][0]["name"], "shop.path");
    assert_eq!(newly["total"]["worst_keys"][0]["key"], "path=/a");
    let no_longer = &comparison["no_longer_denied"];
    assert_eq!(no_longer["rules"][0]["name"], "shop.user");
    assert_eq!(no_longer["total"]["worst_keys"][0]["key"], "user=ann");
    let report = run("--compare-overlay free.overlay.yaml");
    let comparison = &report["comparison"];
    assert_eq!(comparison["rules"]["files"], "shop.yaml free.overlay.yaml");
    assert_eq!(comparison["newly_denied"]["total"]["requests"], 0);
    assert_eq!(comparison["no_longer_denied"]["rules"][0]["name"], "shop.user_ghost");
}

#[test]
fn invalid_lines_are_counted_and_shown() {
    let log = format!(
        "not JSON\n{{\"time\": 1\n{{\"user\": 1}}\n{{\"time\": \"x\\u001b[31m\"}}\n\n{LOG}"
    );
    let (code, out, err) = replay("--format jsonl", log.as_bytes());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        "4 lines skipped as invalid",
        "line 1: not a JSON object",
        "line 2: invalid JSON: ",
        "line 3: no field `time`: write --time FIELD",
        "line 4: field `time` is not a time: 'x\\u001b[31m'; expected RFC 3339",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

#[test]
fn errors_say_what_to_write() {
    let replay = |arguments: &str, log: &[u8]| {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
        shell(directory.path(), &format!("weir replay shop.yaml {arguments}"), log)
    };
    for (arguments, log, expected, cause) in [
        ("--descriptor a={b}", "", 2, "--domain <DOMAIN>"),
        ("-d shop", "", 2, "--descriptor <DESCRIPTOR>"),
        ("-d shpo --descriptor a={b}", "", 2, "did you mean 'shop'?"),
        ("-d shop --descriptor a={b", "", 2, "brace without its partner"),
        ("-d shop --descriptor a={b} --traffic none.log", "", 1, "cannot open none.log"),
        ("-d shop --descriptor a={b} --traffic .", "", 1, ". is a directory"),
        ("-d shop --descriptor a={b} --reorder 10", "", 2, "write a duration"),
        ("-d shop --descriptor a={b}", "", 1, "<stdin> is empty"),
        ("-d shop --descriptor a={b}", "x\n", 1, "no line of <stdin> could be read"),
        ("-d shop --descriptor a={b}", "{\"time\": 1}", 1, "has the fields of a descriptor"),
        ("- -d shop --descriptor a={b}", "", 2, "cannot both be standard input"),
        ("-d shop --descriptor a={b} --compare none.yaml", "", 1, "none.yaml"),
    ] {
        let (code, out, err) = replay(arguments, log.as_bytes());
        assert_eq!(code, Some(expected), "{arguments}: {out}{err}");
        assert!(err.contains(cause), "{arguments}: {err}");
    }
}

#[test]
fn a_damaged_file_is_an_error_after_the_report() {
    let whole = gzip(LOG.repeat(100).as_bytes());
    let (code, out, err) = replay("--format jsonl", &whole[..whole.len() - 4]);
    assert_eq!(code, Some(1));
    assert!(out.contains("600 requests"), "{out}");
    assert!(err.starts_with("error: cannot read <stdin> after line 700"), "{err}");
}

#[test]
fn a_reader_may_close_the_pipe() {
    let (code, out, err) = replay("| head -1", LOG.as_bytes());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("<stdin>: 6 requests for domain shop, "), "{out}");
}

#[test]
fn a_stray_quote_does_not_swallow_lines() {
    let log = "time,user,agent\n1795341600,ann,a\"b\n1795341601,ann,c\n1795341602,bob,\"d\ne\"\n";
    let report = json("--format csv --descriptor agent={agent}", log.as_bytes());
    assert_eq!(
        (&report["traffic"]["lines"], &report["traffic"]["requests"]),
        (&4.into(), &3.into())
    );
}

#[test]
fn a_blank_first_line_or_a_byte_order_mark_does_not_hide_the_format() {
    let expected = json("", LOG.as_bytes());
    for (start, lines) in [("\u{feff}", 7), ("\n\n", 9)] {
        let mut report = json("", format!("{start}{LOG}").as_bytes());
        assert_eq!(report["traffic"]["lines"], lines);
        report["traffic"]["lines"] = 7.into();
        assert_eq!(report, expected);
    }
}

#[test]
fn a_time_in_the_future_that_makes_other_lines_late_is_named() {
    let log = format!("{}{LOG}", "{\"time\": \"2099-01-01T00:00:00Z\", \"user\": \"eve\"}\n");
    let (code, out, err) = replay("", log.as_bytes());
    assert!(
        out.contains("7 lines too far out of order, the first of them behind line 1 (2099-01-01 "),
        "{out}"
    );
    assert_eq!(
        (code, err.as_str()),
        (Some(1), "error: most lines of <stdin> are too far out of order\n")
    );
}

#[test]
fn a_field_that_is_missing_is_named() {
    let (code, out, err) = replay("--descriptor 'user={user},ip={clientip}'", LOG.as_bytes());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        "  7 lines without user={user},ip={clientip}: no field `clientip`\n",
        "  3 lines without path={path}: no field `path`\n",
        "  1 line without any descriptor: Envoy would send no request\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let (_, out, _) = replay("--format csv", b"time,user,paht\n");
    assert!(
        out.contains("line 1: the first line has no field `path`, its fields are time, user, paht"),
        "{out}"
    );
}

#[test]
fn addresses_are_counted_by_network_and_list() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "domain: shop\ndescriptors:\n\
                 - { key: ip, network: '0.0.0.0/0', group: { v4: 24 }, \
                 rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
                 - { key: ip, values_file: blocked.txt, share_threshold: true, \
                 rate_limit: { unit: minute, requests_per_unit: 1 } }\n";
    fs::write(directory.path().join("shop.yaml"), rules).unwrap();
    fs::write(directory.path().join("blocked.txt"), "203.0.113.0/25\n").unwrap();
    let ips = ["192.0.2.1:80", "192.0.2.2", "198.51.100.1", "203.0.113.1", "203.0.113.2"];
    let log: String = ips
        .map(|ip| format!("{{\"time\": \"2026-11-22T10:00:00Z\", \"ip\": \"{ip}\"}}\n"))
        .concat();
    let command = "weir replay shop.yaml -d shop --descriptor 'ip={ip}' --output json";
    let (code, out, err) = shell(directory.path(), command, log.as_bytes());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    for (name, requests, key) in
        [("shop.ip_0.0.0.0/0", 3, "ip=192.0.2.2"), ("shop.ip_@blocked.txt", 2, "ip=203.0.113.2")]
    {
        let rule = rule(&report, name);
        assert_eq!((&rule["requests"], &rule["denied"]["requests"]), (&requests.into(), &1.into()));
        // Who was denied, as the log has it.
        assert_eq!(rule["denied"]["worst_keys"][0]["key"], key);
    }
}
