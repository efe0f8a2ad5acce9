//! Checks what releases are built with: Dockerfile, workflows, scripts, and versions that must agree.

mod publish;
mod workflow;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{files, tools};

use files::{read, root};
use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;
use tools::tool;

/// Held while packaging writes SBOMs into the project, which others copy or package.
fn with_packaging_alone() -> MutexGuard<'static, ()> {
    static PACKAGING: Mutex<()> = Mutex::new(());
    PACKAGING.lock()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program in the project's root. It must succeed.
fn succeed(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{command:?}:\n{}", printed(&output));
    printed(&output)
}

/// Runs a program in the project's root. It must fail.
fn fail(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap();
    assert!(!output.status.success(), "{command:?}:\n{}", printed(&output));
    printed(&output)
}

/// Writes a program of the shell.
fn write_program(directory: &Path, name: &str, script: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Writes a program that prints its name and its arguments, in place of one that needs a registry.
fn stand_in(directory: &Path, name: &str, script: &str) -> PathBuf {
    write_program(directory, name, &format!("echo {name} \"$@\" >&2\n{script}"))
}

#[test]
fn the_dockerfile_passes_its_linter() {
    let Some(hadolint) = tool("hadolint", "WEIR_HADOLINT") else { return };
    succeed(Command::new(hadolint).args(["--failure-threshold", "style", "Dockerfile"]));
}

/// Buildah 1.28 unlocks only the last cache of a command, and another command that shares an earlier one hangs.
#[test]
fn the_cache_that_commands_of_the_dockerfile_share_is_the_last_one() {
    let dockerfile = read("Dockerfile");
    let commands = dockerfile.split("\nRUN ").skip(1).map(|command| {
        let mounts = command.split("--mount=type=cache,id=").skip(1);
        mounts.map(|mount| mount.split(',').next().unwrap()).collect()
    });
    let commands: Vec<Vec<&str>> = commands.collect();
    assert!(commands.len() >= 2, "{commands:?}");
    let is_shared =
        |cache: &&str| commands.iter().filter(|caches| caches.contains(cache)).count() > 1;
    for caches in &commands {
        let (_, earlier) = caches.split_last().expect("a cache");
        assert!(!earlier.iter().any(is_shared), "{caches:?}");
    }
}

#[test]
fn the_workflows_pass_their_linter() {
    let Some(actionlint) = tool("actionlint", "WEIR_ACTIONLINT") else { return };
    let mut command = Command::new(actionlint);
    for name in ["ci.yaml", "dependencies.yaml", "nightly.yaml", "pages.yaml", "release.yaml"] {
        command.arg(Path::new(".github/workflows").join(name));
    }
    succeed(&mut command);
}

#[test]
fn the_versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read("helm/weir/Chart.yaml");
    for key in ["version", "appVersion"] {
        let line = chart.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
        assert_eq!(line.map(|value| value.trim_matches('"')), Some(version), "{key} of the chart");
    }
    assert!(read("Dockerfile").contains(&format!("ARG VERSION={version}\n")), "the Dockerfile");
    let script = |reference: &str| {
        let mut command = Command::new("scripts/release-version");
        command.arg(reference);
        command
    };
    let found = succeed(&mut script(&format!("refs/tags/v{version}")));
    assert!(found.starts_with(&format!("version={version}\nepoch=")), "{found}");
    assert!(found.ends_with("is-tag=true\n"), "{found}");
    assert!(succeed(&mut script("refs/heads/main")).ends_with("is-tag=false\n"));
    let error = fail(&mut script("refs/tags/v99.0.0"));
    assert!(error.contains(&format!("name it v{version}")), "{error}");
}

/// Parses a version of Rust, such as `1.95` or `1.88.0`.
fn rust_version(text: &str) -> Vec<u32> {
    let mut version: Vec<u32> = text.split('.').map(|part| part.parse().expect(text)).collect();
    version.resize(3, 0);
    version
}

