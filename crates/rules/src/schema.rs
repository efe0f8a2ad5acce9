//! Generates a JSON Schema of rule files, for editors, from the table of their keys. `weir check --schema` prints it.

use serde_json::{Map, Value, json};

use crate::model::key::{Key, Section, ValueType};
use crate::model::keys::limits::names;
use weir_common::failure::OnStoreFailure;
use weir_limit::AlgorithmKind;

/// Returns the schema. It knows each key, its place and the type of its value, not which keys go together.
pub fn json_schema() -> Value {
    let maps = Section::ALL.map(|section| (name_of(section), map_of(section)));
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Rules of weir",
        // Draft 7 ignores what is beside a `$ref`.
        "allOf": [reference(Section::Root)],
        "definitions": Map::from_iter(maps),
    })
}

fn name_of(section: Section) -> String {
    format!("{section:?}")
}

fn reference(section: Section) -> Value {
    json!({ "$ref": format!("#/definitions/{}", name_of(section)) })
}

/// Returns the schema of a map. It allows null, which is what a key without a value has.
fn map_of(section: Section) -> Value {
    let keys = Key::all().filter(|key| key.sections.contains(&section));
    let required: &[&str] = match section {
        Section::Root => &["domain"],
        Section::Descriptor => &["key"],
        Section::Reserve => &["id"],
        Section::Ban => &["after", "within", "for"],
        Section::Replacement => &["name"],
        Section::Group | Section::Limit | Section::ListedLimit => &[],
    };
    json!({
        "type": ["object", "null"],
        "properties": Map::from_iter(keys.map(|key| (key.name.to_owned(), value_of(key)))),
        "required": required,
        "additionalProperties": false,
    })
}

fn value_of(key: &Key) -> Value {
    let text = json!({ "type": ["string", "integer", "boolean", "null"] });
    let list = |items: Value| json!({ "type": ["array", "null"], "items": items });
    let number =
        |min: u32, max: u32| json!({ "type": ["integer", "null"], "minimum": min, "maximum": max });
    match key.name {
        "descriptors" => list(reference(Section::Descriptor)),
        "rate_limit" => reference(Section::Limit),
        "rate_limits" => list(reference(Section::ListedLimit)),
        "replaces" => list(reference(Section::Replacement)),
        "reserve" => reference(Section::Reserve),
        "ban" => reference(Section::Ban),
        "group" => reference(Section::Group),
        "metadata" => json!({ "type": ["object", "null"] }),
        "network" | "values" | "for" => json!({ "anyOf": [text, list(text)] }),
        "rate" => json!({ "type": "string" }),
        "rates" => list(json!({ "type": "string" })),
        "v4" => number(0, 32),
        "v6" => number(0, 128),
        "estimate" | "at_least" | "at_most" => number(1, u32::MAX),
        "charge" => json!({ "enum": ["each", "together"] }),
        "align" => json!({ "enum": ["epoch", "calendar"] }),
        "on_store_failure" => json!({ "enum": OnStoreFailure::ALL.map(OnStoreFailure::name) }),
        "algorithm" => {
            let all = AlgorithmKind::ALL.into_iter().flat_map(names);
            json!({ "enum": all.collect::<Vec<_>>() })
        }
        _ => match key.value {
            ValueType::Flag => json!({ "type": ["boolean", "null"] }),
            ValueType::Number(min, max) => number(min, max),
            ValueType::Text | ValueType::Duration | ValueType::Other => text,
        },
    }
}
