//! `weir hit`, and the examples of docs/reference/cli.md and docs/control.md.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;

use regex::Regex;

use crate::support::api::HIGH_LIMIT;
use crate::support::files::read;
use crate::support::markdown::blocks_of;
use crate::support::program::Program;
use crate::support::redis::free_port;
use crate::support::weir::{Setup, serving};
use crate::support::{console, http};

const LIMITS: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
";

/// Runs `weir hit` with these arguments. Returns its exit code and its output.
fn hit(args: &[&str]) -> (i32, String) {
    let setup = args.iter().fold(Setup::new().arg("hit"), |setup, arg| setup.arg(arg));
    let (status, output) = setup.run();
    (status.code().expect("an exit code"), output)
}

/// Runs `weir hit` with arguments that spaces separate. The server is the first.
fn hit_at(server: SocketAddr, args: &str) -> (i32, String) {
    let server = server.to_string();
    hit(&[server.as_str()].into_iter().chain(args.split(' ')).collect::<Vec<_>>())
}

#[test]
fn it_prints_each_status_and_exits_by_the_result() {
    let weir = serving(LIMITS).start();
    let (code, output) = hit_at(weir.grpc, "-d shop user=ann user=b other=1");
    assert_eq!(code, 0, "{output}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "OK");
    assert!(lines[1].starts_with("  user=ann  OK          2 per year, 1 remaining, reset in "));
    assert_eq!(lines[3], "  other=1   OK          no limit");
    // A look counts nothing.
    assert_eq!(hit_at(weir.grpc, "-d shop user=ann --hits 0").0, 0);
    assert_eq!(hit_at(weir.grpc, "-d shop user=ann").0, 0);
    let (code, output) = hit_at(weir.grpc, "-d shop user=ann");
    assert_eq!((code, output.lines().next()), (3, Some("OVER_LIMIT")));
    // One denial of many requests is enough.
    let (code, output) = hit_at(weir.grpc, "--repeat 3 -d shop user=cat");
    assert_eq!(code, 3, "{output}");
    assert!(output.ends_with("\n3 requests: 2 OK, 1 over limit, 0 errors\n"), "{output}");
}

#[test]
fn json_is_that_of_the_http_endpoint() {
    let weir = serving(LIMITS).start();
    for (key, limited) in [("other", false), ("user", true)] {
        let entries = format!(r#"[{{"key":"{key}","value":"ann"}}]"#);
        let body = format!(r#"{{"domain":"shop","descriptors":[{{"entries":{entries}}}]}}"#);
        let address = weir.grpc.to_string();
        let descriptor = format!("{key}=ann");
        let (code, output) = hit(&[&address, "-d", "shop", &descriptor, "--output", "json"]);
        assert_eq!(code, 0, "{output}");
        let response: serde_json::Value = serde_json::from_str(&output).expect("JSON");
        let limit = &response["statuses"][0]["currentLimit"];
        assert_eq!(limit["requestsPerUnit"] == 2, limited, "{output}");
        if !limited {
            assert_eq!(output, http::post(weir.http, "/json", body).body + "\n");
        }
    }
}

#[test]
fn repeated_requests_have_a_line_each_and_their_results() {
    let weir = serving(LIMITS).start();
    let (code, output) = hit_at(weir.grpc, "--repeat 3 -d shop user=ann");
    assert_eq!(code, 3, "{output}");
    assert!(
        output.starts_with("1  OK          user=ann  2 per year, 1 remaining, reset in "),
        "{output}"
    );
    assert!(output.ends_with("\n3 requests: 2 OK, 1 over limit, 0 errors\n"), "{output}");
}

#[test]
fn a_refund_makes_room() {
    let weir = serving(LIMITS).start();
    assert_eq!(hit_at(weir.grpc, "--hits 2 -d shop user=ann").0, 0);
    let (code, output) = hit_at(weir.grpc, "--refund -d shop user=ann");
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("2 per year, 1 remaining"), "{output}");
    assert_eq!(hit_at(weir.grpc, "-d shop user=ann").0, 0);
    assert_eq!(hit_at(weir.grpc, "-d shop user=ann").0, 3);
}

#[test]
fn errors_exit_1_and_invalid_arguments_exit_2() {
    let weir = serving(LIMITS).start();
    let nobody = format!("127.0.0.1:{}", free_port());
    let (code, output) = hit(&[&nobody, "-d", "shop", "user=ann"]);
    assert_eq!(code, 1);
    let cause =
        format!("error: cannot connect to {nobody}: connection refused; start `weir serve`");
    assert!(output.starts_with(&cause), "{output}");
    let (code, output) = hit_at(weir.http, "-d shop user=ann");
    assert_eq!(code, 1);
    let cause = format!("check that {} is the address of gRPC", weir.http);
    assert!(output.contains(&cause), "{output}");
    let (code, output) = hit(&[&weir.grpc.to_string(), "-d", "", "a=1"]);
    assert_eq!(code, 1);
    assert!(output.starts_with("error: Unknown: "), "{output}");
    for (args, wanted) in [
        (&["localhost", "-d", "shop", "a=1"][..], "there is no port"),
        (&["-d", "shop", "=1"], "an entry has no key"),
        (&["-d", "shop", "user"], "write user=VALUE, or user= for the empty value"),
        (&["-d", "shop", "user=ann", "localhost:8081"], "write an address before -d"),
        (&["-d", "shop"], "write -d shop key=value"),
        (&["--timeout", "0", "-d", "shop", "a=1"], "write a duration above zero"),
    ] {
        let (code, output) = hit(args);
        assert_eq!(code, 2, "{args:?}: {output}");
        assert!(output.contains(wanted), "{output}");
    }
}

#[test]
fn a_unix_socket_and_flags_of_the_reference_are_accepted() {
    let setup = serving(HIGH_LIMIT);
    let socket = setup.path("grpc.sock");
    let address = format!("unix:{}", socket.display());
    let _weir = setup.env("GRPC_UDS", socket).start();
    let (code, output) =
        hit(&["-dial_string", &address, "-domain", "shop", "-descriptors", "user=ann"]);
    assert_eq!((code, output.lines().next()), (0, Some("OK")), "{output}");
}

#[test]
fn an_interrupt_ends_with_the_summary() {
    let weir = serving(HIGH_LIMIT).start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["hit", &weir.grpc.to_string(), "--repeat", "1000000000"]);
    let mut hit = Program::start("hit", command.args(["-d", "shop", "user=ann"]));
    hit.until_said("2  OK").unwrap();
    hit.signal("INT");
    assert_eq!(hit.wait_until_ended().code(), Some(0));
    let output = hit.said_in_all();
    assert!(output.contains(" OK, 0 over limit, 0 errors\n"), "{output}");
}

#[test]
fn it_stops_when_the_reader_of_its_output_is_gone() {
    let weir = serving(HIGH_LIMIT).start();
    let script = "\"$0\" hit $1 --repeat 1000000000 -d shop user=ann | head -n 2";
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", script, env!("CARGO_BIN_EXE_weir"), &weir.grpc.to_string()]);
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8(ran.stdout).unwrap().lines().count(), 2);
}

