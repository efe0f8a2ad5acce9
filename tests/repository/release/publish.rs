//! What the workflows do, step by step, for a repository without any settings.

use serde_json::{Value, json};

use crate::support::files::root;

use super::workflow::{REPOSITORY, Runner, put_binaries, scripts, workflow};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const IMAGE: &str = "ghcr.io/ann/limits";

fn digest(letter: &str) -> String {
    format!("sha256:{}", letter.repeat(64))
}

/// Prepares a run with programs that succeed.
fn runner(reference: &str) -> Runner {
    let runner = Runner::new(reference);
    let (index, chart) = (digest("1"), digest("2"));
    runner.program(
        "docker",
        &format!(
            r#"case "$*" in
  "buildx imagetools inspect "*) echo {index} ;;
  "manifest inspect "*) printf '"architecture": "amd64"\n"architecture": "arm64"\n' ;;
  "image inspect "*) echo 65532:65532 ;;
  *" /bin/ratelimit") echo "no setting names rules" && exit 1 ;;
  "run --detach "*) echo container ;;
  "inspect --format "*) echo 0 ;;
esac"#
        ),
    );
    runner.program(
        "helm",
        &format!(
            r#"case $1 in
  package) echo chart >"$4/weir-{VERSION}.tgz" ;;
  push) printf 'Pushed: x\nDigest: {chart}\n' >&2 ;;
  registry) cat >/dev/null ;;
esac"#
        ),
    );
    runner.program("gh", r#"if [ "$2" = download ]; then cp -r "$CHECKOUT/release" "$7"; fi"#);
    runner.program(
        "cargo",
        &format!(
            r#"[ "$2" = --version ] && exit
case $1 in
  cyclonedx) echo {{}} >weir-{VERSION}.cdx.json ;;
  about) echo licenses >"$8" ;;
esac"#
        ),
    );
    for name in ["kind", "kubectl", "sudo", "rustup"] {
        runner.program(name, "");
    }
    put_binaries(&runner.checkout().join("binaries"));
    runner
}

/// Runs all jobs of the release workflow but the tests. Returns the scripts that ran.
fn release(runner: &mut Runner) -> Result<Vec<String>, String> {
    let _alone = super::with_packaging_alone();
    let jobs = &workflow("release")["jobs"];
    let mut ran = runner.run("version", &jobs["version"], &Value::Null)?;
    let (noted, joined) = (runner.checkout().join("digests"), runner.checkout().join("joined"));
    std::fs::create_dir(&joined).unwrap();
    let platforms = jobs["image"]["strategy"]["matrix"]["include"].as_array().unwrap();
    for (platform, letter) in platforms.iter().zip(["a", "b"]) {
        runner.set_output("steps.push.digest", &digest(letter));
        ran.extend(runner.run("image", &jobs["image"], platform)?);
        // Each platform has a checkout of its own, and uploads this.
        let arch = platform["arch"].as_str().unwrap();
        if noted.exists() {
            std::fs::rename(noted.join(arch), joined.join(arch)).unwrap();
            std::fs::remove_dir(&noted).unwrap();
        }
    }
    std::fs::rename(joined, noted).unwrap();
    for name in ["package", "publish", "verify"] {
        ran.extend(runner.run(name, &jobs[name], &Value::Null)?);
    }
    Ok(ran)
}

/// Returns the commands that change something outside the machine.
fn published(commands: &[String]) -> Vec<&str> {
    let starts = ["docker buildx imagetools create", "helm push", "gh release create"];
    let is_publishing = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    commands.iter().map(String::as_str).filter(is_publishing).collect()
}

