//! Checks the licenses and the duplicates of the dependencies against deny.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

/// The parts of deny.toml that are checked.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that is allowed in addition to another one.
#[derive(Deserialize)]
struct Skip {
    /// The name and the start of the version, as `name:0.1`.
    #[serde(rename = "crate")]
    spec: String,
    reason: String,
}

impl Skip {
    fn matches(&self, package: &Package) -> bool {
        let (name, version) = self.spec.split_once(':').expect("a name and a version");
        name == package.name && package.version.starts_with(&format!("{version}."))
    }
}

#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    license: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn deny() -> Deny {
    toml::from_str(&std::fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

/// Returns the packages that the program is built from, without those of tests.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        // One platform, so that the result does not depend on the machine.
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (text(&node["id"]), node)).collect();

    let mut reached = BTreeSet::new();
    let mut open = vec![text(&metadata["resolve"]["root"])];
    while let Some(id) = open.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id]["deps"]) {
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev") {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    let package = |package: &Value| Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        license: text(&package["license"]),
    };
    let all = list(&metadata["packages"]);
    all.iter().filter(|it| reached.contains(&text(&it["id"]))).map(package).collect()
}

/// Whether the allowed licenses satisfy an SPDX expression.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let satisfied = any(&mut tokens, allowed);
    satisfied && tokens.peek().is_none()
}

type Tokens<'t> = std::iter::Peekable<std::str::SplitWhitespace<'t>>;

fn any(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut satisfied = all(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        satisfied |= all(tokens, allowed);
    }
    satisfied
}

fn all(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut satisfied = one(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        satisfied &= one(tokens, allowed);
    }
    satisfied
}

fn one(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    match tokens.next() {
        Some("(") => any(tokens, allowed) & tokens.next_if_eq(&")").is_some(),
        Some(name) if tokens.next_if_eq(&"WITH").is_some() => {
            let exception = tokens.next().unwrap_or_default();
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        Some(name) => allowed.contains(name),
        None => false,
    }
}

#[test]
fn licenses_are_allowed() {
    let allowed = deny().licenses.allow;
    let packages = packages();
    assert!(packages.len() > 100, "dependencies are missing");
    let refused: Vec<_> =
        packages.iter().filter(|package| !is_allowed(&package.license, &allowed)).collect();
    assert!(refused.is_empty(), "deny.toml does not allow their licenses: {refused:?}");
}

#[test]
fn the_notices_accept_the_same_licenses() {
    #[derive(Deserialize)]
    struct About {
        accepted: BTreeSet<String>,
    }
    let about = std::fs::read_to_string(root().join("about.toml")).unwrap();
    let about: About = toml::from_str(&about).unwrap();
    assert_eq!(about.accepted, deny().licenses.allow);
}

#[test]
fn duplicate_dependencies_are_listed() {
    let skip = deny().bans.skip;
    let packages = packages();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|package| !skip.iter().any(|it| it.matches(package))) {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(
        versions.is_empty(),
        "avoid them, or add them to deny.toml with a reason: {versions:?}"
    );

    for entry in &skip {
        let used = packages.iter().any(|package| entry.matches(package));
        let Skip { spec, reason } = entry;
        assert!(used && !reason.is_empty(), "{spec} is no longer used, or has no reason");
    }
}

#[test]
fn license_expressions_are_evaluated() {
    let allowed = ["MIT", "Zlib"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND Zlib", true),
        ("(GPL-3.0 OR MIT) AND Zlib", true),
        ("MIT OR GPL-3.0 AND BSD-3-Clause", true),
        ("MIT WITH LLVM-exception", false),
        ("(MIT", false),
        ("MIT Zlib", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression:?}");
    }
}

/// With two providers, rustls cannot choose and would panic at the first connection.
#[test]
fn there_is_one_crypto_provider() {
    let packages = packages();
    let has = |name: &str| packages.iter().any(|package| package.name == name);
    assert!(has("rustls") && has("ring"));
    for other in ["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"] {
        assert!(!has(other), "{other}");
    }
}

/// A service that uses the limiter builds no server, no command line and no exporter.
#[test]
fn the_limiter_is_a_library() {
    for (package, features) in [("weir-limiter", ""), ("weir-library", "redis")] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--package", package, "--edges", "normal"])
            .args(["--no-default-features", "--features", features])
            .args(["--prefix", "none", "--format", "{lib}"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        let used: BTreeSet<&str> = tree.lines().collect();
        assert!(used.contains("weir_limit"), "{tree}");
        for kept_out in ["axum", "clap", "config", "h2", "hyper", "opentelemetry", "tonic"] {
            assert!(!used.contains(kept_out), "{package} {features}: {kept_out}");
        }
        for with_redis in ["redis", "tokio_rustls"] {
            assert_eq!(used.contains(with_redis), !features.is_empty(), "{package} {features}");
        }
    }
}