#[test]
fn tls_verifies_the_server_and_shows_a_certificate() {
    use std::path::Path;

    use crate::support::certificates::Authority;

    let (servers, clients) = (Authority::named("servers"), Authority::named("clients"));
    let server = servers.sign(&["weir.test"]);
    let setup = serving(HIGH_LIMIT)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .file("clients.crt", &clients.pem)
        .file("servers.crt", &servers.pem);
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    let client_ca = setup.path("clients.crt");
    let weir = setup
        .env("WEIR__GRPC__TLS__ENABLED", "true")
        .env("WEIR__GRPC__TLS__CERT", cert)
        .env("WEIR__GRPC__TLS__KEY", key)
        .env("WEIR__GRPC__TLS__CLIENT_CA", client_ca)
        .start();
    let (cert, key) = clients.sign(&["client"]).write(&weir.path(""), "client");
    let (ca, other) = (weir.path("servers.crt"), weir.path("clients.crt"));
    let with = |ca: &Path, name: &str| {
        let [ca, cert, key] = [ca, &cert, &key].map(|path| path.display().to_string());
        let identity = format!("--cert {cert} --key {key}");
        hit_at(weir.grpc, &format!("--ca {ca} {identity} --server-name {name} -d shop user=ann"))
    };
    let (code, output) = with(&ca, "weir.test");
    assert_eq!(code, 0, "{output}");
    for (ca, name, wanted) in [
        (other.as_path(), "weir.test", "invalid peer certificate"),
        (ca.as_path(), "other.test", "invalid peer certificate"),
        (ca.as_path(), "a/b", "--server-name is \"a/b\"; write a DNS name"),
        (Path::new("/none"), "weir.test", "--ca names /none: "),
    ] {
        let (code, output) = with(ca, name);
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(wanted), "{output}");
    }
    let ca = ca.display().to_string();
    let plain = serving(HIGH_LIMIT).start();
    let (code, output) = hit_at(plain.grpc, "--tls -d shop user=ann");
    assert_eq!(code, 1);
    assert!(output.contains("the server does not use TLS: omit the options of TLS"), "{output}");
    let without = format!("--ca {ca} --server-name weir.test -d shop user=ann");
    assert_eq!(hit_at(weir.grpc, &without).0, 1);
    let (code, output) = hit_at(weir.grpc, "-d shop user=ann");
    assert_eq!(code, 1);
    assert!(output.contains("; if it uses TLS, write --tls, and --ca"), "{output}");
}

#[test]
fn the_version_has_the_commit_and_completions_are_printed() {
    let (status, output) = Setup::new().arg("-V").run();
    assert!(status.success());
    assert!(Regex::new(r"^weir \S+ \((unknown|[0-9a-f]{7,12})\)\n$").unwrap().is_match(&output));
    for shell in ["bash", "zsh", "fish"] {
        let (status, output) = Setup::new().arg("completions").arg(shell).run();
        assert!(status.success() && output.contains("repeat"), "{output}");
    }
}

#[test]
fn examples_for_a_running_weir_work_as_pasted() {
    // The ports are the default ones, so runs take turns, also with those of the README.
    let turn = File::create(std::env::temp_dir().join("weir-readme-test.lock")).unwrap();
    turn.lock().unwrap();
    for name in ["docs/reference/cli.md", "docs/control.md"] {
        let document = read(name);
        let rules = blocks_of(&document, "yaml").swap_remove(0);
        let setup = Setup::new().file("shop.yaml", &rules.text);
        let weir = setup.arg("serve").arg("--rules").arg("shop.yaml").start_as_it_is();
        let examples = blocks_of(&document, "console");
        assert!(examples.len() >= 2);
        for example in examples {
            let ran = console::run(&example.text, &weir.path(""));
            ran.unwrap_or_else(|error| panic!("{name}:{}: {error}", example.line));
        }
    }
}
