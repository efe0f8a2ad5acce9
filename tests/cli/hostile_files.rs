//! Files that would take quadratic time: each is one error with the place and what to write instead, or
//! is read all the same. No test measures time: those without a bound would take hours.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// More items than anything may have, in a few MB.
const MANY: usize = 100_000;

const RULES: &str = "\
domain: d
descriptors:
- key: a
  rate_limit: { unit: day, requests_per_unit: 1 }
";

/// Runs `weir` beside [`RULES`]. Returns whether it succeeded, and what it printed as errors.
fn weir(files: &[(&str, &str)], command: &str) -> (bool, String) {
    let directory: TempDir = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    run(directory.path(), command)
}

fn run(directory: &Path, command: &str) -> (bool, String) {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(command.split_whitespace()).current_dir(directory).env_clear();
    let ran = weir.output().unwrap();
    (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
}

/// Returns the first line of each error.
fn errors(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| line.contains("error: ")).collect()
}

#[test]
fn too_many_limits_are_one_error() {
    for item in ["{unit: day, requests_per_unit: 1, algorithm: gcra}", "{uni: day}", "x"] {
        let limits = format!("    - {item}\n").repeat(MANY);
        let rules = format!("domain: d\ndescriptors:\n- key: a\n  rate_limits:\n{limits}");
        let (good, printed) = weir(&[("a.yaml", &rules)], "check a.yaml");
        let error = "a.yaml:5:5: error: config error, 100000 items in `rate_limits`";
        assert!(!good && printed.contains("help: write 1 to 16 limits, each as"), "{printed}");
        assert_eq!(errors(&printed), [error]);

        let overlay =
            format!("patches:\n- match: {{domain: d}}\n  set:\n   rate_limits:\n{limits}");
        let command = "check rules.yaml --overlay a.overlay.yaml";
        let (good, printed) = weir(&[("a.overlay.yaml", &overlay)], command);
        let error = "a.overlay.yaml:5:5: error: config error, 100000 items in `rate_limits`";
        assert!(!good, "{printed}");
        assert_eq!(errors(&printed), [error]);
    }
}

#[test]
fn unknown_names_have_suggestions_as_long_as_that_is_quick() {
    let rule = |i| {
        let limit = format!("unit: day, requests_per_unit: 1, name: name{i}");
        format!("- {{key: a{i}, rate_limit: {{{limit}, replaces: [{{name: nome{i}}}]}}}}\n")
    };
    let rules: String = (0..20_000).map(rule).collect();
    let rules = format!("domain: d\ndescriptors:\n{rules}");
    let (good, printed) = weir(&[("a.yaml", &rules)], "check a.yaml");
    assert!(good, "{printed}");
    assert_eq!(printed.matches("did you mean `name").count(), (1 << 20) / 20_000);
    assert!(printed.contains("or remove the item"), "the others have general help");
    assert!(printed.ends_with(
        "19000 more warnings are not listed (`weir check --max-problems` lists more)\n"
    ));

    let unknown: String = (0..MANY).map(|i| format!("  shadow_mod{i}: true\n")).collect();
    for patch in [
        format!("patches:\n- match: {{domain: d}}\n{unknown}"),
        format!("patches:\n- match: {{domain: d}}\n  set:\n{}", unknown.replace("  s", "    s")),
    ] {
        let command = "check rules.yaml --overlay a.overlay.yaml";
        let (good, printed) = weir(&[("a.overlay.yaml", &patch)], command);
        assert!(!good && printed.contains("99900 more errors are not listed"), "{printed}");
    }
}

#[test]
fn a_manifest_may_be_one_line() {
    let entry = |i| format!(r#""a{i}.yaml": "domain: d{i}\n""#);
    let data: Vec<String> = (0..20_000).map(entry).collect();
    let data = data.join(", ");
    let manifest = format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "data": {{{data}}}}}"#);
    let (good, printed) = weir(&[("a.yaml", &manifest)], "check a.yaml");
    assert!(good, "{printed}");
    let broken = manifest.replace("domain: d19999", "domain: d19999\\nx: 1");
    let (good, printed) = weir(&[("a.yaml", &broken)], "check a.yaml");
    assert!(!good && printed.contains("a.yaml#/a19999.yaml:2:1: error: "), "{printed}");
}

