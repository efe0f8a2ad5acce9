//! The overlays of `docs/overlay.md` and of the guide for Envoy AI Gateway, and invalid overlays.

use std::fs;
use std::path::Path;

use crate::support::program::command_line;
use crate::support::{files, markdown};

/// The document, and a directory with the files that it shows.
fn examples() -> (String, tempfile::TempDir) {
    let document = files::read("docs/overlay.md");
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in markdown::files(&document) {
        fs::write(directory.path().join(name), text).unwrap();
    }
    (document, directory)
}

/// Runs `weir` with the arguments of a command line. Returns its exit code and its output.
fn run(directory: &Path, command: &str) -> (Option<i32>, String) {
    let (code, out, err) = command_line(directory, command);
    (code, out + &err)
}

#[test]
fn the_overlays_fit_the_rules_that_they_are_about() {
    let (_, directory) = examples();
    let rules = "
domain: shop
descriptors:
  - key: api_key
    rate_limits: [{ unit: second, requests_per_unit: 1 }, { unit: day, requests_per_unit: 9, name: daily }]
  - { key: login, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: path, value: /export/all, rate_limit: { unit: minute, requests_per_unit: 5 } }
";
    fs::write(directory.path().join("shop.yaml"), rules).unwrap();
    let command =
        "weir check shop.yaml --overlay several.overlay.yaml --overlay domain.overlay.yaml";
    let (code, printed) = run(directory.path(), command);
    assert_eq!(code, Some(0), "{printed}");
    for wanted in
        ["9 per day (shadow)", "300 per 15 minutes", "1 per second + 100 per day", "0 warnings"]
    {
        assert!(printed.contains(wanted), "{wanted}\n{printed}");
    }
}

#[test]
fn the_overlays_of_the_guide_for_envoy_ai_gateway_fit_its_rules() {
    // One is indented, within an item of a list.
    let guide = files::read("examples/envoy-ai-gateway/quota.md").replace("\n  ", "\n");
    let directory = tempfile::tempdir().unwrap();
    let policy = "domain: default/eg/http\ndescriptors: [{ key: httproute/default/openai/rule/0/match/0/*, descriptors: \
                  [{ key: rule-0-match-0, rate_limit: { unit: month, requests_per_unit: 20 } }] }]\n";
    let rules = files::read("examples/envoy-ai-gateway/generated.yaml");
    let files = [("tenants.yaml".to_owned(), rules), ("tokens.yaml".to_owned(), policy.to_owned())];
    for (name, text) in markdown::files(&guide).into_iter().chain(files) {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let check = |name: &str| {
        let (code, printed) =
            run(directory.path(), &format!("weir check {name}.yaml --overlay {name}.overlay.yaml"));
        assert_eq!(code, Some(0), "{printed}");
        printed
    };
    let tenants = check("tenants");
    for line in tenants.lines().filter(|line| line.starts_with("ai-gateway-quota")) {
        assert_eq!(line.contains("quota_mode"), !line.contains("x-tenant-id|acme"), "{tenants}");
    }
    let tokens = check("tokens");
    assert!(tokens.contains("20 per month of the calendar, Europe/Berlin"), "{tokens}");
}

#[test]
fn the_error_has_the_form_of_the_example() {
    let (document, directory) = examples();
    let rules = "domain: shop\ndescriptors:\n  - key: path\n    rate_limit: { unit: day }\n";
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let overlay = "patches:\n  - match: { domain: shop }\n    set: { burst: 20 }\n";
    fs::write(directory.path().join("limits.overlay.yaml"), overlay).unwrap();
    let (code, printed) =
        run(directory.path(), "weir check rules.yaml --overlay limits.overlay.yaml");
    assert_eq!(code, Some(1), "{printed}");
    let shown = markdown::blocks_of(&document, "text").swap_remove(0);
    for line in shown.text.lines() {
        assert!(printed.contains(line.trim_end()), "{line}\n{printed}");
    }
}

#[test]
fn an_invalid_overlay_is_reported_with_the_problems_of_the_rules() {
    let (_, directory) = examples();
    fs::write(directory.path().join("bad.overlay.yaml"), "patches: [{ match: {} }]\n").unwrap();
    fs::write(directory.path().join("bad.yaml"), "domain: d\ndescriptors: [{ kye: k }]\n").unwrap();
    let (code, printed) =
        run(directory.path(), "weir check bad.yaml --overlay bad.overlay.yaml --overlay none");
    assert_eq!(code, Some(1), "{printed}");
    for wanted in [
        "bad.overlay.yaml:1:11: error: the patch sets nothing\n 1 | patches: [{ match: {} }]\n",
        "bad.yaml:2:17: error: config error, unknown key 'kye'",
        "none: error: cannot be read",
        "4 errors, 0 warnings",
    ] {
        assert!(printed.contains(wanted), "{wanted}\n{printed}");
    }
}

#[test]
fn warnings_about_an_overlay_file_are_shown_without_an_error() {
    let (_, directory) = examples();
    let overlay =
        "patches:\n- match: { domain: shop }\n  set: { requests_per_unit: 7 }\n---\npatches: []\n";
    fs::write(directory.path().join("warned.overlay.yaml"), overlay).unwrap();
    let rules = "domain: shop\ndescriptors:\n- { key: a, rate: 1/s }\n";
    fs::write(directory.path().join("shop.yaml"), rules).unwrap();
    let (code, printed) =
        run(directory.path(), "weir check shop.yaml --overlay warned.overlay.yaml");
    assert_eq!(code, Some(0), "{printed}");
    let warning =
        "warned.overlay.yaml:5:1: warning: only the first YAML document of a file is read";
    assert!(printed.contains(warning) && printed.contains(", 1 warning\n"), "{printed}");
}

#[test]
fn a_patch_that_a_later_one_overrides_is_a_warning() {
    let (_, directory) = examples();
    let overlay = "patches:\n- { match: {}, set: { shadow_mode: true } }\n\
                   - { match: {}, set: { shadow_mode: false } }\n";
    fs::write(directory.path().join("twice.overlay.yaml"), overlay).unwrap();
    let (code, printed) =
        run(directory.path(), "weir check rules.yaml --overlay twice.overlay.yaml");
    assert_eq!(code, Some(0), "{printed}");
    let warning = "twice.overlay.yaml:2:3: warning: the patch changes nothing: the later one at \
                   twice.overlay.yaml:3:3 overrides all of it\n";
    assert!(printed.contains(warning) && printed.contains(", 1 warning\n"), "{printed}");
}

#[test]
fn the_json_has_the_problems_of_the_overlay() {
    let (_, directory) = examples();
    let (code, printed) =
        run(directory.path(), "weir check rules.yaml --overlay several.overlay.yaml --output json");
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &json["ok"]), (Some(0), &true.into()), "{printed}");
    let problems = json["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 3, "{printed}");
    assert_eq!(problems[0]["file"], "several.overlay.yaml");
    assert_eq!(problems[0]["message"], "the patch matches nothing");
}