/// Returns the `rust-version` of a manifest.
fn promised(manifest: &str) -> String {
    let text = read(manifest);
    let line = text.lines().find_map(|line| line.strip_prefix("rust-version = "));
    line.unwrap_or_else(|| panic!("{manifest} has no rust-version")).trim_matches('"').to_owned()
}

#[test]
fn the_oldest_rust_is_the_same_everywhere() {
    let version = promised("Cargo.toml");
    assert_eq!(promised("benches/load/Cargo.toml"), version);
    let pages = ["README.md", "CONTRIBUTING.md", "docs/install.md"];
    for page in pages {
        let text = read(page);
        let mut named = text.split("[Rust](https://rustup.rs) ").skip(1).peekable();
        assert!(named.peek().is_some(), "{page} names no version of Rust");
        for rest in named {
            assert!(rest.starts_with(&format!("{version} or later")), "{page}");
        }
    }
    assert!(read("Dockerfile").contains(&format!("/rust:{version}-")), "the Dockerfile");
    for manifest in ["Cargo.toml", "benches/load/Cargo.toml", "fuzz/Cargo.toml"] {
        let mut metadata = Command::new(env!("CARGO"));
        metadata.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
        // One platform, so that the result does not depend on the machine.
        metadata.args([manifest, "--filter-platform", "x86_64-unknown-linux-gnu"]);
        let output = metadata.current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for package in metadata["packages"].as_array().unwrap() {
            let Some(needed) = package["rust_version"].as_str() else { continue };
            let name = &package["name"];
            assert!(rust_version(needed) <= rust_version(&version), "{name} needs Rust {needed}");
        }
    }
}

#[test]
fn the_oldest_rust_builds_everything() {
    let tools = tempfile::tempdir().unwrap();
    stand_in(tools.path(), "rustup", "");
    stand_in(tools.path(), "cargo", "");
    let path = std::env::var("PATH").unwrap();
    let mut build = Command::new("scripts/build-rust-version");
    build.env("PATH", format!("{}:{path}", tools.path().display()));
    let version = promised("Cargo.toml");
    let printed = succeed(&mut build);
    let lines: Vec<&str> = printed.lines().collect();
    let cargo = format!("cargo +{version}.0");
    assert_eq!(
        lines,
        [
            "rustup toolchain list",
            &format!("rustup toolchain install {version}.0 --profile minimal"),
            &format!("{cargo} --version"),
            &format!("{cargo} build --locked --workspace --all-targets"),
            &format!(
                "{cargo} build --locked --all-targets --manifest-path benches/load/Cargo.toml"
            ),
        ]
    );
    assert!(read(".github/workflows/ci.yaml").contains("run: scripts/build-rust-version\n"));
}

/// The build stage has nothing but the files that .dockerignore names.
#[test]
fn the_build_stage_has_what_cargo_needs() {
    let _alone = with_packaging_alone();
    let stage = tempfile::tempdir().unwrap();
    let ignore = read(".dockerignore");
    let kept: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(ignore.lines().any(|line| line == "*"), "everything else is ignored");
    for pattern in &kept {
        let script = format!("cp -r --parents {pattern} \"$0\"");
        succeed(Command::new("sh").args(["-ec", &script]).arg(stage.path()));
    }
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]);
    metadata.arg("--manifest-path").arg(stage.path().join("Cargo.toml"));
    succeed(&mut metadata);
    for file in [
        "LICENSE",
        "proto/generated/descriptors.bin",
        "scripts/build-release",
        "scripts/third-party-notices",
    ] {
        assert!(stage.path().join(file).is_file(), "{file}, which the Dockerfile uses");
    }
}

#[test]
fn the_image_is_built_from_the_commit() {
    let tools = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for name in ["docker", "podman"] {
        let engine = stand_in(tools.path(), name, "");
        let mut build = Command::new("scripts/build-image");
        let printed = succeed(build.args(["registry.test/weir:1", "--pull"]).env("ENGINE", engine));
        let wanted =
            format!("{name} build --tag registry.test/weir:1 --build-arg VERSION={version} ");
        assert!(printed.contains(&wanted), "{printed}");
        // A source archive has no commit.
        assert_eq!(printed.contains("GIT_COMMIT="), root().join(".git").exists(), "{printed}");
        // Only this format of Podman has the health check.
        assert_eq!(printed.contains("--format docker"), name == "podman", "{printed}");
        assert!(printed.contains(" --pull .\n"), "{printed}");
    }
}

