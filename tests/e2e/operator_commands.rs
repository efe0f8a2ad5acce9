//! The commands of operators against a running weir: block, allow, limit, unblock, remove, controls, top, state,
//! reset, count, why and `explain --server`.

mod partly;
mod why;

use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::{Value, json};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{HIGH_LIMIT, code, request, wait_for_code};
use crate::support::control_api::{ControlApi, of_user};
use crate::support::redis::{Server, free_port};
use crate::support::weir::{Setup, Weir, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2, algorithm: sliding_log }
  - key: api_key
    rate_limits:
      - { unit: month, requests_per_unit: 5, name: monthly }
      - { unit: year, requests_per_unit: 50, name: yearly }
  - key: plan
    rate_limits:
      - { unit: month, requests_per_unit: 5, name: 'monthly, of all' }
      - { unit: year, requests_per_unit: 50, name: yearly }
";

/// What a command prints, and its exit code.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {} {}", self.out, self.err))
    }
}

/// Runs `weir` with arguments that spaces separate, without a server of its own choice.
fn run(args: &str, env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args.split(' ')).env_clear().envs(env.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs a command of operators against a server.
fn at(debug: SocketAddr, args: &str) -> Ran {
    run(args, &[("WEIR_SERVER", &format!("http://{debug}")), ("USER", "ann")])
}

/// Runs a command that must succeed. Returns what it prints.
fn good(weir: &Weir, args: &str) -> String {
    let ran = at(weir.debug, args);
    assert_eq!(ran.code, Some(0), "{args}: {}{}", ran.out, ran.err);
    ran.out
}

async fn user(weir: &Weir, name: &str) -> Code {
    code(weir.grpc, request("shop", &[("user", name)])).await
}

#[tokio::test]
async fn a_block_denies_the_next_request_until_it_is_deleted() {
    let weir = serving(RULES).start();
    assert_eq!(user(&weir, "m1").await, Code::Ok);
    let dry = good(&weir, "block -d shop user=m* --dry-run");
    assert!(dry.contains("(dry run: nothing has changed)"), "{dry}");
    assert!(dry.contains("keys with the most hits that it matches:"), "{dry}");
    assert!(dry.trim_end().ends_with("user=m1"), "{dry}");
    assert_eq!(user(&weir, "m1").await, Code::Ok);
    assert_eq!(user(&weir, "m2").await, Code::Ok);

    let ran = at(weir.debug, "block -d shop --for 1h --reason abuse user=m2");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    // Replicas that count in memory share nothing.
    assert!(!ran.err.contains("not shared"), "{}", ran.err);
    assert!(ran.err.contains("warning: not kept: "), "{}", ran.err);
    assert_eq!(user(&weir, "m2").await, Code::OverLimit);
    // Also where no rule matches.
    let other = request("shop", &[("path", "/"), ("user", "m2")]);
    assert_eq!(code(weir.grpc, other).await, Code::OverLimit);

    // The same match again replaces the control.
    let first = good(&weir, "controls --output json");
    good(&weir, "block -d shop user=m2 --for 2h");
    let list = at(weir.debug, "controls --output json").json();
    let [control] = list["controls"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert!(first.contains(control["id"].as_str().unwrap()), "{first} {list}");
    assert!(control["by"] == "ann" && control["reason"] == "", "{control}");
    // The server computes the id, the same for any client of its API.
    let block = of_user("m2", &json!({ "action": "block" }));
    let posted = ControlApi::new(&weir).post("?dry_run=1", &block).1;
    assert_eq!(posted["control"]["id"], control["id"]);
    let table = good(&weir, "controls");
    assert!(table.starts_with("LEFT") && table.contains("shop user=m2  ann  block-"), "{table}");

    let deleted = good(&weir, "unblock -d shop user=m2 --by bob");
    assert!(deleted.starts_with("deleted block-"), "{deleted}");
    assert_eq!(ControlApi::new(&weir).good("/v1/audit")["records"][0]["who"], "bob");
    let ran = at(weir.debug, "unblock -d shop user=m2");
    let error =
        "error: there is no block of shop user=m2\nhelp: weir controls lists all controls\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), error));
    assert_eq!(good(&weir, "controls"), "no controls\n");
    assert_eq!(code(weir.grpc, request("shop", &[("user", "m3")])).await, Code::Ok);
}

#[tokio::test]
async fn a_whole_domain_is_shut_off_but_for_those_that_the_block_spares() {
    let weir = serving(RULES).start();
    let ran = at(weir.debug, "block -d shop * --for 1h");
    assert!(ran.code == Some(1) && ran.err.contains("matches everything"), "{}", ran.err);
    let ran = at(weir.debug, "block -d shop *=* --force");
    assert!(ran.code == Some(1) && ran.err.contains("the key `*` matches nothing"), "{}", ran.err);
    let ran = at(weir.debug, "block -d shop * --except plan=p1 --except tier=x --force --for 1h");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.starts_with("warning: unknown key 'tier': "), "{}", ran.err);
    let matches = "matches: shop (everything) except plan=p1, tier=x\n";
    assert!(ran.out.contains(matches), "{}", ran.out);
    assert_eq!(user(&weir, "ann").await, Code::OverLimit);
    assert_eq!(code(weir.grpc, request("shop", &[("nowhere", "x")])).await, Code::OverLimit);
    assert_eq!(code(weir.grpc, request("shop", &[("plan", "p1")])).await, Code::Ok);
    assert_eq!(code(weir.grpc, request("shop", &[("plan", "p2")])).await, Code::OverLimit);
    let list = good(&weir, "controls");
    assert!(list.contains("shop (everything) except plan=p1, tier=x"), "{list}");
    let subject = &ControlApi::new(&weir).good("/v1/audit")["records"][0]["subject"];
    let subject = subject.as_str().unwrap();
    assert!(subject.ends_with(": block shop except plan=p1, tier=x"), "{subject}");
    // It ends as it was written, with or without whom it spares.
    let deleted = good(&weir, "unblock -d shop *");
    assert!(deleted.starts_with("deleted block-") && deleted.contains("(everything)"), "{deleted}");
    assert_eq!(user(&weir, "ann").await, Code::Ok);
}

#[tokio::test]
async fn a_network_matches_the_addresses_in_it() {
    let weir = serving(RULES).start();
    let ran = at(weir.debug, "block -d shop user=203.0.113.7/24 --deny-warnings");
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("did you mean '203.0.113.0/24'?"), "{}", ran.err);
    let text = good(&weir, "block -d shop user=203.0.113.0/24 --deny-warnings --text");
    assert!(text.contains("  matches: shop user=203.0.113.0/24 (text)\n"), "{text}");
    assert_eq!(user(&weir, "203.0.113.7").await, Code::Ok);
    let network = good(&weir, "block -d shop user=203.0.113.0/24 --deny-warnings --for 1h");
    assert!(network.contains("  matches: shop user=203.0.113.0/24\n"), "{network}");
    assert_eq!(user(&weir, "203.0.113.7").await, Code::OverLimit);
    assert_eq!(user(&weir, "203.0.114.7").await, Code::Ok);
    let server = format!("http://{}", weir.debug);
    let explained =
        good(&weir, &format!("explain --server {server} -d shop user=[::ffff:203.0.113.7]:80"));
    assert!(explained.contains(", in 203.0.113.0/24, by ann\n"), "{explained}");
    let state = good(&weir, "state -d shop user=203.0.113.7");
    assert!(state.contains(", in 203.0.113.0/24, by ann\n"), "{state}");
    // Both are blocks of this match.
    let deleted = good(&weir, "unblock -d shop user=203.0.113.0/24");
    assert_eq!(deleted.lines().count(), 2, "{deleted}");

    good(&weir, "limit -d shop user=10.0.0.0/8 --n 1");
    good(&weir, "allow -d shop user=10.1.0.0/16");
    let mut codes = Vec::new();
    for name in ["10.2.0.1", "10.2.0.1", "10.1.0.1", "10.1.0.1", "10.1.0.1"] {
        codes.push(user(&weir, name).await);
    }
    assert_eq!(codes, [Code::Ok, Code::OverLimit, Code::Ok, Code::Ok, Code::Ok]);
}