#[test]
fn a_tag_publishes_everything() {
    let tag = format!("v{VERSION}");
    let mut runner = runner(&format!("refs/tags/{tag}"));
    let ran = release(&mut runner).unwrap();
    // Each script of each step has run.
    let mut all: Vec<String> = scripts(&workflow("release"));
    all.retain(|script| !ran.contains(script));
    assert_eq!(all, Vec::<String>::new());

    assert_eq!(runner.output("jobs.version.url"), format!("https://github.com/{REPOSITORY}"));
    let commands = runner.commands();
    let published = published(&commands);
    let sources = ["a", "b"].map(|arch| format!("{IMAGE}@{}", digest(arch))).join(" ");
    let tags = format!("--tag {IMAGE}:{VERSION} --tag {IMAGE}:latest");
    assert_eq!(published[0], format!("docker buildx imagetools create {tags} {sources}"));
    assert_eq!(published[1], format!("helm push release/weir-{VERSION}.tgz oci://{IMAGE}/charts"));
    assert!(
        commands.contains(&"helm registry login ghcr.io --username Ann --password-stdin".into())
    );
    let create = format!(
        "gh release create {tag} --repo {REPOSITORY} --verify-tag --generate-notes --title weir {VERSION}"
    );
    let files = published[2].strip_prefix(&create).unwrap_or_else(|| panic!("{}", published[2]));
    let wanted = [
        "SHA256SUMS".to_owned(),
        "THIRD-PARTY-NOTICES".to_owned(),
        format!("weir-{VERSION}-linux-amd64.tar.gz"),
        format!("weir-{VERSION}-linux-arm64.tar.gz"),
        format!("weir-{VERSION}.cdx.json"),
        format!("weir-{VERSION}.tgz"),
    ];
    let mut files: Vec<&str> = files.split_whitespace().collect();
    files.sort_unstable();
    assert_eq!(files, wanted.map(|file| format!("release/{file}")));
    assert_eq!(published.len(), 3, "{published:?}");
    // What is attested is what was pushed.
    assert_eq!(runner.output("steps.image.digest"), digest("1"));
    assert_eq!(runner.output("steps.chart.digest"), digest("2"));
    assert_eq!(runner.output("steps.chart.name"), format!("{IMAGE}/charts/weir"));
    for checked in [
        format!("docker manifest inspect {IMAGE}:{VERSION}"),
        format!("helm show chart oci://{IMAGE}/charts/weir --version {VERSION}"),
        format!("gh attestation verify oci://{IMAGE}:{VERSION} --repo {REPOSITORY}"),
        format!("gh attestation verify oci://{IMAGE}/charts/weir:{VERSION} --repo {REPOSITORY}"),
    ] {
        assert!(commands.contains(&checked), "{checked}: {commands:#?}");
    }
}

#[test]
fn a_run_by_hand_publishes_nothing() {
    let mut runner = runner("refs/heads/main");
    let ran = release(&mut runner).unwrap();
    let commands = runner.commands();
    assert_eq!(published(&commands), Vec::<&str>::new());
    assert!(!commands.iter().any(|line| line.contains("login")), "{commands:?}");
    // It builds everything.
    assert!(ran.contains(&"scripts/release-package binaries release".to_owned()), "{ran:?}");
    assert!(runner.checkout().join("release/SHA256SUMS").is_file());
}

#[test]
fn a_tag_of_another_version_publishes_nothing() {
    let mut runner = runner("refs/tags/v99.0.0");
    let error = release(&mut runner).unwrap_err();
    assert!(error.contains(&format!("name it v{VERSION}")), "{error}");
    assert_eq!(runner.commands(), Vec::<String>::new());
}

#[test]
fn a_part_that_is_missing_fails_the_release() {
    let tag = format!("refs/tags/v{VERSION}");
    for (program, arguments, report) in [
        (
            "docker",
            "manifest inspect *",
            format!("the image {IMAGE}:{VERSION} is missing: not here"),
        ),
        ("helm", "show chart *", "the chart oci:".to_owned()),
        (
            "gh",
            "release download *",
            format!("the release v{VERSION} with its checksums is missing"),
        ),
        ("gh", "attestation verify oci:*/charts/*", "the attestation of the chart".to_owned()),
        ("gh", "attestation verify *amd64.tar.gz *", "the attestation of weir-".to_owned()),
    ] {
        let mut runner = runner(&tag);
        runner.fail(program, arguments);
        let error = release(&mut runner).unwrap_err();
        assert!(error.contains(&report), "{program} {arguments}: {error}");
        assert!(error.contains("change its visibility"), "{error}");
    }
}

