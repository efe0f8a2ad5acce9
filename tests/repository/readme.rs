//! Runs the commands of README.md as they are pasted, in order, and compares the outputs it shows.
//!
//! `weir` and `envoy` on the PATH are the binary under test and the Envoy that the other tests use.
//! `cargo` is a stand-in that accepts the README's commands and nothing else, because installing
//! toolchains and building weir again is left out. `scripts/test` is left to .ci/run, of which this is a
//! part. Nothing else is replaced: the ports are the default ones, so runs take turns through a file lock.

pub mod session;

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use self::session::Session;

/// The ports of the commands: two of weir, its debug port, Envoy and Envoy's own backend.
const PORTS: [u16; 5] = [8081, 8080, 6070, 10000, 10001];

/// Starts weir from the sources.
const SERVE: &str = "cargo run --locked -- serve --rules examples/rules";

/// Runs all tests.
const TEST: &str = "scripts/test";

/// The lines that are seen without much scrolling.
const TWO_SCREENS: usize = 80;

const MAX_LINES: usize = 160;

/// Set where a test runs itself with signals ignored.
const IGNORES_SIGNALS: &str = "WEIR_TEST_IGNORES_SIGNALS";

/// Starts weir and Envoy.
const TRY_ENVOY: &str = "scripts/try-envoy";

/// A command block and the output block that follows it.
#[derive(Debug, PartialEq)]
pub struct Step {
    pub line: usize,
    pub commands: String,
    pub output: Option<String>,
}

#[test]
fn commands_of_the_readme_work_as_pasted() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let steps = steps(&readme);
    let other = readme.lines().filter_map(|line| line.strip_prefix("```"));
    let other = other.filter(|language| !["", "sh", "text", "yaml"].contains(language));
    assert_eq!(other.count(), 0, "commands are in `sh` blocks, or they would not be run");
    assert!(steps.iter().any(|step| step.commands.contains(TRY_ENVOY)), "starts Envoy");
    let steps: Vec<Step> = steps.into_iter().filter(|step| !runs(step, TEST)).collect();

    run_up_to_three_times(|| run(&steps));
}

/// Runs a document until it is right, while no other run uses the same ports.
///
/// A limit by the minute is hit later if a new minute starts in between, as documents say, and Envoy lets
/// requests pass if a busy machine takes longer than its timeout. Both are rare: a document that is wrong
/// fails each time.
pub fn run_up_to_three_times(mut run: impl FnMut() -> Result<(), String>) {
    let _turn = take_turn();
    for attempt in 1.. {
        match run() {
            Ok(()) => return,
            Err(error) if attempt == 3 => panic!("{error}"),
            Err(_) => {}
        }
    }
}

/// Whether a block is this command alone.
fn runs(step: &Step, command: &str) -> bool {
    step.commands.trim_end() == command
}

#[test]
fn the_first_screens_run_weir_and_its_tests() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let count = readme.lines().count();
    assert!(count <= MAX_LINES, "{count} lines: move what is not for everybody to its page");
    let steps = steps(&readme);
    let line = |command: &str| {
        let found: Vec<&Step> = steps.iter().filter(|step| runs(step, command)).collect();
        assert_eq!(found.len(), 1, "one block is {command:?} alone");
        found[0].line
    };
    // Nothing else is needed before.
    assert_eq!(line(SERVE), steps[0].line, "the first command serves");
    assert!(line(TEST) < TWO_SCREENS, "line {}", line(TEST));
    assert!(line(SERVE) < line("cargo install --locked --path ."));
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let steps = ci.lines().filter_map(|line| line.trim().strip_prefix("step "));
    let is_test = |step: &&str| step.contains(TEST) || step.contains("cargo test");
    let tests: Vec<&str> = steps.filter(is_test).collect();
    assert_eq!(tests, [TEST], ".ci/run runs the tests with the README's command alone");
    assert!(ci.contains("\nexport WEIR_REQUIRE_TOOLS=1\n"), "a missing program fails .ci/run");
}

