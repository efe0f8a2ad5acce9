//! Rule files as commands such as `weir check` accept them: plain, or in the ConfigMaps of a Kubernetes manifest.

use std::sync::Arc;

use super::RuleFile;
use crate::syntax::document::{Document, EmbeddedList};
use crate::syntax::problem::{Problem, lines};
use crate::syntax::tree::{Content, Node};
use crate::syntax::yaml::{self, Documents};

/// A rule file, or one in a ConfigMap of a manifest: then its name is `MANIFEST#CONFIGMAP/ENTRY`.
#[derive(Clone, Debug)]
pub struct SourceFile {
    file: RuleFile,
    /// The other entries of its ConfigMap, which rules may name as lists of values.
    lists: Option<Arc<[EmbeddedList]>>,
}

impl From<RuleFile> for SourceFile {
    fn from(file: RuleFile) -> SourceFile {
        SourceFile { file, lists: None }
    }
}

impl Document for SourceFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn tree(&self, warn: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem> {
        self.file.tree(warn)
    }

    fn trees(&self, warn: &mut dyn FnMut(Problem)) -> Result<Vec<Option<Node<'_>>>, Problem> {
        self.file.trees(warn)
    }

    fn lists(&self) -> Option<Arc<[EmbeddedList]>> {
        self.lists.clone()
    }

    fn source_text(&self) -> Option<&str> {
        self.file.source_text()
    }
}

impl SourceFile {
    /// Returns the rule files of a manifest; of any other file, the file.
    pub fn unpack(file: RuleFile, problems: &mut Vec<Problem>) -> Vec<SourceFile> {
        match unpack(&file) {
            Ok(Some(found)) => found,
            Ok(None) => vec![file.into()],
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        }
    }
}

/// Returns the rule files in the ConfigMaps of a manifest; none if the file is no manifest.
fn unpack(file: &RuleFile) -> Result<Option<Vec<SourceFile>>, Problem> {
    // Most files are no manifests: they are not parsed for that.
    if memchr::memmem::find(file.text.as_bytes(), b"apiVersion").is_none() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for (i, document) in Documents::new(&file.text).enumerate() {
        let root = match document {
            Ok(root) => root,
            Err(_) if i == 0 => return Ok(None),
            Err(error) => return Err(yaml::problem(&file.name, &file.text, error)),
        };
        let Some(root) = root else { continue };
        let is_object = root.get("apiVersion").is_some() && root.get("kind").is_some();
        if !is_object && i == 0 {
            return Ok(None);
        }
        add(&root, &file.name, &mut found);
    }
    if found.is_empty() {
        let help = "put rules, with `domain` and `descriptors`, into the `data` of a ConfigMap, under names that end in \
                    .yaml or .yml";
        return Err(Problem::of_file(&file.name, "the manifest has no rules", help));
    }
    Ok(Some(found))
}

/// Adds the rule files of one object: a ConfigMap, or a list of objects.
fn add(object: &Node<'_>, manifest: &str, found: &mut Vec<SourceFile>) {
    let kind = object.get("kind").and_then(Node::text).unwrap_or_default();
    if kind == "List" || kind == "ConfigMapList" {
        let items = object.get("items").and_then(Node::items).unwrap_or_default();
        items.iter().for_each(|item| add(item, manifest, found));
    }
    let Some(Content::Map(data)) = object.get("data").map(Node::content) else { return };
    if kind != "ConfigMap" {
        return;
    }
    let config_map = object.get("metadata").and_then(|metadata| metadata.get("name"));
    let config_map = config_map.and_then(Node::text).unwrap_or_default();
    let (mut rules, mut lists) = (Vec::new(), Vec::new());
    for (name, value) in data {
        if let (Some(name), Some(text)) = (name.text(), value.text()) {
            let path = format!("{manifest}#{config_map}/{name}");
            match is_rule_file(name, text) {
                true => rules.push(RuleFile { name: path, text: text.to_owned() }),
                false => {
                    lists.push(EmbeddedList { name: name.to_owned(), path, text: text.to_owned() });
                }
            }
        }
    }
    let lists: Arc<[EmbeddedList]> = lists.into();
    found.extend(rules.into_iter().map(|file| SourceFile { file, lists: Some(lists.clone()) }));
}

const TOP_KEYS: [&str; 2] = ["domain", "descriptors"];

/// Returns whether an entry is a rule file by its name, which is not that of a test or an overlay, and by its keys.
/// Other entries are settings, or configurations of other programs.
fn is_rule_file(name: &str, text: &str) -> bool {
    let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml"));
    if stem.is_none_or(|stem| stem.ends_with(".test") || stem.ends_with(".overlay")) {
        return false;
    }
    match Documents::new(text).next() {
        Some(Ok(Some(root))) => TOP_KEYS.iter().any(|key| root.get(key).is_some()),
        Some(Ok(None)) | None => false,
        // What cannot be read is reported if it is meant as rules.
        Some(Err(_)) => lines(text).any(|line| TOP_KEYS.iter().any(|key| line.starts_with(key))),
    }
}