#[tokio::test]
async fn warnings_prevent_a_change_only_if_they_are_denied() {
    let weir = serving(RULES).start();
    let warning = "warning: unknown key 'usr': did you mean 'user'?\n";
    for args in ["block", "allow", "limit --n 5"] {
        let (name, options) = args.split_once(' ').unwrap_or((args, ""));
        let line = |others: &str| {
            let line = format!("{name} -d shop usr=m1 {options} {others}");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for others in ["--deny-warnings", "--deny-warnings --dry-run"] {
            let ran = at(weir.debug, &line(others));
            assert_eq!(ran.code, Some(1), "{args} {others}: {}", ran.err);
            assert!(ran.err.contains(warning), "{}", ran.err);
            assert!(ran.out.contains("(dry run: nothing has changed)"), "{}", ran.out);
            assert_eq!(good(&weir, "controls"), "no controls\n");
        }
        let ran = at(weir.debug, &line("--dry-run"));
        assert!(ran.code == Some(0) && ran.err.contains(warning), "{}", ran.err);
        let ran = at(weir.debug, &line("--id c"));
        assert!(ran.code == Some(0) && ran.err.contains(warning), "{}", ran.err);
        // Nobody is asked where there is no terminal.
        assert!(!ran.err.contains("[y/N]"), "{}", ran.err);
        good(&weir, "remove c");
    }
    let ran = at(weir.debug, "block -d shpo user=m1 --deny-warnings --output json");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let warnings = ran.json()["warnings"].clone();
    assert_eq!(warnings, json!(["unknown domain 'shpo': did you mean 'shop'?"]));
    // What is only not kept and not shared is no warning about the control.
    good(&weir, "block -d shop user=m1 --deny-warnings");
    assert_eq!(user(&weir, "m1").await, Code::OverLimit);
}

/// Runs a command in a terminal where a user types a line. Returns the exit code and all that is printed; none
/// if there is no `script` of util-linux.
fn in_terminal(debug: SocketAddr, args: &str, typed: &str) -> Option<(Option<i32>, String)> {
    use std::io::Write;
    use std::process::Stdio;

    let version = Command::new("script").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("util-linux") {
        return None;
    }
    let command = format!("{} {args}", env!("CARGO_BIN_EXE_weir"));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("WEIR_SERVER", format!("http://{debug}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    script.stdin.take().expect("a pipe").write_all(typed.as_bytes()).expect("it reads");
    let Output { status, stdout, .. } = script.wait_with_output().expect("script ends");
    Some((status.code(), String::from_utf8_lossy(&stdout).into_owned()))
}

#[test]
fn a_user_at_a_terminal_is_asked_after_a_warning() {
    let weir = serving(RULES).start();
    let block = "block -d shop usr=m1";
    let Some((code, output)) = in_terminal(weir.debug, block, "n\n") else { return };
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("did you mean 'user'?") && output.contains("[y/N]"), "{output}");
    assert!(output.contains("nothing has changed"), "{output}");
    assert_eq!(good(&weir, "controls"), "no controls\n");
    let (code, output) = in_terminal(weir.debug, block, "y\n").expect("script");
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(output.matches("did you mean").count(), 1, "{output}");
    assert!(good(&weir, "controls").contains("shop usr=m1"));
    // Without a warning about the control nobody is asked.
    let (code, output) = in_terminal(weir.debug, "block -d shop user=m1", "").expect("script");
    assert!(code == Some(0) && !output.contains("[y/N]"), "{output}");
}

#[test]
fn a_watched_list_is_printed_again_until_its_reader_is_gone() {
    let weir = serving(RULES).start();
    let script = "\"$0\" top --watch --rows 3 | head -n 4; echo ${PIPESTATUS[0]}";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, env!("CARGO_BIN_EXE_weir")]);
    let ran = bash.env("WEIR_SERVER", format!("http://{}", weir.debug)).output().expect("bash");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let lines: Vec<&str> = out.lines().collect();
    let [first, time, "", again, "0"] = lines[..] else { panic!("{out}{err}") };
    assert!(first == "no hits" && again == first && time.ends_with("on this replica"), "{out}");
    assert_eq!(err, "");
}

