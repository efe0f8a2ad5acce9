//! The subcommand `weir check`.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::program::weir;

const GOOD: &str = "\
domain: shop
descriptors:
  - key: path
    value: /a/*
    share_threshold: true
    shadow_mode: true
    metadata: { team: a }
    rate_limit: { name: a, unit: minute, unit_multiplier: 15, requests_per_unit: 300, replaces: [{ name: b }] }
  - key: user
    rate_limit: { unlimited: true }
  - key: plan
    rate_limit: { name: b, unit: day, requests_per_unit: 1 }
";

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
    /// The most resident memory that it was seen with.
    peak_kilobytes: u64,
}

/// Runs `weir check` in a directory, for at most two minutes.
fn check(directory: &Path, args: &[&str]) -> Ran {
    run(Command::new(env!("CARGO_BIN_EXE_weir")), directory, args)
}

/// Runs `weir check` with a text as standard input.
fn check_stdin(directory: &Path, text: &str, args: &[&str]) -> Ran {
    fs::write(directory.join(".in"), text).unwrap();
    let mut redirected = Command::new("sh");
    redirected.args(["-c", "exec \"$@\" < .in", "sh", env!("CARGO_BIN_EXE_weir")]);
    run(redirected, directory, args)
}

fn run(mut command: Command, directory: &Path, args: &[&str]) -> Ran {
    let mut child = command
        .arg("check")
        .args(args)
        .current_dir(directory)
        .stdout(fs::File::create(directory.join(".out")).unwrap())
        .stderr(fs::File::create(directory.join(".err")).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut peak_kilobytes = 0;
    let status = loop {
        peak_kilobytes = peak_memory(child.id()).unwrap_or(0).max(peak_kilobytes);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("weir check {args:?} has not ended");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |name| fs::read_to_string(directory.join(name)).unwrap();
    Ran { code: status.code(), out: read(".out"), err: read(".err"), peak_kilobytes }
}

/// Returns the peak resident memory of a process in kB; `None` if it has ended.
fn peak_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Creates a directory with these files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn valid_rules_are_printed_as_a_table() {
    let directory = directory(&[("rules/shop.yaml", GOOD), ("rules/empty.yml", "domain: e\n")]);
    let ran = check(directory.path(), &["rules"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(
        ran.out,
        "\
DOMAIN  RULE       LIMIT               FLAGS
shop    path_/a/*  300 per 15 minutes  shadow_mode metadata charge_denied name=a replaces=b
shop    user       unlimited
shop    plan       1 per day           charge_denied name=b
ok: 3 rules in 2 domains of 2 files, 0 warnings
"
    );
    assert_eq!(ran.err, "");
}

#[test]
fn all_problems_are_reported_with_exit_code_1() {
    let directory = directory(&[
        ("a.yaml", "domain: a\ndescriptors: [{ kye: k }, { key: k, rate_limit: {} }]\n"),
        ("b.yaml", "domain: [\n"),
        ("c.yaml", "domain: c\nunit: day\n"),
    ]);
    let ran = check(directory.path(), &["a.yaml", "b.yaml", "c.yaml", "d.yaml"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.out, "");
    for wanted in [
        "a.yaml:2:17: error: config error, unknown key 'kye'",
        "a.yaml:2:15: error: descriptor has empty key",
        "a.yaml:2:49: error: invalid rate limit unit ''",
        "b.yaml:1:9: error: error loading config file: yaml: line 1: ",
        "c.yaml:2:1: warning: 'unit' has no effect here",
        "d.yaml: error: cannot be read: No such file or directory",
        "  help: did you mean `key`?",
        "5 errors, 2 warnings",
    ] {
        assert!(ran.err.contains(wanted), "{wanted}\n{}", ran.err);
    }
}

#[test]
fn long_keys_are_printed() {
    let long = "x".repeat(70_000);
    let text = format!(
        "domain: d\ndescriptors:\n\
         - {{ key: k, value: {long}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n\
         - {{ key: k, value: y, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n"
    );
    let directory = directory(&[("a.yaml", &text)]);
    let ran = check(directory.path(), &["a.yaml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains(&format!("d       k_{long}  1 per day  charge_denied\n")));
    assert!(
        ran.out.contains(&format!("d       k_y{}  1 per day  charge_denied\n", " ".repeat(97)))
    );
}

#[test]
fn control_characters_of_rule_files_are_escaped() {
    let good = r#"domain: "d\u001b[2J\u202e"
descriptors:
  - key: "k\nok: 9 rules\u009b31m"
    rate_limit: { unit: day, requests_per_unit: 1, name: "n\u2028\u007f" }
"#;
    let (escape, right_to_left) = ('\u{1b}', '\u{202e}');
    let bad = format!(
        "domain: b\ndescriptors: [{{ \"\\u001b[31mkye\\nerror: forged\": 1, \"{right_to_left}k\": 2, \
         key: \"a\\nb\", rate_limit: {{ unit: \"a\\u001b\" }} }}]\n"
    );
    let broken = format!("domain: \"{escape}[31m\"\n");
    let directory = directory(&[("good.yaml", good), ("bad.yaml", &bad), ("broken.yaml", &broken)]);
    for file in ["good.yaml", "bad.yaml", "broken.yaml"] {
        for output in ["text", "json"] {
            let ran = check(directory.path(), &[file, "--output", output]);
            assert_eq!(ran.code, Some(i32::from(file != "good.yaml")), "{}", ran.err);
            for line in ran.out.lines().chain(ran.err.lines()) {
                assert_eq!(weir_common::escape::escape(line), line, "{file} as {output}");
                assert!(!line.starts_with("ok: 9") && !line.starts_with("error: f"), "{line}");
            }
        }
    }
    let ran = check(directory.path(), &["good.yaml"]);
    assert!(
        ran.out.contains(r"d\u001b[2J\u202e  k\nok: 9 rules\u009b31m  1 per day"),
        "{}",
        ran.out
    );
    let ran = check(directory.path(), &["bad.yaml"]);
    let snippet = r#"
 2 | descriptors: [{ "\u001b[31mkye\nerror: forged": 1, "\u202ek": 2, key: "a\nb", rate_limit: { unit: "a\u001b" } }]
   |                                                    ^^^^^^^"#;
    assert!(ran.err.contains(snippet), "{}", ran.err);
}

#[test]
fn output_as_json() {
    let directory = directory(&[("a.yaml", GOOD), ("b.yaml", "domain: b\nunit: day\n")]);
    let ran = check(directory.path(), &[".", "--output", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(
        json["rules"][0],
        serde_json::json!({
            "domain": "shop", "rule": "path_/a/*", "file": "./a.yaml", "line": 3, "column": 5,
            "entries": [{ "key": "path", "value": "/a/*" }],
            "unlimited": false,
            "limits": [{
                "rate": "300/15m", "requests_per_unit": 300, "unit": "minute", "unit_multiplier": 15,
                "algorithm": "fixed_window", "charge_denied": true, "shadow_mode": false,
                "name": "a",
            }],
            "name": "a", "replaces": ["b"], "shadow_mode": true, "quota_mode": false,
            "detailed_metric": false, "value_to_metric": false, "metadata": { "team": "a" },
        })
    );
    assert_eq!(json["rules"][1]["unlimited"], true);
    assert_eq!(
        json["problems"],
        serde_json::json!([{
            "severity": "warning", "file": "./b.yaml", "line": 2, "column": 1,
            "message": "'unit' has no effect here", "text": "unit", "first": null,
            "help": "`unit` belongs in `rate_limit`, or an item of `rate_limits`",
        }])
    );

    fs::write(directory.path().join("a.yaml"), "domain: a\nuint: day\n").unwrap();
    let ran = check(directory.path(), &["a.yaml", "--output", "json"]);
    assert_eq!(ran.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&json["ok"], json["rules"].as_array().map(Vec::len)), (&false.into(), Some(0)));
    assert_eq!(json["problems"][0]["severity"], "error");
}

#[test]
fn duplicates_are_reported_with_both_positions() {
    let directory = directory(&[
        ("a.yaml", "domain: d\ndescriptors:\n- key: k\n- key: k\n"),
        ("b.yaml", "domain: d\n"),
    ]);
    let ran = check(directory.path(), &["."]);
    let wanted = "\
./a.yaml:4:8: error: duplicate descriptor composite key 'd.k'
 4 | - key: k
   |        ^
  note: the first is at ./a.yaml:3:8
  help: a descriptor must be unique on its level: merge the two
./b.yaml:1:9: error: duplicate domain 'd' in config file
 1 | domain: d
   |         ^
  note: the first is at ./a.yaml:1:9
  help: another file has this domain: rename one, or merge domains (setting rules.merge_domains, \
MERGE_DOMAIN_CONFIG; in commands --merge-domains)
2 errors, 0 warnings
";
    assert_eq!(ran.err, wanted);
    let ran = check(directory.path(), &[".", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let first = serde_json::json!({ "file": "./a.yaml", "line": 3, "column": 8 });
    assert_eq!(json["problems"][0]["first"], first);
}

#[test]
fn a_million_unknown_keys_take_little_memory() {
    let keys = "a,".repeat(1_000_000);
    let directory = directory(&[("a.yaml", &format!("{{domain: d, {keys}}}"))]);
    let ran = check(directory.path(), &["a.yaml"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.len() < 50_000, "{}", ran.err.len());
    assert_eq!(ran.err.matches("unknown key 'a'").count(), 100);
    let wanted = "999900 more errors are not listed (`weir check \
                  --max-problems` lists more)\n1000000 errors, 0 warnings\n";
    assert!(ran.err.ends_with(wanted), "{}", ran.err);
    // The program takes 20 MB of it, and the tree of the file 80 MB.
    let little = 60_000..200_000;
    assert!(little.contains(&ran.peak_kilobytes), "{}", ran.peak_kilobytes);

    let args = ["a.yaml", "--max-problems", "3", "--output", "json"];
    let ran = check(directory.path(), &args);
    assert!(little.contains(&ran.peak_kilobytes), "{}", ran.peak_kilobytes);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["omitted"], serde_json::json!({ "errors": 999_997, "warnings": 0 }));
}

#[test]
fn the_output_of_another_command_is_read_from_its_descriptor() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let script = "\"$0\" check <(cat a.yaml)";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, env!("CARGO_BIN_EXE_weir")]).current_dir(directory.path());
    let ran = bash.output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && out.contains("of 1 file, 0 warnings"), "{ran:?}");
}

#[test]
fn files_that_are_not_rule_files_are_rejected() {
    let directory = directory(&[("empty.yaml", ""), ("dir/readme.txt", "x"), ("big.yaml", "")]);
    fs::File::create(directory.path().join("big.yaml")).unwrap().set_len((64 << 20) + 1).unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("pipe.yaml")).status().unwrap();
    assert!(made.success());
    symlink("nowhere", directory.path().join("dangling.yaml")).unwrap();
    for (args, wanted) in [
        (&["empty.yaml"][..], "empty.yaml:1:1: error: config file cannot have empty domain"),
        (&["dir"], "dir: error: no rule files are here"),
        (&["pipe.yaml"], "pipe.yaml: error: not a regular file"),
        (&["."], "./pipe.yaml: error: not a regular file"),
        (&["/dev/zero"], "/dev/zero: error: not a regular file"),
        (&["dangling.yaml"], "dangling.yaml: error: cannot be read: No such file"),
        (&["."], "./dangling.yaml: error: cannot be read: No such file"),
        // A file that can be opened but not read.
        (&["/proc/self/mem"], "/proc/self/mem: error: cannot be read: "),
        (&["big.yaml"], "big.yaml: error: the file has more than 67108864 bytes"),
    ] {
        let ran = check(directory.path(), args);
        assert_eq!(ran.code, Some(1), "{args:?}");
        assert!(ran.err.contains(wanted), "{wanted}\n{}", ran.err);
    }
}

#[test]
fn linked_directories_and_config_maps_are_read_once() {
    let directory = directory(&[("..2024/a.yaml", GOOD), ("real/b.yaml", "domain: b\n")]);
    symlink("..2024", directory.path().join("..data")).unwrap();
    symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
    symlink("real", directory.path().join("linked")).unwrap();
    let ran = check(directory.path(), &["."]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.ends_with("ok: 3 rules in 2 domains of 2 files, 0 warnings\n"), "{}", ran.out);
    assert_eq!(check(directory.path(), &["linked"]).code, Some(0));
}

#[test]
fn domains_are_merged_if_requested() {
    let b = GOOD.replace("path", "other").replace("user", "else").replace("plan", "tier");
    let directory = directory(&[("a.yaml", GOOD), ("b.yaml", &b)]);
    let ran = check(directory.path(), &["."]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("duplicate domain 'shop' in config file"), "{}", ran.err);
    let ran = check(directory.path(), &[".", "--merge-domains"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("6 rules in 1 domain of 2 files"), "{}", ran.out);
}

#[test]
fn a_large_file_is_read_in_seconds() {
    // The parser is slow without optimization, and other tests may run at the same time.
    let (mib, seconds) = if cfg!(debug_assertions) { (8, 110) } else { (50, 10) };
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    let limit = "rate_limit: { unit: day, requests_per_unit: 5 }";
    let padding = "x".repeat(1_000);
    let mut i = 0;
    while text.len() < mib << 20 {
        let _ = writeln!(text, "- {{ key: k, value: {padding}{i}, {limit} }}");
        i += 1;
    }
    let directory = directory(&[("large.yaml", &text)]);
    let start = Instant::now();
    let ran = check(directory.path(), &["large.yaml", "--output", "json"]);
    let took = start.elapsed();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(took < Duration::from_secs(seconds), "{took:?}");
}

#[test]
fn warnings_can_be_denied() {
    let text = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day } }]\n";
    let directory = directory(&[("a.yaml", text), ("good.yaml", GOOD)]);
    let warning = "a.yaml:2:37: warning: no `requests_per_unit`: this limit denies everything\n";
    let ran = check(directory.path(), &["a.yaml"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.starts_with(warning), "{}", ran.err);
    assert!(ran.out.ends_with("ok: 1 rule in 1 domain of 1 file, 1 warning\n"), "{}", ran.out);
    let ran = check(directory.path(), &["a.yaml", "--deny-warnings"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.starts_with(warning), "{}", ran.err);
    assert!(ran.err.ends_with("0 errors, 1 warning (--deny-warnings)\n"), "{}", ran.err);
    let ran = check(directory.path(), &["a.yaml", "--deny-warnings", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["ok"]), (Some(1), &false.into()));
    let ran = check(directory.path(), &["good.yaml", "--deny-warnings"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let rules = directory(&[("a.yaml", GOOD)]);
    for args in ["check a.yaml", "explain a.yaml -d shop user=ann", "settings"] {
        let run = |redirection: &str| {
            let script = format!("exec \"$0\" {args} {redirection}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).current_dir(rules.path());
            shell.output().unwrap()
        };
        let ran = run("> /dev/full");
        assert_eq!(ran.status.code(), Some(1), "{args}");
        let error = String::from_utf8(ran.stderr).unwrap();
        assert!(error.contains("error: cannot write: No space left"), "{args}: {error}");
        assert_eq!(run(">&-").status.code(), Some(0), "{args}");
    }
}

#[test]
fn standard_input_and_manifests_are_read() {
    let manifest = "\
apiVersion: v1
kind: ConfigMap
metadata: { name: rules }
data:
  a.yaml: |
    domain: a
    uint: day
  b.yaml: |
    domain: b
    descriptors:
      - key: k
        rate_limit: { unit: day, requests_per_unit: 5 }
";
    let directory = directory(&[("m.yaml", &manifest.replace("    uint: day\n", ""))]);
    let ran = check_stdin(directory.path(), manifest, &["-"]);
    assert_eq!(ran.code, Some(1));
    let wanted = "\
<stdin>#rules/a.yaml:2:1: error: config error, unknown key 'uint'
 2 | uint: day
   | ^^^^
  help: the keys of the root of the file are: domain, charge, on_store_failure, descriptors
1 error, 0 warnings
";
    assert_eq!(ran.err, wanted);
    let ran = check_stdin(directory.path(), GOOD, &["-", "m.yaml", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let place =
        |rule: usize| (json["rules"][rule]["file"].clone(), json["rules"][rule]["line"].clone());
    assert_eq!(place(0), ("m.yaml#rules/b.yaml".into(), 3.into()));
    assert_eq!(place(1), ("<stdin>".into(), 3.into()));
    let ran = check_stdin(directory.path(), &"x".repeat((64 << 20) + 1), &["-"]);
    assert!(
        ran.err.starts_with("<stdin>: error: the text has more than 67108864 bytes\n"),
        "{}",
        ran.err
    );
}

#[test]
fn rules_that_reserve_and_those_without_leases_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 9 }, \
                 reserve: { id: request_id, settle: end }, lease: false }]\n";
    fs::write(directory.path().join("shop.yaml"), rules).unwrap();
    let ran = check(directory.path(), &["shop.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(
        ran.out,
        "DOMAIN  RULE  LIMIT      FLAGS\n\
         shop    user  9 per day  reserve=request_id lease=false\n\
         ok: 1 rule in 1 domain of 1 file, 0 warnings\n"
    );
}

#[test]
fn rates_are_listed_with_what_a_month_is_and_whether_denied_hits_are_charged() {
    let rules = "domain: shop\ndescriptors:\n- { key: a, rate: 10/s, burst: 20 }\n- { key: b, rate: 10/s }\n\
                 - { key: c, rates: [10/s, 800/d] }\n- { key: e, rate: 9/month }\n\
                 - { key: f, rate: 9/month, align: calendar }\n\
                 - { key: g, rate_limits: [{ rate: 1/s, charge_denied: true }, { rate: 9/m }] }\n";
    let settings = "[rules]\npaths = [\"shop.yaml\"]\ncalendar_months = true\n";
    let directory = directory(&[("shop.yaml", rules), ("weir.toml", settings)]);
    let ran = check(directory.path(), &["shop.yaml"]);
    let wanted = "\
DOMAIN  RULE  LIMIT                                   FLAGS
shop    a     10 per second, gcra with a burst of 20
shop    b     10 per second                           charge_denied
shop    c     10 per second + 800 per day
shop    e     9 per month of 30 days                  charge_denied
shop    f     9 per month of the calendar, UTC        charge_denied
shop    g     1 per second + 9 per minute             charge_denied=1/2
ok: 6 rules in 1 domain of 1 file, 0 warnings
";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (wanted, ""));
    let ran = check(directory.path(), &["--settings", "weir.toml"]);
    assert!(ran.out.contains("e     9 per month of the calendar, UTC"), "{}", ran.out);
}

#[test]
fn a_shadow_mode_without_an_effect_is_an_error_but_in_files_of_the_reference() {
    let rules =
        "domain: shop\ndescriptors:\n- key: a\n  rate_limit: { rate: 1/s, shadow_mode: true }\n";
    let directory = directory(&[("shop.yaml", rules)]);
    let ran = check(directory.path(), &["shop.yaml"]);
    let wanted = "\
shop.yaml:4:28: error: config error, 'shadow_mode' in `rate_limit` has no effect
 4 |   rate_limit: { rate: 1/s, shadow_mode: true }
   |                            ^^^^^^^^^^^
  help: write it beside `key`, for the whole rule, or in an item of `rate_limits`; files of the reference load as they \
  are with `--reference`
1 error, 0 warnings
";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), wanted));
    let ran = check(directory.path(), &["shop.yaml", "--reference"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("warning: 'shadow_mode' has no effect here"), "{}", ran.err);
}

#[test]
fn networks_and_lists_are_listed_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let rules = "domain: shop\ndescriptors:\n\
                 - { key: ip, network: ['::/0'], group: { v6: 64 }, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
                 - { key: ip, values_file: blocked.txt, rate_limit: { unlimited: true } }\n";
    write("shop.yaml", rules);
    write("blocked.txt", "10.0.0.0/8\nann\n");
    let ran = check(directory.path(), &["shop.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(
        ran.out,
        "DOMAIN  RULE             LIMIT      FLAGS\n\
         shop    ip_::/0          1 per day  group=v4/32,v6/64 charge_denied\n\
         shop    ip_@blocked.txt  unlimited  values=2\n\
         ok: 2 rules in 1 domain of 1 file, 0 warnings\n"
    );
    write("blocked.txt", "10.0.0.0/8\n10.0.0.1/8\n");
    let ran = check(directory.path(), &["shop.yaml"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("blocked.txt:2:1: error: config error, '10.0.0.1/8' has bits"),
        "{}",
        ran.err
    );
}

#[test]
fn the_error_of_convert_names_the_page_with_the_rules() {
    let ran = weir(Path::new("."), &["convert", "nginx.conf"]);
    assert_eq!(ran.0, Some(2));
    let wanted = "error: unrecognized subcommand 'convert'\n\n  tip: docs/migrating.md has the rule for each limit of other \
                  programs\n";
    assert!(ran.2.starts_with(wanted), "{:?}", ran.2);
}

#[test]
fn the_error_of_lint_names_check() {
    let (code, _, err) = weir(Path::new("."), &["lint", "rules/"]);
    let wanted = "error: unrecognized subcommand 'lint'\n\n  tip: weir check reports errors and warnings of rule files\n";
    assert!(code == Some(2) && err.starts_with(wanted), "{err:?}");
}

#[test]
fn the_version_is_a_command_and_each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(weir(path, &["version"]), weir(path, &["--version"]));
    assert_eq!(weir(path, &["man", "."]), (Some(0), String::new(), String::new()));
    let page = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert!(page("weir.1").contains(r"weir\-check(1)"), "{}", page("weir.1"));
    assert!(page("weir-check.1").contains(r"\-\-deny\-warnings"), "{}", page("weir-check.1"));
    let (code, _, err) = weir(path, &["man", "none"]);
    assert!(code == Some(1) && err.starts_with("error: cannot write to none: "), "{err}");
}

#[test]
fn a_settings_file_is_checked_with_the_rules_that_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("shop.yaml"), GOOD).unwrap();
    fs::write(path.join("good.toml"), "rules.paths = [\"shop.yaml\"]\n").unwrap();
    fs::write(path.join("none.toml"), "log.level = \"debug\"\n").unwrap();
    fs::write(path.join("bad.toml"), "log.level = \"verbose\"\n").unwrap();
    let ran = check(path, &["--settings", "good.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    assert!(ran.out.ends_with("ok: 3 rules in 1 domain of 1 file, 0 warnings\n"), "{}", ran.out);
    let ran = check(path, &["--settings", "none.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "ok: no rule files\n"), "{}", ran.err);
    assert!(check(path, &["--settings", "none.toml", "shop.yaml"]).out.contains("3 rules"));
    let ran = check(path, &["--settings", "bad.toml", "shop.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("log.level is \"verbose\""), "{}", ran.err);
    let ran = check(path, &["--settings", "missing.toml"]);
    assert!(ran.code == Some(1) && ran.err.contains("missing.toml"), "{}", ran.err);
    assert_eq!(check(path, &[]).code, Some(2));
}

#[test]
fn the_layout_of_the_reference_is_checked_as_it_is_served() {
    let directory = directory(&[
        ("run/config/shop.yaml", GOOD),
        ("run/config/x.json", "{\"domain\": \"x\", \"descriptors\": [{\"kye\": \"a\"}]}"),
        ("run/config/more", "domain: shop\n"),
    ]);
    let path = directory.path();
    let with = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.envs(env.iter().copied());
        run(command, path, args)
    };
    let runtime = [("RUNTIME_ROOT", "run"), ("MERGE_DOMAIN_CONFIG", "true")];
    let note = "note: rules are those of rules.runtime.root (RUNTIME_ROOT)\n";
    let ran = with(&runtime, &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.starts_with(&format!("{note}run/config/x.json:1:")), "{}", ran.err);
    fs::write(path.join("run/config/x.json"), "{\"domain\": \"x\"}").unwrap();
    let ran = with(&runtime, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), note));
    assert!(ran.out.ends_with("ok: 3 rules in 2 domains of 3 files, 0 warnings\n"), "{}", ran.out);
    let ran = with(&runtime[..1], &[]);
    assert!(ran.code == Some(1) && ran.err.contains("duplicate domain 'shop'"), "{}", ran.err);
    assert!(ran.err.contains("in commands --merge-domains"), "{}", ran.err);
    // Named rules win.
    let ran = with(&runtime, &["run"]);
    let notes = "note: rules are named, ignoring rules.runtime.root (RUNTIME_ROOT)\n\
                 note: no rule files, skipped: run/config/more, run/config/x.json\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), notes));
    let ran = with(&[("MERGE_DOMAIN_CONFIG", "1")], &["run/config/shop.yaml", "run/config/more"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    // Invalid variables of the service do not matter, those about rules do.
    assert_eq!(with(&[("GRPC_PORT", "x"), ("HOST", "")], &["run"]).code, Some(0));
    let ran = with(&[("MERGE_DOMAIN_CONFIG", "maybe")], &["run"]);
    assert!(ran.code == Some(1) && ran.err.starts_with("MERGE_DOMAIN_CONFIG"), "{}", ran.err);
}

#[test]
fn skipped_files_are_named_but_not_lists() {
    let rules = "domain: d\ndescriptors: [{ key: a, values_file: a.txt, rate: 1/d }]\n";
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: m }}\ndata:\n  r.yaml: |\n    {}\n  \
         a.txt: x\n  b.json: '{{}}'\n",
        rules.trim_end().replace('\n', "\n    ").replace("domain: d", "domain: e"),
    );
    let directory = directory(&[
        ("rules/r.yaml", rules),
        ("rules/a.txt", "x\n"),
        ("rules/README.md", ""),
        ("rules/.git/config", ""),
        ("rules/r.test.yaml", "tests: []\n"),
        ("rules/o.overlay.yaml", "patches: []\n"),
        ("m.yaml", &manifest),
    ]);
    let ran = check(directory.path(), &["rules", "m.yaml"]);
    let note =
        "note: no rule files, skipped: m.yaml#m/b.json, rules/README.md, rules/o.overlay.yaml\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), note));
    let overlay = ["rules", "--overlay", "rules/o.overlay.yaml", "--output", "json"];
    let ran = check(directory.path(), &overlay);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["skipped"], serde_json::json!(["rules/README.md"]), "{}", ran.err);
}