/// Where nothing can be installed, as another user than root.
#[test]
fn the_tests_end_at_a_missing_program_that_is_required() {
    let directory = tempfile::tempdir().unwrap();
    let program = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::create_dir(directory.path().join("scripts")).unwrap();
    fs::copy(root().join("scripts/test"), directory.path().join("scripts/test")).unwrap();
    program("scripts/install-envoy", "echo bin/envoy");
    program("scripts/install-linters", "");
    program("scripts/install-helm", "");
    let programs = "cargo cc redis-server nutcracker faketime valgrind python3 curl openssl systemd-analyze envoy compose-spec";
    programs.split(' ').for_each(|name| program(&format!("bin/{name}"), "echo 1"));
    program("bin/dirname", "echo scripts");
    program("bin/id", "echo 1000");
    program("bin/mktemp", "/usr/bin/mktemp \"$@\"");
    program("bin/tee", "/usr/bin/tee \"$@\"");
    program("bin/rm", "/bin/rm \"$@\"");
    program("bin/nproc", "echo 1");
    let tests = |required: &str| {
        let mut command = Command::new("/bin/bash");
        command.arg("scripts/test").current_dir(directory.path()).env_clear();
        command.env("PATH", directory.path().join("bin")).env("WEIR_REQUIRE_TOOLS", required);
        command.env("WEIR_COMPOSE_SPEC", "compose-spec");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = tests("");
    assert_eq!(code, Some(0), "{said}");
    for missing in ["cannot fetch promtool", "cannot install chromium"] {
        assert!(said.contains(&format!("{missing}: its checks are skipped\n")), "{said}");
    }
    // Once more at the end, and what another script installs.
    let end = ["actionlint is missing", "cannot fetch promtool", "cannot install chromium"];
    let end = end.map(|missing| format!("scripts/test: {missing}: its checks were skipped\n"));
    assert!(said.ends_with(&end.concat()), "{said}");
    let (code, said) = tests("1");
    assert_eq!(code, Some(1), "{said}");
    let wanted = "promtool: its checks are skipped\nscripts/test: WEIR_REQUIRE_TOOLS=1 needs it: ";
    assert!(said.contains(wanted), "{said}");
    assert!(!said.contains("chromium"), "{said}");
}

#[test]
fn sessions_start_with_the_default_signals() {
    if std::env::var_os(IGNORES_SIGNALS).is_none() {
        // As `nohup` and a shell's `&` start programs.
        let mut ignoring = Command::new("bash");
        let script = "trap '' INT QUIT HUP TERM; exec \"$0\" --exact \"$1\"";
        ignoring.args(["-c", script]).arg(std::env::current_exe().unwrap());
        let test = "readme::sessions_start_with_the_default_signals";
        let ran = ignoring.arg(test).env(IGNORES_SIGNALS, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && printed.contains(" 1 passed"), "{printed}");
        return;
    }
    let ignored = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(line.expect("a mask").trim(), 16).unwrap();
        // The C library has others for itself.
        mask & 0x7fff_ffff
    };
    assert_ne!(ignored(&fs::read_to_string("/proc/self/status").unwrap()), 0, "the test's own");
    let tools = tempfile::tempdir().unwrap();
    let mut session = Session::new(&root(), tools.path(), &[]);
    let printed = session.run("cat /proc/self/status").unwrap();
    assert_eq!(ignored(&printed), 0, "{printed}");
}

fn run(steps: &[Step]) -> Result<(), String> {
    let tools = tempfile::tempdir().unwrap();
    install_tools(tools.path());
    let mut session = Session::new(&root(), tools.path(), &PORTS);
    for Step { line, commands, output } in steps {
        let describe = |error| format!("README.md:{line}: {error}");
        if commands.starts_with(TRY_ENVOY) {
            // As the README says.
            session.stop_servers(&PORTS);
        }
        let printed = if starts_a_server(commands) {
            session.start(commands, output.as_deref().unwrap_or_default())
        } else {
            session.run(commands)
        };
        let printed = printed.map_err(describe)?;
        if let Some(shown) = output {
            let compare = if commands.trim_end() == SERVE { compare_log } else { compare };
            compare(shown, &printed).map_err(describe)?;
        }
    }
    Ok(())
}

/// Whether the last command of a block runs until it is stopped.
fn starts_a_server(commands: &str) -> bool {
    let last = commands.lines().last().unwrap_or_default();
    last == SERVE || last.starts_with(TRY_ENVOY)
}

/// Waits for other runs, which use the same ports.
fn take_turn() -> File {
    let turn = File::create(std::env::temp_dir().join("weir-readme-test.lock")).unwrap();
    turn.lock().unwrap();
    turn
}

/// Returns the `sh` blocks of a document, each with the `text` block that follows it.
pub fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let body: String = body.map(|line| format!("{line}\n")).collect();
        match (language, steps.last_mut()) {
            ("sh", _) => steps.push(Step { line: number + 1, commands: body, output: None }),
            ("text", Some(Step { output: output @ None, .. })) => *output = Some(body),
            _ => {}
        }
    }
    steps
}

/// Checks that the shown lines were printed in this order. Numbers may differ, except for HTTP
/// statuses: those must be the same, and no others may have been printed.
fn compare(shown: &str, printed: &str) -> Result<(), String> {
    let describe = || format!("shown:\n{shown}\nprinted:\n{printed}");
    let statuses = |text: &str| text.lines().filter_map(status).collect::<Vec<_>>();
    if statuses(shown) != statuses(printed) {
        return Err(format!("the statuses differ\n{}", describe()));
    }
    let mut rest = printed.lines();
    for line in shown.lines() {
        let wanted = without_numbers(line);
        if !rest.any(|printed| without_numbers(printed).ends_with(&wanted)) {
            return Err(format!("{line:?} was not printed\n{}", describe()));
        }
    }
    Ok(())
}

