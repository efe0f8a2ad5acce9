//! Rendered manifests.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::support::yaml;

/// The output of `helm template`.
#[derive(Clone, Debug)]
pub struct Manifests {
    pub text: String,
    /// Resources by `Kind/name`.
    pub resources: BTreeMap<String, Value>,
}

impl Manifests {
    pub fn parse(text: &str) -> Manifests {
        let mut resources = BTreeMap::new();
        let documents = yaml::documents(text).into_iter().filter(|document| !document.is_null());
        for resource in documents {
            let name =
                format!("{}/{}", resource["kind"].text(), resource["metadata"]["name"].text());
            assert!(resources.insert(name.clone(), resource).is_none(), "{name} twice in:\n{text}");
        }
        Manifests { text: text.to_owned(), resources }
    }

    /// Returns the resource of a kind that weir itself has, whose name is the release's.
    pub fn get(&self, kind: &str) -> &Value {
        self.find(&format!("{kind}/weir"))
    }

    /// Returns the resource `Kind/name`.
    pub fn find(&self, name: &str) -> &Value {
        let found = self.resources.get(name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    pub fn names(&self) -> Vec<&str> {
        self.resources.keys().map(String::as_str).collect()
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.names().iter().map(|name| name.split('/').next().unwrap()).collect()
    }

    /// Returns the resources of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.resources.values().filter(move |resource| resource["kind"] == kind)
    }

    /// Returns the Deployment or the StatefulSet of weir.
    pub fn workload(&self) -> &Value {
        self.resources.get("StatefulSet/weir").unwrap_or_else(|| self.get("Deployment"))
    }

    /// Returns the pod of weir.
    pub fn pod(&self) -> &Value {
        &self.workload()["spec"]["template"]["spec"]
    }

    /// Returns the container of weir.
    pub fn container(&self) -> &Value {
        self.pod()["containers"].named("weir")
    }

    /// Returns every pod: of Deployments and StatefulSets, and of tests.
    pub fn pods(&self) -> Vec<(&str, &Value)> {
        let mut pods = Vec::new();
        for (name, resource) in &self.resources {
            match resource["kind"].text() {
                "Deployment" | "StatefulSet" => {
                    pods.push((name.as_str(), &resource["spec"]["template"]["spec"]));
                }
                "Pod" => pods.push((name.as_str(), &resource["spec"])),
                _ => {}
            }
        }
        pods
    }
}

/// Shorter ways to read a value that must have a type.
pub trait Read {
    fn text(&self) -> &str;
    fn list(&self) -> &Vec<Value>;
    fn map(&self) -> &Map<String, Value>;
    fn int(&self) -> i64;
    /// Returns the element of a list that has this name.
    fn named(&self, name: &str) -> &Value;
}

impl Read for Value {
    fn text(&self) -> &str {
        self.as_str().unwrap_or_else(|| panic!("text, not {self}"))
    }

    fn list(&self) -> &Vec<Value> {
        self.as_array().unwrap_or_else(|| panic!("a list, not {self}"))
    }

    fn map(&self) -> &Map<String, Value> {
        self.as_object().unwrap_or_else(|| panic!("a map, not {self}"))
    }

    fn int(&self) -> i64 {
        self.as_i64().unwrap_or_else(|| panic!("a number, not {self}"))
    }

    fn named(&self, name: &str) -> &Value {
        let found = self.list().iter().find(|item| item["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {self}"))
    }
}
