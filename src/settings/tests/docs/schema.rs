//! The JSON schema of settings, variables and arguments, a part of `helm/weir/values.schema.json`. A test compares them;
//! `UPDATE_DOCS=1 cargo test --lib docs` writes it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::chart::{definitions, refused_setting};
use crate::settings::format::FormatKind;
use crate::settings::table::SETTINGS;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/weir/values.schema.json");

/// The first of the definitions that are written, which are the last ones of the file.
const BEGIN: &str = "\n    \"weirOverrides\": ";

/// What follows the schema of settings in the file.
const END: &str = "\n  }\n}\n";

/// Settings and groups of settings by the parts of their names.
enum Node {
    Setting(Value),
    Group(BTreeMap<&'static str, Node>),
}

impl Node {
    fn insert(&mut self, name: &'static str, schema: Value) {
        let Node::Group(members) = self else { panic!("a setting has the name of a group") };
        match name.split_once('.') {
            None => {
                members.insert(name, Node::Setting(schema));
            }
            Some((group, rest)) => {
                let member = members.entry(group);
                member.or_insert(Node::Group(BTreeMap::new())).insert(rest, schema);
            }
        }
    }

    /// Writes a setting in a line, and a group with a line for each of its members.
    fn write(&self, indent: usize, text: &mut String) {
        let members = match self {
            Node::Setting(schema) => {
                let _ = write!(text, "{schema}");
                return;
            }
            Node::Group(members) => members,
        };
        let pad = " ".repeat(indent);
        let _ = write!(
            text,
            "{{\n{pad}  \"type\": \"object\",\n{pad}  \"additionalProperties\": false,\n\
             {pad}  \"properties\": {{\n"
        );
        for (position, (name, member)) in members.iter().enumerate() {
            let _ = write!(text, "{pad}    \"{name}\": ");
            member.write(indent + 4, text);
            text.push_str(if position + 1 < members.len() { ",\n" } else { "\n" });
        }
        let _ = write!(text, "{pad}  }}\n{pad}}}");
    }
}

/// Returns the schema of a value. It is stricter than weir: switches and numbers are no texts.
fn schema(kind: FormatKind) -> Value {
    const DURATION: &str = "([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h|d))+";
    match kind {
        FormatKind::Bool => json!({ "type": "boolean" }),
        FormatKind::Int(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        FormatKind::Ratio => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        FormatKind::Text => json!({ "type": "string" }),
        FormatKind::LogLevels => json!({ "type": "string", "pattern": log_levels() }),
        FormatKind::Duration => json!({
            "type": ["string", "integer"], "pattern": format!("^(0|{DURATION})$"), "minimum": 0, "maximum": 0
        }),
        FormatKind::AutoOrDuration => json!({
            "type": ["string", "integer"], "pattern": format!("^(0|auto|{DURATION})$"), "minimum": 0,
            "maximum": 0
        }),
        FormatKind::Bytes => json!({
            "type": ["string", "integer"], "minimum": 0,
            "pattern": "^[0-9]+ *([kKmMgG]([iI]?[bB])?|[bB])?$"
        }),
        FormatKind::Address => json!({
            "type": "string", "pattern": r"^((\[.*\]|[^:]*):[0-9]+)?$"
        }),
        FormatKind::List => json!({ "type": ["array", "string"], "items": { "type": "string" } }),
        FormatKind::Choice(words) => json!({ "enum": words() }),
    }
}

/// Returns the pattern of log levels: one for weir, and one for each library that is named.
fn log_levels() -> String {
    let in_any_case = |word: &str| {
        let letters = word.chars().map(|c| format!("[{c}{}]", c.to_ascii_uppercase()));
        letters.collect::<String>()
    };
    let levels = ["off", "error", "warn", "info", "debug", "trace"].map(in_any_case).join("|");
    let level = format!(" *({levels}) *");
    let library = format!(" *[-_:a-zA-Z0-9]+ *={level}");
    format!("^({library},)*({level}|{library})(,{library})*$")
}

#[test]
fn the_pattern_of_log_levels_accepts_what_weir_reads() {
    use weir_telemetry::log::LogLevels;

    // A pattern of JSON schema may match a part.
    let pattern = regex::Regex::new(&log_levels()).unwrap();
    for text in [
        "info",
        "OFF",
        "Debug",
        "info,h2=debug",
        "h2=debug",
        "h2=debug, info ,weir::xds = trace",
        "verbose",
        "",
        "info,debug",
        "info,",
        "h2",
        "h2=loud",
        "=info",
        "info,h2=",
        "warning",
    ] {
        assert_eq!(pattern.is_match(text), text.parse::<LogLevels>().is_ok(), "{text:?}");
    }
}

#[test]
fn the_chart_knows_all_settings() {
    let mut root = Node::Group(BTreeMap::new());
    for setting in SETTINGS.iter() {
        let schema = refused_setting(setting.name).unwrap_or_else(|| {
            let mut schema = match setting.name {
                "store.redis.per_second.url" => {
                    json!({ "allOf": [{ "$ref": "#/definitions/redisUrl" }] })
                }
                _ => schema(setting.kind),
            };
            schema["description"] = setting.doc.into();
            schema
        });
        root.insert(setting.name, schema);
    }
    let document = std::fs::read_to_string(FILE).unwrap();
    let (head, _) = document.split_once(BEGIN).expect("the last definitions are of weir");
    let mut wanted = head.to_owned();
    for (name, schemas) in definitions() {
        let schemas: Vec<String> =
            schemas.iter().map(|schema| format!("        {schema}")).collect();
        let _ = write!(
            wanted,
            "\n    \"{name}\": {{\n      \"allOf\": [\n{}\n      ]\n    }},",
            schemas.join(",\n")
        );
    }
    wanted.push_str("\n    \"weirSettings\": ");
    root.write(4, &mut wanted);
    wanted.push_str(END);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, wanted).unwrap();
    } else {
        assert!(document == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
}
