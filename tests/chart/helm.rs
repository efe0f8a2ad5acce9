//! Helm, and what it renders from values.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::manifests::Manifests;
use crate::support::{root, tool};

/// A Helm program.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
}

impl Helm {
    /// Returns Helm 4, on which most tests run.
    pub fn newest() -> Option<Helm> {
        Helm::find("helm4/helm", "WEIR_HELM4")
    }

    /// Returns Helm 3 and Helm 4, or those that there are.
    pub fn all() -> Vec<Helm> {
        Helm::find("helm3/helm", "WEIR_HELM3").into_iter().chain(Helm::newest()).collect()
    }

    fn find(name: &str, variable: &str) -> Option<Helm> {
        tool(name, variable).map(|program| Helm { program })
    }

    /// Runs Helm with values on its standard input. Returns its output, or its errors.
    pub fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            // Without the plugins and repositories of the user.
            .env_clear()
            .env("HOME", root().join("target"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        // Helm may end without having read it.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("Helm ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let (out, errors) = (text(output.stdout), text(output.stderr));
        if output.status.success() { Ok(out) } else { Err(out + &errors) }
    }

    /// Starts a rendering of the chart.
    pub fn chart(&self) -> Rendering {
        Rendering {
            helm: self.clone(),
            chart: chart_directory(),
            release: "weir".to_owned(),
            files: Vec::new(),
            values: String::new(),
            arguments: Vec::new(),
        }
    }

    /// Renders the chart with values written as YAML.
    pub fn render(&self, values: &str) -> Manifests {
        self.chart().values(values).render()
    }

    /// Renders the chart with the values of a file of this directory.
    pub fn render_file(&self, name: &str) -> Manifests {
        self.chart().file(name).render()
    }
}

/// A run of `helm template`.
#[derive(Clone, Debug)]
pub struct Rendering {
    helm: Helm,
    chart: PathBuf,
    release: String,
    files: Vec<PathBuf>,
    values: String,
    arguments: Vec<String>,
}

impl Rendering {
    /// Adds values of a file in tests/chart/values.
    pub fn file(mut self, name: &str) -> Rendering {
        self.files.push(values_directory().join(name).with_extension("yaml"));
        self
    }

    /// Sets values that take precedence over those of files.
    pub fn values(mut self, yaml: &str) -> Rendering {
        self.values = yaml.to_owned();
        self
    }

    pub fn release(mut self, name: &str) -> Rendering {
        self.release = name.to_owned();
        self
    }

    /// Renders another chart.
    pub fn chart(mut self, path: &Path) -> Rendering {
        self.chart = path.to_owned();
        self
    }

    pub fn argument(mut self, argument: &str) -> Rendering {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn arguments(mut self, arguments: &[String]) -> Rendering {
        self.arguments.extend_from_slice(arguments);
        self
    }

    /// Lints the chart with these values instead of rendering it.
    pub fn lint(&self) -> Result<String, String> {
        self.run(&["lint", "--strict"])
    }

    /// Renders, or returns the errors. Renders the same once: many tests read the same values.
    pub fn try_render(&self) -> Result<Manifests, String> {
        let key = format!("{self:?}");
        if let Some(rendered) = RENDERED.lock().unwrap().get(&key) {
            return rendered.clone();
        }
        let rendered = self.render_again();
        RENDERED.lock().unwrap().insert(key, rendered.clone());
        rendered
    }

    /// Renders even if it has done so before.
    pub fn render_again(&self) -> Result<Manifests, String> {
        self.try_text().map(|text| Manifests::parse(&text))
    }

    /// Renders without reading what is rendered, which may have a kind and a name in two namespaces.
    pub fn try_text(&self) -> Result<String, String> {
        self.run(&["template", &self.release, "--namespace", NAMESPACE])
    }

    pub fn render(&self) -> Manifests {
        self.try_render().unwrap_or_else(|errors| panic!("{self:?}: {errors}"))
    }

    fn run(&self, command: &[&str]) -> Result<String, String> {
        let mut arguments = command.to_vec();
        let path = |path: &'_ Path| path.to_str().expect("UTF-8").to_owned();
        let chart = path(&self.chart);
        arguments.push(&chart);
        if knows_store_secret(&self.chart) {
            arguments.push(STORE_SECRET);
        }
        let files: Vec<String> = self.files.iter().map(|file| path(file)).collect();
        for file in files.iter().map(String::as_str).chain(["-"]) {
            arguments.extend(["--values", file]);
        }
        arguments.extend(self.arguments.iter().map(String::as_str));
        self.helm.run(&arguments, &self.values)
    }
}

/// What try_render has rendered so far.
static RENDERED: LazyLock<Mutex<HashMap<String, Result<Manifests, String>>>> =
    LazyLock::new(Mutex::default);

/// Names the secret of the bundled store's password: without a cluster, Helm cannot look up one of its own.
pub const STORE_SECRET: &str = "--set=store.bundled.existingSecret=weir-valkey";

/// Returns whether a chart has that value. That of an old commit may not, and refuses it.
fn knows_store_secret(chart: &Path) -> bool {
    // A package, or a parent, has no schema here.
    let Ok(schema) = std::fs::read_to_string(chart.join("values.schema.json")) else { return true };
    let value = "/properties/store/properties/bundled/properties/existingSecret";
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    schema.pointer(value).is_some()
}

/// The namespace of every release.
pub const NAMESPACE: &str = "limits";

pub fn chart_directory() -> PathBuf {
    root().join("helm/weir")
}

fn values_directory() -> PathBuf {
    root().join("tests/chart/values")
}

/// Returns the names of the value files, without `.yaml`.
pub fn value_files() -> Vec<String> {
    let files = std::fs::read_dir(values_directory()).expect("a directory");
    let mut names: Vec<String> = files
        .map(|file| file.expect("a file").path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Runs a check for every value file, two at a time.
pub fn for_each_file(check: impl Fn(&str) + Sync) {
    let names = value_files();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(name);
                }
            });
        }
    });
}