#[tokio::test]
async fn limits_are_changed_and_clients_exempted() {
    let weir = serving(RULES).start();
    for _ in 0..2 {
        assert_eq!(user(&weir, "ann").await, Code::Ok);
    }
    assert_eq!(user(&weir, "ann").await, Code::OverLimit);
    let limit = good(&weir, "limit -d shop user=ann --n 3 --for 1d");
    assert!(
        limit.contains("action:  limit 3\n") && limit.contains("rules:   shop.user"),
        "{limit}"
    );
    assert_eq!(user(&weir, "ann").await, Code::Ok);
    assert_eq!(user(&weir, "ann").await, Code::OverLimit);
    good(&weir, "allow -d shop user=ann --no-count --forever --id vip");
    for _ in 0..3 {
        assert_eq!(user(&weir, "ann").await, Code::Ok);
    }
    assert!(good(&weir, "controls").contains("allow, not counted  shop user=ann"));
    let ran = at(weir.debug, "unblock vip");
    let error = "error: vip is no block: allow, not counted of shop user=ann\nhelp: weir remove vip ends it\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), error));
    let removed = good(&weir, "remove -d shop --by bob user=ann");
    assert_eq!(removed.lines().count(), 2, "{removed}");
    assert!(removed.contains("deleted vip: allow, not counted shop user=ann"), "{removed}");
    assert_eq!(user(&weir, "ann").await, Code::OverLimit);

    // The rule has two limits.
    let ran = at(weir.debug, "limit -d shop api_key=k --n 9");
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.starts_with("error: the limit does not fit"), "{}", ran.err);
    let line = "\nhelp: weir limit -d shop api_key=k --n 9 --limit monthly, or --limit yearly\n";
    assert!(ran.err.ends_with(line), "{}", ran.err);
    good(&weir, "limit -d shop api_key=k --n 9 --limit monthly");
    let ran = at(weir.debug, "limit -d shop plan=p --n 9");
    let line = "weir limit -d shop plan=p --n 9 --limit 'monthly, of all', or --limit yearly\n";
    assert!(ran.err.ends_with(line), "{}", ran.err);
    let ran = at(weir.debug, "limit -d shop api_key=k --rate 9/m --limit yearly");
    let other = "the period of its limit is year, not m, which would start the counts over: write 4730400/year\n";
    assert!(ran.code == Some(1) && ran.err.contains(other), "{}", ran.err);
    let limit = good(&weir, "limit -d shop api_key=k --rate 99/365d --limit yearly");
    assert!(limit.contains("action:  limit 99/365d (yearly)\n"), "{limit}");
    let state = good(&weir, "state -d shop api_key=k");
    assert!(state.contains("9 per month") && state.contains("99 per year"), "{state}");
    let ran = at(weir.debug, "limit -d shop api_key=k --n 98 --limit yearly");
    assert!(ran.err.contains("warning: it replaces limit-"), "{}", ran.err);
    let ran = at(weir.debug, "block -d shop --for 1m");
    assert!(ran.code == Some(1) && ran.err.contains("matches everything"), "{}", ran.err);
    assert!(ran.err.ends_with("help: write other entries, or --force\n"), "{}", ran.err);
    for command in ["unblock nobody", "remove nobody"] {
        let ran = at(weir.debug, command);
        assert!(ran.err.contains("help: `weir controls` lists the ids"), "{}", ran.err);
    }
    good(&weir, "block -d shop --for 1m --force");
    assert_eq!(user(&weir, "bob").await, Code::OverLimit);
}