#[test]
fn every_step_of_the_tests_runs() {
    let mut runner = runner("refs/heads/main");
    let workflow = workflow("ci");
    let jobs = &workflow["jobs"];
    let parts = jobs["test"]["strategy"]["matrix"]["include"].as_array().unwrap();
    let parts: Vec<&str> = parts.iter().map(|part| part["arguments"].as_str().unwrap()).collect();
    for entry in std::fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file()
        {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let named = parts.iter().any(|part| part.contains(&format!("--test {name}")));
            assert!(named, "no part of the job 'test' runs {name}");
        }
    }
    runner.run("oldest-rust", &jobs["oldest-rust"], &Value::Null).unwrap();
    assert!(runner.commands()[0].starts_with("rustup toolchain list"));
    runner.run("cluster", &jobs["cluster"], &Value::Null).unwrap();
    let commands = runner.commands();
    let position = |start: &str| {
        let found = commands.iter().position(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {commands:#?}"))
    };
    let order = [
        "docker build --tag weir:test",
        "docker run --rm",
        "docker stop",
        "kind create cluster",
        "kind load docker-image weir:test",
        "helm --namespace a-release-with-default-values-passes-its-test install weir helm/weir",
        "helm --namespace a-release-with-default-values-passes-its-test test weir",
        "helm --namespace a-release-moves-to-a-disk upgrade weir helm/weir",
        "kind delete cluster",
    ];
    let positions = order.map(position);
    assert!(positions.is_sorted(), "{commands:#?}");
}

#[test]
fn a_failed_installation_is_shown_and_its_cluster_deleted() {
    let mut runner = runner("refs/heads/main");
    runner.fail("helm", "* test *");
    let job = &workflow("ci")["jobs"]["cluster"];
    let error = runner.run("cluster", job, &Value::Null).unwrap_err();
    assert!(error.contains("it failed: this is in the cluster"), "{error}");
    let commands = runner.commands();
    assert!(commands.iter().any(|line| line.ends_with(" describe pods")));
    assert!(commands.last().unwrap().starts_with("kind delete cluster"), "{commands:?}");
}

#[test]
fn workflows_need_nothing_but_the_token_of_the_repository() {
    for name in ["ci", "dependencies", "nightly", "pages", "release"] {
        let text = crate::support::files::read(format!(".github/workflows/{name}.yaml"));
        for word in ["secrets.", "vars."] {
            assert!(!text.contains(word), "{name}.yaml needs {word}");
        }
        let workflow = workflow(name);
        assert_eq!(workflow["permissions"], json!({ "contents": "read" }), "{name}");
        // Scripts of several lines belong into scripts/, except commands without a condition.
        for script in scripts(&workflow) {
            assert!(script.lines().count() <= 2, "{name}: {script}");
        }
    }
    let publish = &workflow("release")["jobs"]["publish"];
    assert_eq!(
        publish["permissions"],
        json!({
            "contents": "write", "packages": "write", "id-token": "write", "attestations": "write",
        })
    );
    let steps = publish["steps"].as_array().unwrap();
    let attested: Vec<&Value> = steps
        .iter()
        .filter(|step| step["uses"].as_str().is_some_and(|action| action.contains("/attest-")))
        .map(|step| &step["with"])
        .collect();
    assert_eq!(attested.len(), 4);
    for (step, with) in ["image", "chart"].iter().zip(&attested) {
        assert_eq!(with["subject-digest"], format!("${{{{ steps.{step}.outputs.digest }}}}"));
        assert_eq!(with["push-to-registry"], true);
    }
}
