//! examples/systemd: the unit's command starts weir with its settings file, and systemd accepts the unit.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::http;
use crate::support::tools::tool;
use crate::support::weir::Setup;

const UNIT: &str = include_str!("../../examples/systemd/weir.service");
const SETTINGS: &str = include_str!("../../examples/systemd/weir.toml");
const RULES: &str = include_str!("../../examples/rules/example.yaml");

const SETTINGS_PATH: &str = "/etc/weir/weir.toml";
const RULES_PATH: &str = "/etc/weir/rules";

/// Returns the value of a key of the unit.
fn value(key: &str) -> &'static str {
    let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.next().unwrap_or_else(|| panic!("weir.service has no {key}"))
}

/// Returns the settings and rules in a directory of the test, and the unit's command that reads them.
fn setup(settings: &str) -> Setup {
    let setup = Setup::new().file("rules/example.yaml", RULES);
    let rules = setup.path("rules");
    assert!(settings.contains(RULES_PATH));
    let setup = setup.file("weir.toml", &settings.replace(RULES_PATH, rules.to_str().unwrap()));
    let file = setup.path("weir.toml");
    let mut command = value("ExecStart").split(' ');
    assert_eq!(command.next(), Some("/usr/local/bin/weir"));
    command.fold(setup, |setup, argument| {
        setup.arg(&argument.replace(SETTINGS_PATH, file.to_str().unwrap()))
    })
}

/// Returns a setting's default.
fn default(setting: &str) -> String {
    let (status, settings) = Setup::new().arg("serve").arg("--print-settings").run();
    assert!(status.success(), "{settings}");
    let after = settings.split(&format!("{setting} = ")).nth(1).unwrap();
    after.split_whitespace().next().unwrap().trim_matches('"').replace('_', "")
}

#[test]
fn the_command_of_the_unit_serves_the_rules_of_the_settings_file() {
    let weir = setup(SETTINGS).start();
    let request =
        r#"{"domain":"example","descriptors":[{"entries":[{"key":"path","value":"/a"}]}]}"#;
    let answer = http::post(weir.http, "/json", request);
    assert!(answer.body.contains(r#""requestsPerUnit":5"#), "{}", answer.body);
}

#[test]
fn settings_that_are_comments_are_valid() {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    let settings: String = SETTINGS.lines().map(uncomment).collect();
    assert!(settings.contains("\npassword_file"), "{settings}");
    let (status, printed) = setup(&settings).arg("--print-settings").run();
    assert!(status.success(), "{printed}");
    assert!(printed.contains("store.kind = \"redis\""), "{printed}");
    // The name of the credential is that of the file.
    let credential = UNIT.split("LoadCredential=").nth(1).unwrap().split(':').next().unwrap();
    assert!(settings.contains(&format!("/run/credentials/weir.service/{credential}\"")));
}

#[test]
fn the_unit_leaves_weir_the_time_and_the_files_that_it_needs() {
    let timeout = default("drain.timeout");
    let timeout: u32 = timeout.strip_suffix('s').unwrap().parse().unwrap();
    assert!(value("TimeoutStopSec").parse::<u32>().unwrap() > timeout);

    let number = |setting: &str| default(setting).parse::<u32>().unwrap();
    let connections = number("grpc.max_connections") + 2 * number("http.max_connections");
    assert!(value("LimitNOFILE").parse::<u32>().unwrap() > connections);

    // SIGHUP stops weir.
    assert!(!UNIT.lines().any(|line| line.starts_with("ExecReload")));
}

#[test]
fn paths_of_the_unit_are_those_that_its_comment_installs() {
    let (comment, _) = UNIT.split_once("[Unit]").unwrap();
    for path in ["/usr/local/bin/weir\n", "/etc/weir/weir.toml\n", "/etc/weir/rules "] {
        assert!(comment.contains(path), "{path}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = comment.split_whitespace().filter(|word| word.starts_with("examples/"));
    assert_eq!(sources.filter(|source| root.join(source).is_file()).count(), 3);
}

#[test]
fn systemd_accepts_the_unit_and_calls_it_safe() {
    let Some(analyze) = tool("systemd-analyze", "WEIR_SYSTEMD_ANALYZE") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.service");
    let check = |unit: &str, arguments: &[&str]| {
        fs::write(&file, unit.replace("/usr/local/bin/weir", env!("CARGO_BIN_EXE_weir"))).unwrap();
        let output = Command::new(&analyze).args(arguments).arg(&file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        // It also warns of other units of the machine.
        let own: Vec<&str> = error.lines().filter(|line| line.contains("weir.service")).collect();
        (output.status.success(), own.join("\n"))
    };
    let verify = ["verify", "--man=no"];
    // Warnings too, such as those about unknown keys.
    assert_eq!(check(UNIT, &verify), (true, String::new()));
    let (_, error) = check(&UNIT.replace("ProtectHome=", "ProtectHouse="), &verify);
    assert!(error.contains("ProtectHouse"), "{error}");

    // An exposure of at most 2.0 of 10.
    let security = ["security", "--offline=yes", "--threshold=20", "--no-pager"];
    let (safe, error) = check(UNIT, &security);
    assert!(safe, "{error}");
    let (safe, _) = check(&UNIT.replace("SystemCallFilter=", "#"), &security);
    assert!(!safe);
}
