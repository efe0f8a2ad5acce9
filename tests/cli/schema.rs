//! `weir check --schema`: a JSON Schema that every rule file of the documents and examples passes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use weir_rules::tree::{self, Content, Node};
use weir_rules::yaml;

use crate::support::program::weir;
use crate::support::{files, markdown, schemas, tools};

fn schema() -> Value {
    let (code, out, err) = weir(Path::new("."), &["check", "--schema"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    serde_json::from_str(&out).unwrap()
}

/// Returns a node as an editor sees it, with merged maps.
fn json(node: &Node<'_>) -> Value {
    match node.content() {
        Content::List(items) => items.iter().map(json).collect(),
        Content::Map(entries) => {
            let mut map = Map::new();
            for (key, value) in entries.iter() {
                match (key.text().unwrap(), json(value)) {
                    ("<<", Value::Array(merged)) => {
                        let merged = merged.into_iter().rev();
                        merged.for_each(|merged| map.extend(merged.as_object().unwrap().clone()));
                    }
                    ("<<", merged) => map.extend(merged.as_object().unwrap().clone()),
                    (key, value) => _ = map.insert(key.to_owned(), value),
                }
            }
            map.into()
        }
        Content::Scalar(text) => match node.value() {
            Some(tree::Value::Bool(value)) => value.into(),
            Some(tree::Value::Int(number)) => number.into(),
            Some(tree::Value::Text(text)) => text.into(),
            Some(tree::Value::Other) => text.parse::<f64>().unwrap().into(),
            None | Some(tree::Value::Null) => Value::Null,
        },
    }
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

/// Returns the rule files of the documents and examples, each with its place.
fn rule_files() -> Vec<(String, Value)> {
    let mut paths = vec![files::root().join("README.md")];
    ["docs", "examples"].iter().for_each(|name| files_below(&files::root().join(name), &mut paths));
    let mut found = Vec::new();
    for path in paths {
        let place = path.display();
        let texts = match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") => vec![(place.to_string(), files::read(&path))],
            Some("md") => markdown::blocks_of(&files::read(&path), "yaml")
                .into_iter()
                .map(|block| (format!("{place}:{}", block.line), block.text))
                .collect(),
            _ => Vec::new(),
        };
        for (place, text) in texts {
            let Ok(Some(root)) = yaml::parse(&text) else { continue };
            let has = |key: &str| root.get(key).is_some();
            if has("domain") && !has("tests") {
                found.push((place, json(&root)));
            }
        }
    }
    found
}

/// Returns a schema of lists of rule files, so that one call checks all.
fn schema_of_lists() -> String {
    let mut schema = schema();
    let file = schema["allOf"].take();
    schema["allOf"] = json!([{ "type": "array", "items": { "allOf": file } }]);
    schema.to_string()
}

#[test]
fn every_rule_file_of_the_documents_and_examples_passes_the_schema() {
    let (places, values): (Vec<_>, Vec<_>) = rule_files().into_iter().unzip();
    assert!(places.len() > 60, "{}", places.len());
    let checked = schemas::check_by(&schema_of_lists(), &values.into());
    let shown = places.iter().enumerate().map(|(i, place)| format!("[{i}] {place}\n"));
    assert_eq!(checked, Ok(()), "{}", shown.collect::<String>());
}

#[test]
fn what_the_schema_does_not_know_is_an_error() {
    let invalid = [
        "domain: a\ndescriptors: [{ key: b, rate_limt: { rate: 1/s } }]",
        "domain: a\ndescriptors: [{ key: b, rate_limit: { rate: 1/s, shadow_mode: true } }]",
        "domain: a\ndescriptors: [{ key: b, rate: 1/s, algorithm: leaky }]",
        "domain: a\ndescriptors: [{ key: b, rate_limits: [{ rate: 1/s, buckets: 1 }] }]",
        "domain: a\ndescriptors: [{ key: b, rate_limit: { rate: 1/s, replaces: [c] } }]",
        "domain: a\ndescriptors: [{ key: b, descriptors: [{ value: c }] }]",
        "domain: a\ndescriptors: [{ key: b, lease: 'no' }]",
        "domain: a\ndescriptors: { key: b }",
        "domain: a\non_store_failure: open",
        "descriptors: []",
    ];
    let schema = schema().to_string();
    for text in invalid.iter().filter(|_| tools::kubernetes_validate().is_some()) {
        let value = json(&yaml::parse(text).unwrap().unwrap());
        assert!(schemas::check_by(&schema, &value).is_err(), "{text}");
    }
}