#[test]
fn replays_have_a_bounded_number_of_fields() {
    let replay = |descriptors: &str| {
        let command = format!("replay rules.yaml --traffic log.jsonl -d d {descriptors}");
        let (good, printed) =
            weir(&[("log.jsonl", "{\"time\": 1767225600, \"a\": 1}\n")], &command);
        assert!(!good, "{printed}");
        printed
    };
    let fields: String = (0..10_000).map(|i| format!("{{f{i}}}")).collect();
    let printed = replay(&format!("--descriptor a={fields}"));
    assert!(printed.contains("there are over 1000 fields: write fewer"), "{printed}");
    let printed = replay(&"--descriptor a={a} ".repeat(1_000));
    assert_eq!(printed, "error: there are 1000 descriptors: a request has up to 256\n");
}

#[test]
fn settings_files_are_bounded() {
    let unknown: String = (0..30_000).map(|i| format!("zz{i} = 1\n")).collect();
    let command = "serve --print-settings --settings a.toml";
    let (good, printed) = weir(&[("a.toml", &unknown)], command);
    assert!(
        !good && printed.contains("a.toml: 29900 more errors are not listed; fix"),
        "{printed}"
    );
    assert_eq!(printed.matches("there is no setting").count(), 100, "{printed}");
    let (good, printed) = weir(&[("a.toml", &"# comment\n".repeat(1 << 17))], command);
    assert!(!good && printed.contains("a.toml: the settings file has more than 1048576 bytes; "));
}

#[test]
fn settings_files_with_many_errors_or_levels_are_read_to_their_end() {
    let many = |text: &str, times| text.repeat(times);
    let dotted = vec!["a"; 400_000].join(".");
    let long = "x".repeat(300_000);
    for (file, text, wanted) in [
        ("a.yaml", many("[", 500_000), "recursion limit exceeded"),
        ("a.yaml", many("{a: ", 200_000), "recursion limit exceeded"),
        ("a.yaml", many("- ", 300_000), "recursion limit exceeded"),
        ("a.yaml", format!("{}1{}", many("{a: ", 500), many("}", 500)), "a.yaml:1:"),
        (
            "a.yaml",
            format!("a: &a [{}]\nb: [{}]\n", many("1,", 100), many("*a,", 200_000)),
            "aliasing",
        ),
        (
            "a.yaml",
            format!("{{{}}}", many("grpc: {}, ", 90_000)),
            "89899 more errors are not listed",
        ),
        ("a.yaml", format!("{long}: {{{}}}", many("a: 1, b: 1, ", 50)), "a.yaml:1:"),
        ("a.toml", format!("a = {}", many("[", 900_000)), "a.toml:1:"),
        ("a.toml", format!("{dotted} = 1\n"), "a.toml:1:"),
        ("a.toml", format!("[{dotted}]\n"), "a.toml:1:"),
        ("a.toml", format!("a = {{ {} b = 1 }}", many("grpc.uds = 's', ", 40_000)), "a.toml:1:"),
        ("a.toml", "\0".repeat(1 << 20), "a.toml:1:"),
    ] {
        let command = format!("serve --print-settings --settings {file}");
        let (good, printed) = weir(&[(file, &text)], &command);
        assert!(
            !good && printed.contains(wanted),
            "{wanted}: {}",
            &printed[..printed.len().min(2_000)]
        );
        assert!(printed.lines().count() < 250 && printed.len() < 100_000, "{}", printed.len());
        assert!(printed.starts_with("weir cannot start"), "{printed}");
    }
}

#[test]
fn sizes_are_written_as_in_settings() {
    for command in ["check rules.yaml", "test a.test.yaml"] {
        let test =
            "rules: [rules.yaml]\ndomain: d\ntests: [{name: t, steps: [{descriptors: ['a=b']}]}]\n";
        let files = [("a.test.yaml", test)];
        for size in ["64MiB", "1KiB", "1000"] {
            let (good, printed) = weir(&files, &format!("{command} --max-log-bytes {size}"));
            assert!(good, "{command} {size}: {printed}");
        }
        let (good, printed) = weir(&files, &format!("{command} --max-log-bytes 1parsec"));
        let wanted = "write a size such as 64KiB, 1MiB, or a number of bytes";
        assert!(!good && printed.contains(wanted), "{printed}");
    }
}