#[test]
fn packages_of_the_same_files_are_the_same() {
    let _alone = with_packaging_alone();
    let tools = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let helm = stand_in(tools.path(), "helm", &format!("echo chart > \"$4/weir-{version}.tgz\""));
    let cargo = format!(
        "[ $2 = --version ] && exit
case $1 in
  cyclonedx) for member in . benches crates/* examples/library; do echo {{}} > $member/weir-{version}.cdx.json; done ;;
  about) echo licenses > \"$8\" ;;
esac"
    );
    stand_in(tools.path(), "cargo", &cargo);
    let path = std::env::var("PATH").unwrap();
    let package = || {
        let release = tempfile::tempdir().unwrap();
        let mut command = Command::new("scripts/release-package");
        // Another directory and other times of files, each time.
        let binaries = tempfile::tempdir().unwrap();
        workflow::put_binaries(binaries.path());
        command.arg(binaries.path()).arg(release.path()).env("SOURCE_DATE_EPOCH", "1700000000");
        command.env("HELM", &helm).env("PATH", format!("{}:{path}", tools.path().display()));
        succeed(&mut command);
        release
    };
    let (first, second) = (package(), package());
    let mut members =
        vec![root().to_owned(), root().join("benches"), root().join("examples/library")];
    members.extend(fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()));
    for member in members {
        let left = member.join(format!("weir-{version}.cdx.json"));
        assert!(!left.exists(), "{} is left", left.display());
    }
    let sums = |release: &TempDir| fs::read_to_string(release.path().join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&first), sums(&second));
    let names: Vec<String> =
        sums(&first).lines().map(|line| line.split("  ").nth(1).unwrap().to_owned()).collect();
    let wanted = ["-linux-amd64.tar.gz", "-linux-arm64.tar.gz", ".cdx.json", ".tgz"];
    let wanted = wanted.map(|end| format!("weir-{version}{end}"));
    assert_eq!(names[0], "THIRD-PARTY-NOTICES");
    assert_eq!(names[1..], wanted);
    let mut check = Command::new("sha256sum");
    assert!(
        check
            .args(["-c", "SHA256SUMS"])
            .current_dir(first.path())
            .output()
            .unwrap()
            .status
            .success()
    );
    let archive = first.path().join(&names[1]);
    let listed = succeed(Command::new("tar").arg("-tvzf").arg(archive));
    for file in [
        "weir",
        "weir.debug",
        "LICENSE",
        "THIRD-PARTY-NOTICES",
        "README.md",
        "CHANGELOG.md",
        "rules/example.yaml",
    ] {
        assert!(listed.contains(&format!("/{file}\n")), "{file}: {listed}");
    }
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "{listed}");
    let nothing = tempfile::tempdir().unwrap();
    let mut empty = Command::new("scripts/release-package");
    let error = fail(empty.arg(nothing.path()).arg(nothing.path().join("release")));
    assert!(error.contains("has no binary-PLATFORM/weir"), "{error}");
}

#[test]
fn images_of_all_platforms_get_one_tag() {
    let tools = tempfile::tempdir().unwrap();
    let [amd, arm, joined] = ["a", "b", "c"].map(|it| format!("sha256:{}", it.repeat(64)));
    let docker = stand_in(tools.path(), "docker", &format!("[ $3 = create ] || echo {joined}"));
    let digests = tempfile::tempdir().unwrap();
    fs::write(digests.path().join("amd64"), format!("{amd}\n")).unwrap();
    fs::write(digests.path().join("arm64"), format!("{arm}\n")).unwrap();
    let tag = |version: &str| {
        let mut command = Command::new("scripts/release-tag-image");
        command.args(["registry.test/weir", version]).arg(digests.path()).env("DOCKER", &docker);
        command
    };
    let image = "registry.test/weir";
    let create = "docker buildx imagetools create --tag";
    let printed = succeed(&mut tag("1.2.3"));
    // What the workflow attests.
    assert!(printed.starts_with(&format!("digest={joined}\n")), "{printed}");
    let tags = format!("{create} {image}:1.2.3 --tag {image}:latest {image}@{amd} {image}@{arm}\n");
    assert!(printed.contains(&tags), "{printed}");
    let printed = succeed(&mut tag("1.2.3-rc.1"));
    let tags = format!("{create} {image}:1.2.3-rc.1 {image}@{amd} {image}@{arm}\n");
    assert!(printed.contains(&tags), "{printed}");
    stand_in(tools.path(), "docker", "");
    assert!(fail(&mut tag("1.2.3")).contains("registry.test/weir:1.2.3 has no digest"));
    fs::write(digests.path().join("arm64"), "").unwrap();
    assert!(fail(&mut tag("1.2.3")).contains("arm64 is not a digest"));
}

#[test]
fn the_chart_is_pushed_to_registries_only() {
    let tools = tempfile::tempdir().unwrap();
    let digest = format!("sha256:{}", "d".repeat(64));
    let script = format!("[ $1 = push ] && echo Digest: {digest} || cat >&2");
    let helm = stand_in(tools.path(), "helm", &script);
    let release = tempfile::tempdir().unwrap();
    let chart = release.path().join("weir-0.1.0.tgz");
    fs::write(&chart, "").unwrap();
    let push = |repository: &str| {
        let mut command = Command::new("scripts/release-push-chart");
        command.arg(release.path()).arg(repository).env("HELM", &helm);
        command.stdin(std::process::Stdio::null());
        command
    };
    let repository = "oci://registry.test/charts";
    let outputs = format!("name=registry.test/charts/weir\ndigest={digest}\n");
    let pushed = format!("helm push {} {repository}\nDigest: {digest}\n", chart.display());
    assert_eq!(succeed(&mut push(repository)), format!("{outputs}{pushed}"));
    let mut with_login = push(repository);
    with_login.env("REGISTRY_USERNAME", "ann").env("REGISTRY_PASSWORD", "secret");
    // The password is not an argument, which other users of the machine could see.
    let login = "helm registry login registry.test --username ann --password-stdin\nsecret\n";
    assert_eq!(succeed(&mut with_login), format!("{outputs}{login}{pushed}"));
    assert!(fail(&mut push("registry.test/charts")).contains("write oci://HOST/PATH"));
    fs::remove_file(chart).unwrap();
    assert!(fail(&mut push(repository)).contains("has not one chart"));
}

#[test]
fn pre_releases_are_marked_and_changed_files_refused() {
    let tools = tempfile::tempdir().unwrap();
    stand_in(tools.path(), "gh", "");
    let release = tempfile::tempdir().unwrap();
    fs::write(release.path().join("a"), "").unwrap();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    fs::write(release.path().join("SHA256SUMS"), format!("{empty}  a\n")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let publish = |tag: &str| {
        let mut command = Command::new("scripts/release-publish");
        command.args(["ann/weir", tag]).arg(release.path());
        command.env("PATH", format!("{}:{path}", tools.path().display()));
        command
    };
    let printed = succeed(&mut publish("v1.2.3"));
    assert!(
        printed.starts_with("gh release create v1.2.3 --repo ann/weir --verify-tag "),
        "{printed}"
    );
    assert!(!printed.contains("--prerelease"), "{printed}");
    assert!(succeed(&mut publish("v1.2.3-rc.1")).contains("--prerelease"));
    fs::write(release.path().join("a"), "changed").unwrap();
    let printed = fail(&mut publish("v1.2.3"));
    assert!(printed.contains("a: FAILED") && !printed.contains("gh release"), "{printed}");
}