#[tokio::test]
async fn states_are_shown_counted_and_reset() {
    let weir = serving(RULES).start();
    for _ in 0..3 {
        user(&weir, "ann").await;
    }
    let state = good(&weir, "state -d shop user=ann");
    assert!(state.starts_with("shop: user=ann\n  rule:   user ("), "{state}");
    assert!(state.contains("2 per year, sliding_log: 2 used, 0 left, resets in "), "{state}");
    let json = at(weir.debug, "state -d shop user=ann --output json").json();
    assert_eq!(json["limits"][0]["used"], 2);

    let state = at(weir.debug, "state -d shop user=ann --last 5m,1h --output json").json();
    assert_eq!(state["limits"][0]["used"], 2);
    let counts = state["counts"].as_array().unwrap();
    assert_eq!(counts.iter().map(|it| &it["count"]).collect::<Vec<_>>(), [2, 2]);
    let state = good(&weir, "state -d shop user=ann --last 1h");
    assert!(state.contains(", resets in "), "{state}");
    assert!(state.contains("  1h     2    0s  sliding_log\n"), "{state}");
    let ran = at(weir.debug, "state -d shop api_key=k --last 1h");
    assert!(ran.code == Some(1) && ran.err.contains("only sliding_log"), "{}", ran.err);
    assert!(ran.err.contains("help: `weir state` lists the limits"), "{}", ran.err);

    let top = good(&weir, "top --sort-by denied");
    assert!(top.contains("   1          0  shop    user  user=ann\n1 denied hit in "), "{top}");
    assert!(good(&weir, "top --sort-by near").contains("   2   2"), "{top}");
    let list = at(weir.debug, "top --output json").json();
    assert_eq!((&list["rows"][0]["count"], &list["window"]), (&json!(3), &json!("1h")));
    assert_eq!(good(&weir, "top -d shop --rule user --window 1m").lines().count(), 3);
    let none = good(&weir, "top -d shop --rule api_key --window start --by would-be-denied");
    assert!(
        none.starts_with("no hits would be denied\n0 would-be-denied hits of all keys in "),
        "{none}"
    );
    for (args, wanted) in [
        ("top -d shpo", "error: unknown domain 'shpo'\nhelp: did you mean 'shop'?\n"),
        ("top -d shop --rule usr", "error: unknown rule 'usr'\nhelp: did you mean 'user'?\n"),
        (
            "top -d zzzzzzzz",
            "error: unknown domain 'zzzzzzzz'\nhelp: `weir top` without -d and --rule lists the keys of all \
             domains, with their rules\n",
        ),
    ] {
        let ran = at(weir.debug, args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), wanted));
    }

    assert!(good(&weir, "reset -d shop user=ann").contains("  reset:  weir:{shop|user=ann}"));
    assert_eq!(user(&weir, "ann").await, Code::Ok);
    let ran = at(weir.debug, "state -d shop other=1");
    assert!(ran.code == Some(1) && ran.err.starts_with("error: nothing is counted"), "{}", ran.err);
    assert!(
        ran.err.contains("`weir explain` with --server") && !ran.err.contains("/v1"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_running_weir_explains_as_rule_files_do_and_with_its_state() {
    let weir = serving(RULES).start();
    user(&weir, "ann").await;
    good(&weir, "block -d shop user=ann --forever --id b1 --reason abuse");
    let rules = weir.path("rules.yaml");
    let here = run(&format!("explain {} -d shop user=ann x=1", rules.display()), &[]);
    let server = format!("--server http://{}", weir.debug);
    let there = run(&format!("explain {server} -d shop user=ann x=1"), &[]);
    assert_eq!((there.code, there.err.as_str()), (Some(3), ""), "{}", there.out);
    let is_live = |line: &&str| line.starts_with("  control:") || line.starts_with("  state:");
    let live: Vec<&str> = there.out.lines().filter(is_live).collect();
    assert_eq!(live[0], "  control: b1 blocks it forever, by ann: abuse");
    assert!(live[1].starts_with("  state:  2 per year, sliding_log: 1 used, 1 left"), "{live:?}");
    let others: Vec<&str> = there.out.lines().filter(|line| !is_live(line)).collect();
    let here: Vec<&str> = here.out.lines().collect();
    let is_log = |line: &&&str| !line.starts_with("  log:");
    assert_eq!(others.iter().filter(is_log).copied().collect::<Vec<_>>(), here);

    let json = run(&format!("explain {server} --output json -d shop user=ann"), &[]).json();
    assert_eq!(json["descriptors"][0]["control"]["id"], "b1");
    assert_eq!(json["descriptors"][0]["state"]["limits"][0]["used"], 1);
    let both = run(&format!("explain {} {server} -d shop user=ann", rules.display()), &[]);
    assert_eq!(both.code, Some(2), "{}", both.err);
}

#[tokio::test]
async fn a_block_at_one_replica_denies_at_another_that_shares_its_redis() {
    let redis = Server::start();
    // The machine may be busy.
    let replica =
        || serving(HIGH_LIMIT).env("REDIS_URL", format!("127.0.0.1:{}", redis.port())).start();
    let (a, b) = (replica(), replica());
    assert_eq!(user(&b, "m1").await, Code::Ok);
    let ran = at(a.debug, "block -d shop user=m1 --forever");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    assert!(ran.out.contains("shared:  all replicas") && ran.out.contains("kept:    it outlives"));
    let m1 = || request("shop", &[("user", "m1")]);
    wait_for_code(b.grpc, m1(), Code::OverLimit).await;
    assert_eq!(at(b.debug, "unblock -d shop user=m1").code, Some(0));
    wait_for_code(a.grpc, m1(), Code::Ok).await;
    // What is counted is the same at each replica.
    let used = |weir: &Weir| {
        let state = at(weir.debug, "state -d shop user=m1 --output json").json();
        state["limits"][0]["used"].as_u64().expect("a number")
    };
    assert!(used(&a) >= 2 && used(&a) == used(&b));
    assert!(good(&b, "reset -d shop user=m1").contains("  reset:  "));
    assert_eq!(used(&a), 0);
}

#[test]
fn tokens_come_from_a_file_or_the_environment() {
    let setup = serving(RULES)
        .file("read", "r3ad-r3ad-r3ad-r3ad\n")
        .file("write", "wr1te-wr1te-wr1te-wr1te\n");
    let (read, write) = (setup.path("read"), setup.path("write"));
    let weir = setup
        .env("WEIR__DEBUG__READ_TOKEN_FILE", read)
        .env("WEIR__DEBUG__WRITE_TOKEN_FILE", write)
        .env("WEIR__DEBUG__REQUIRE_TOKEN", "true")
        .start();
    let server = format!("http://{}", weir.debug);
    let with = |args: &str, token: &str| {
        run(args, &[("WEIR_SERVER", server.as_str()), ("WEIR_TOKEN", token)])
    };
    let block = "block -d shop user=m1 --forever";
    for (args, token, code, error) in [
        ("controls", "", 1, "error: a token is needed\nhelp: "),
        ("controls", "wrong", 1, "error: the token is wrong\nhelp: "),
        ("controls", "r3ad-r3ad-r3ad-r3ad", 0, ""),
        (block, "r3ad-r3ad-r3ad-r3ad", 1, "error: the token may only read\nhelp: "),
        (block, "wr1te-wr1te-wr1te-wr1te", 0, "warning: "),
        ("controls", "two words", 2, "error: WEIR_TOKEN has no token"),
    ] {
        let ran = with(args, token);
        assert_eq!(ran.code, Some(code), "{args} {token}: {}", ran.err);
        assert!(ran.err.starts_with(error), "{args} {token}: {}", ran.err);
        assert!(!ran.err.contains("wr1te"), "{}", ran.err);
    }
    let file = |name: &str| weir.path(name).display().to_string();
    // The file goes before the variable.
    let ran = with(&format!("unblock -d shop user=m1 --token-file {}", file("write")), "wrong");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let ran = with(&format!("controls --token-file {}", file("none")), "");
    assert!(ran.code == Some(2) && ran.err.contains("none cannot be read"), "{}", ran.err);
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_a_fix() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let ran = run(&format!("top --server {nobody}"), &[]);
    assert_eq!(ran.code, Some(1));
    let start = format!("error: no answer from {nobody}: connection refused; ");
    assert!(ran.err.starts_with(&start) && ran.err.contains("kubectl port-forward"), "{}", ran.err);
    let weir = serving(RULES).start();
    let ran = run(&format!("top --server http://{}", weir.http), &[]);
    assert!(ran.code == Some(1) && ran.err.contains("not as the API of weir"), "{}", ran.err);
    let ran = run("top", &[("WEIR_SERVER", "nowhere")]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: WEIR_SERVER is \"nowhere\": "), "{}", ran.err);
}

#[test]
fn a_server_behind_tls_is_verified() {
    use crate::support::certificates::Authority;

    // The HTTP port has TLS as a proxy in front of the debug port has, but not its API.
    let authority = Authority::new();
    let identity = authority.sign(&["localhost"]);
    let setup = serving(RULES).file("tls.crt", &identity.cert).file("tls.key", &identity.key);
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    let setup = setup
        .file("ca.crt", &authority.pem)
        .env("WEIR__HTTP__TLS__CERT", cert)
        .env("WEIR__HTTP__TLS__ENABLED", "true");
    let weir = setup.env("WEIR__HTTP__TLS__KEY", key).start_unhealthy();
    let server = format!("--server https://localhost:{}", weir.http.port());
    let ran = run(&format!("top {server} --ca {}", weir.path("ca.crt").display()), &[]);
    assert!(ran.err.contains("not as the API of weir"), "{}", ran.err);
    let ran = run(&format!("top {server}"), &[]);
    assert!(
        ran.code == Some(1) && ran.err.starts_with("error: no answer from https"),
        "{}",
        ran.err
    );
    // Each side may expect the other to use TLS or not.
    let needed = "; if the server uses TLS, write https:// in the URL";
    let ran = run(&format!("top --server http://{}", weir.http), &[]);
    assert!(ran.code == Some(1) && ran.err.contains(needed), "{}", ran.err);
    let ran = run(&format!("health --url http://{}/readyz", weir.http), &[]);
    assert!(ran.code == Some(1) && ran.err.contains(needed), "{}", ran.err);
    let ran = run(&format!("top --server https://localhost:{}", weir.debug.port()), &[]);
    let plain = "the server does not use TLS: write http:// in the URL";
    assert!(ran.code == Some(1) && ran.err.contains(plain), "{}", ran.err);
}

#[test]
fn unblock_and_remove_need_no_domain_where_one_has_rules() {
    let weir = serving(RULES).start();
    good(&weir, "block user=m1,path=/");
    good(&weir, "allow user=m1");
    let deleted = good(&weir, "unblock path=/,user=m1");
    assert!(deleted.ends_with(": block shop user=m1,path=/\n"), "{deleted}");
    let deleted = good(&weir, "remove user=m1");
    assert!(deleted.ends_with(": allow shop user=m1\n"), "{deleted}");
    let ran = at(weir.debug, "unblock user=m1");
    assert!(ran.err.starts_with("error: there is no block of shop user=m1\n"), "{}", ran.err);
    let other = "domain: other\ndescriptors: [{ key: a, rate: 1/s }]\n";
    let setup = serving(RULES).file("other.yaml", other).arg("--rules");
    let path = setup.path("other.yaml");
    let weir = setup.arg(path.to_str().unwrap()).start();
    let ran = at(weir.debug, "unblock user=m1");
    assert!(ran.code == Some(1) && ran.err.contains("-d shop"), "{}", ran.err);
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    for (args, error) in [
        ("block", "there is no descriptor: write key=value"),
        ("block -d shop =1", "error: invalid descriptor '=1'"),
        ("block -d shop user", "`user` has no `=`: write user=VALUE, or user= for the empty value"),
        ("unblock -d shop user", "`user` has no `=`"),
        ("state -d shop user", "`user` has no `=`"),
        ("explain --server http://127.0.0.1:1 -d shop user", "`user` has no `=`"),
        ("hit -d shop user", "`user` has no `=`"),
        ("block -d shop a=b --for 5", "write a duration such as 10m"),
        ("limit -d shop a=b", "--n"),
        ("unblock", "<ID>"),
        ("state -d shop", "--domain has no descriptor: write -d shop key=value"),
        ("why -d shop", "--domain has no descriptor"),
        ("why -d shop a=b --since 10", "write a duration"),
        ("block -d shop a=b c=d", "there are two descriptors"),
        ("state -d shop a=b --last 5", "write durations such as 5m"),
        ("top --sort-by most", "near"),
        ("top --rule user", "--domain"),
        ("top --window 2h", "1m, 10m, 1h, start"),
        ("explain -d shop a=b", "RULES"),
    ] {
        let ran = run(args, &[]);
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.err);
        assert!(ran.err.contains(error), "{args}: {}", ran.err);
    }
    let (status, output) = Setup::new().arg("block").arg("--help").run();
    assert!(status.success() && output.contains("weir block -d shop user=mallory"), "{output}");
}
