//! The parts of docker-compose.yaml that the example uses.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::files::root;
use crate::support::yaml;

/// The file of the example.
#[derive(Debug)]
pub struct Compose {
    directory: PathBuf,
    source: String,
    content: Value,
}

pub fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("a list, not {value}"))
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("text, not {value}"))
}

impl Compose {
    pub fn read() -> Compose {
        let directory = root().join("examples/compose");
        let source = fs::read_to_string(directory.join("docker-compose.yaml")).unwrap();
        let content = yaml::document(&source);
        Compose { directory, source, content }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Reads a file by its path from the root of the repository.
    pub fn repository_file(&self, name: &str) -> String {
        fs::read_to_string(root().join(name)).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        self.content["services"].as_object().unwrap().keys().cloned().collect()
    }

    pub fn service(&self, name: &str) -> &Value {
        let service = &self.content["services"][name];
        assert!(service.is_object(), "no service {name}");
        service
    }

    /// Returns a list of texts of a service, empty without one.
    pub fn strings(&self, service: &str, key: &str) -> Vec<String> {
        let Some(values) = self.service(service).get(key) else { return Vec::new() };
        list(values).iter().map(|value| text(value).to_owned()).collect()
    }

    pub fn command(&self, service: &str) -> Vec<String> {
        self.strings(service, "command")
    }

    pub fn environment(&self, service: &str) -> Vec<(String, String)> {
        let variables = self.service(service)["environment"].as_object().unwrap();
        variables.iter().map(|(name, value)| (name.clone(), text(value).to_owned())).collect()
    }

    /// Returns what a service mounts: files of the repository, and the paths in the container.
    pub fn mounts(&self, service: &str) -> Vec<(PathBuf, String)> {
        let parse = |mount: String| {
            let mut parts = mount.split(':');
            let (Some(source), Some(target), Some("ro")) =
                (parts.next(), parts.next(), parts.next())
            else {
                panic!("{mount} is not source:target:ro");
            };
            (self.directory.join(source), target.to_owned())
        };
        self.strings(service, "volumes").into_iter().map(parse).collect()
    }

    /// Returns the file of the repository that a service sees at a path.
    pub fn source_of(&self, service: &str, path: &str) -> PathBuf {
        let mounts = self.mounts(service);
        let found = mounts.iter().find_map(|(source, target)| {
            let rest = Path::new(path).strip_prefix(target).ok()?;
            // A trailing slash would turn a file into a directory.
            Some(if rest.as_os_str().is_empty() { source.clone() } else { source.join(rest) })
        });
        found.unwrap_or_else(|| panic!("{service} mounts nothing at {path}"))
    }

    /// Replaces mounted paths in a value by those of the repository.
    pub fn with_sources_of(&self, service: &str, value: &str) -> String {
        let mounts = self.mounts(service);
        mounts.iter().fold(value.to_owned(), |value, (source, target)| {
            value.replace(target.as_str(), source.to_str().unwrap())
        })
    }
}