/// Checks that a log has the shown lines and no others, after their times.
fn compare_log(shown: &str, printed: &str) -> Result<(), String> {
    let sorted = |lines: Vec<&str>| {
        let mut lines: Vec<String> = lines.into_iter().map(without_numbers).collect();
        lines.sort_unstable();
        lines
    };
    let with_time = printed.lines().map(|line| Some(line.split_once("Z ")?.1.trim_start()));
    let printed: Option<Vec<&str>> = with_time.collect();
    let printed = printed.ok_or("a line of the log has no time")?;
    let (shown, printed) = (sorted(shown.lines().collect()), sorted(printed));
    match shown == printed {
        true => Ok(()),
        false => Err(format!("the log differs\nshown:\n{shown:#?}\nprinted:\n{printed:#?}")),
    }
}

/// Returns the HTTP status that a line is or, in a status line, has.
fn status(line: &str) -> Option<u16> {
    let text = line.strip_prefix("HTTP/1.1 ").map_or(line, |rest| rest.get(..3).unwrap_or(rest));
    (text.len() == 3).then(|| text.parse().ok())?
}

fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    for part in line.trim_end().split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty())
    {
        out.push_str(part);
        out.push('#');
    }
    out
}

/// Fills a directory for the PATH with `weir`, `envoy` and the stand-in for `cargo`.
pub fn install_tools(tools: &Path) {
    symlink(env!("CARGO_BIN_EXE_weir"), tools.join("weir")).unwrap();
    symlink(envoy(), tools.join("envoy")).unwrap();
    let cargo = tools.join("cargo");
    let script = "#!/bin/sh\ncase \"cargo $*\" in\n'cargo install --locked --path .') ;;\n";
    let script = format!("{script}'{SERVE}') shift 3; exec weir \"$@\" ;;\n*) exit 1 ;;\nesac\n");
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn try_envoy_names_ports_in_use_and_stops_what_it_started() {
    let _turn = take_turn();
    let tools = tempfile::tempdir().unwrap();
    install_tools(tools.path());
    let mut session = Session::new(&root(), tools.path(), &PORTS);
    let used = TcpListener::bind((Ipv4Addr::LOCALHOST, 10_001)).unwrap();
    let error = session.run(TRY_ENVOY).unwrap_err();
    assert!(error.contains("port 10001 is used by another program"), "{error}");
    drop(used);
    session.start(TRY_ENVOY, "Press Ctrl-C to stop both.\n").unwrap();
    let printed = session.interrupt(&PORTS).unwrap();
    assert!(printed.ends_with("scripts/try-envoy: stopped\n"), "{printed}");
}

fn envoy() -> PathBuf {
    let installed = root().join(".tools/venv/bin/envoy");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join("envoy"));
    let found = match std::env::var_os("WEIR_ENVOY") {
        Some(named) => Some(PathBuf::from(named)).filter(|named| named.is_file()),
        None => [installed].into_iter().chain(in_path).find(|program| program.is_file()),
    };
    found.expect("Envoy is missing: run scripts/test, which installs it, or set WEIR_ENVOY")
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

#[test]
fn steps_pair_commands_with_outputs() {
    let document = "```sh\na\nb\n```\n\n```text\nout\n```\n```yaml\ny\n```\n```sh\nc\n```\n";
    assert_eq!(
        steps(document),
        [
            Step { line: 1, commands: "a\nb\n".into(), output: Some("out\n".into()) },
            Step { line: 12, commands: "c\n".into(), output: None },
        ]
    );
}

#[test]
fn logs_are_compared_as_a_whole() {
    let shown = "WARN a 1\nINFO b\n";
    assert_eq!(compare_log(shown, "1Z  WARN a 2\n2Z  INFO b\n"), Ok(()));
    assert_eq!(compare_log(shown, "1Z  INFO b\n2Z  WARN a 2\n"), Ok(()));
    for printed in ["1Z  WARN a 2\n", "1Z WARN a 2\n2Z INFO b\n3Z INFO c\n", "WARN a 1\nINFO b\n"] {
        assert!(compare_log(shown, printed).is_err(), "{printed}");
    }
}

#[test]
fn outputs_are_compared_by_status_and_by_text() {
    let shown = "200\nHTTP/1.1 429 Too Many Requests\nreset: 57\n";
    assert!(compare(shown, "200\nHTTP/1.1 429 Too Many Requests\nother: 1\nreset: 3\n").is_ok());
    for printed in [
        "200\n200\nHTTP/1.1 429 Too Many Requests\nreset: 57\n",
        "429\nHTTP/1.1 429 Too Many Requests\nreset: 57\n",
        "200\nHTTP/1.1 200 OK\nreset: 57\n",
        "200\nHTTP/1.1 429 Too Many Requests\n",
        "reset: 57\n200\nHTTP/1.1 429 Too Many Requests\n",
    ] {
        assert!(compare(shown, printed).is_err(), "{printed}");
    }
}
