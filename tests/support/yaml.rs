//! Reads YAML as JSON values.

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Returns the documents of a YAML text.
pub fn documents(text: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
    documents.iter().map(value).collect()
}

/// Returns the only document of a YAML text.
pub fn document(text: &str) -> Value {
    let mut documents = documents(text);
    assert_eq!(documents.len(), 1, "one document:\n{text}");
    documents.remove(0)
}

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(it) => (*it).into(),
        Yaml::Integer(it) => (*it).into(),
        Yaml::Real(it) => it.parse::<f64>().expect("a number").into(),
        Yaml::String(it) => it.as_str().into(),
        Yaml::Array(items) => items.iter().map(value).collect(),
        Yaml::Hash(entries) => {
            let key = |key: &Yaml| match key {
                Yaml::String(key) => key.clone(),
                Yaml::Integer(key) => key.to_string(),
                other => panic!("{other:?} is no key"),
            };
            entries.iter().map(|(k, v)| (key(k), value(v))).collect::<Map<_, _>>().into()
        }
        other => panic!("{other:?} is not supported"),
    }
}
