//! Runs the steps of workflows with programs that only pretend.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::support::files::{read, root};
use crate::support::yaml;

/// The repository whose workflows run.
pub const REPOSITORY: &str = "Ann/Limits";

/// Returns a workflow, such as `ci`.
pub fn workflow(name: &str) -> Value {
    yaml::document(&read(format!(".github/workflows/{name}.yaml")))
}

/// A checkout with programs that only pretend, and the outputs of the steps so far.
pub struct Runner {
    directory: TempDir,
    /// `jobs.JOB.NAME` and `steps.STEP.NAME`.
    outputs: BTreeMap<String, String>,
    reference: String,
}

impl Runner {
    /// Prepares a run for a Git reference.
    pub fn new(reference: &str) -> Runner {
        let directory = tempfile::tempdir().unwrap();
        let (checkout, programs) =
            (directory.path().join("checkout"), directory.path().join("bin"));
        for place in [&checkout, &programs] {
            fs::create_dir(place).unwrap();
        }
        for entry in fs::read_dir(root()).unwrap() {
            let entry = entry.unwrap();
            symlink(entry.path(), checkout.join(entry.file_name())).unwrap();
        }
        Runner { directory, outputs: BTreeMap::new(), reference: reference.to_owned() }
    }

    /// The directory in which the steps run.
    pub fn checkout(&self) -> PathBuf {
        self.directory.path().join("checkout")
    }

    /// Puts a program on the PATH that logs its name and its arguments, and then runs a script.
    pub fn program(&self, name: &str, script: &str) {
        let log = format!("echo {name} \"$@\" >>\"$COMMANDS\"\n{script}\n");
        super::write_program(&self.directory.path().join("bin"), name, &log);
    }

    /// Lets a program fail for arguments that match a pattern of the shell.
    pub fn fail(&self, name: &str, arguments: &str) {
        let text = fs::read_to_string(self.directory.path().join("bin").join(name)).unwrap();
        let (_, script) = text.split_once('\n').unwrap();
        let pattern = arguments.replace(' ', "\\ ");
        let failure = format!("case \"$*\" in {pattern}) echo not here >&2; exit 1 ;; esac\n");
        super::write_program(&self.directory.path().join("bin"), name, &(failure + script));
    }

    /// Returns the lines that programs have logged, and forgets them.
    pub fn commands(&self) -> Vec<String> {
        let log = self.directory.path().join("commands");
        let lines = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        lines.lines().map(str::to_owned).collect()
    }

    /// Sets the output of a step that is an action.
    pub fn set_output(&mut self, name: &str, value: &str) {
        self.outputs.insert(name.to_owned(), value.to_owned());
    }

    pub fn output(&self, name: &str) -> &str {
        self.outputs.get(name).map_or("", String::as_str)
    }

    /// Returns the value of an expression without operators.
    fn value(&self, expression: &str, matrix: &Value) -> String {
        let words: Vec<&str> = expression.trim().split('.').collect();
        match words[..] {
            ["github", "actor"] => "Ann".to_owned(),
            ["github", "token"] => "token".to_owned(),
            ["matrix", key] => matrix[key].as_str().expect(expression).to_owned(),
            ["needs", job, "outputs", key] => self.output(&format!("jobs.{job}.{key}")).to_owned(),
            ["steps", step, "outputs", key] => {
                self.output(&format!("steps.{step}.{key}")).to_owned()
            }
            _ => panic!("{expression}: no test knows it"),
        }
    }

    /// Replaces the expressions of a text.
    fn expand(&self, text: &str, matrix: &Value) -> String {
        let mut parts = text.split("${{");
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once("}}").expect("the end of an expression");
            expanded += &(self.value(expression, matrix) + rest);
        }
        expanded
    }

    /// Returns whether a job or a step runs.
    fn runs(&self, item: &Value, matrix: &Value) -> bool {
        let Some(condition) = item["if"].as_str() else { return true };
        let (left, right) = condition.split_once(" == ").expect("a comparison");
        self.value(left, matrix) == right.trim_matches('\'')
    }

    /// Runs the scripts of a job. Returns those that ran, or what the failed one printed.
    pub fn run(&mut self, name: &str, job: &Value, matrix: &Value) -> Result<Vec<String>, String> {
        let mut ran = Vec::new();
        if !self.runs(job, matrix) {
            return Ok(ran);
        }
        for step in job["steps"].as_array().expect("steps") {
            let Some(script) = step["run"].as_str().filter(|_| self.runs(step, matrix)) else {
                continue;
            };
            assert!(!script.contains("${{"), "{script}: expressions belong into env");
            let mut env = Map::new();
            for place in [job, step] {
                env.extend(place["env"].as_object().cloned().unwrap_or_default());
            }
            let output = self.script(script, &env, matrix);
            ran.push(script.to_owned());
            if !output.status.success() {
                return Err(super::printed(&output));
            }
            let id = step["id"].as_str().unwrap_or_default();
            let written = fs::read_to_string(self.directory.path().join("output"));
            for (key, value) in
                written.unwrap_or_default().lines().filter_map(|it| it.split_once('='))
            {
                self.outputs.insert(format!("steps.{id}.{key}"), value.to_owned());
            }
        }
        for (key, value) in job["outputs"].as_object().into_iter().flatten() {
            let value = self.expand(value.as_str().unwrap(), matrix);
            assert!(!value.is_empty(), "the output {key} of the job {name} is empty");
            self.outputs.insert(format!("jobs.{name}.{key}"), value);
        }
        Ok(ran)
    }

    fn script(&self, script: &str, env: &Map<String, Value>, matrix: &Value) -> Output {
        let inside = |name: &str| self.directory.path().join(name);
        let _ = fs::remove_file(inside("output"));
        let path = std::env::var("PATH").unwrap();
        let reference = self.reference.strip_prefix("refs/tags/").unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["-e", "-c", script]).current_dir(self.checkout());
        command.env("PATH", format!("{}:{path}", inside("bin").display()));
        command.env("COMMANDS", inside("commands")).env("GITHUB_OUTPUT", inside("output"));
        command.env("CHECKOUT", self.checkout()).env("GITHUB_SERVER_URL", "https://github.com");
        command.env("GITHUB_REPOSITORY", REPOSITORY).env("GITHUB_REF", &self.reference);
        command.env("GITHUB_REF_NAME", reference);
        for (name, value) in env {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            command.env(name, self.expand(&value, matrix));
        }
        command.output().unwrap()
    }
}

/// Returns the scripts of a workflow's steps.
pub fn scripts(workflow: &Value) -> Vec<String> {
    let jobs = workflow["jobs"].as_object().expect("jobs").values();
    let steps = jobs.filter_map(|job| job["steps"].as_array()).flatten();
    steps.filter_map(|step| Some(step["run"].as_str()?.to_owned())).collect()
}

/// Writes the programs of two platforms into a directory, as the workflow stores them.
pub fn put_binaries(directory: &Path) {
    for platform in ["amd64", "arm64"] {
        let place = directory.join(format!("binary-{platform}"));
        fs::create_dir_all(&place).unwrap();
        for name in ["weir", "weir.debug"] {
            fs::write(place.join(name), platform).unwrap();
        }
    }
}
