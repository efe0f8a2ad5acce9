//! Converts `RateLimitConfig` messages of the reference in Protobuf's JSON form.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;

use super::Converted;
use super::domain::RuleText;
use crate::proto::DESCRIPTORS;
use weir_rules::tree::{Content, Node};
use weir_rules::xds::{Resource, render_errors};
use weir_rules::{Document, Loaded, Options, Problems};

const MESSAGE: &str = "ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Converts one message, several after one another, or a list of them.
///
/// # Errors
///
/// The text is not JSON, or a message is not a valid rule file.
pub(super) fn convert(name: &str, text: &str) -> Result<Converted, String> {
    let error = |error: &dyn std::fmt::Display| format!("error: {name}: {error}");
    let message = DescriptorPool::decode(DESCRIPTORS).map_err(|cause| error(&cause))?;
    let message = message.get_message_by_name(MESSAGE).ok_or("error: no message")?;
    let mut converted = Converted::default();
    let mut resources = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let values = match value.map_err(|cause| error(&cause))? {
            Value::Array(values) => values,
            value => vec![value],
        };
        for mut value in values {
            let path = match value.get("name").and_then(Value::as_str) {
                Some(resource) => format!("{name}: {resource}"),
                None => name.to_owned(),
            };
            remove_unknown(&mut value, &message, &path, &mut converted.left_out);
            let message = DynamicMessage::deserialize(message.clone(), value);
            let message = message.map_err(|cause| format!("error: {path}: {cause}"))?;
            let resource = Resource::decode(message.encode_to_vec().into(), name);
            resources.push(resource.map_err(|cause| format!("error: {path}: {cause}"))?);
        }
    }
    if resources.is_empty() {
        return Err(error(&"there is no message"));
    }
    let options = Options::default();
    let problems = Problems::new(options.max_problems);
    let loaded = Loaded::compile(resources, problems, &options, None);
    if !loaded.is_good() {
        return Err(render_errors(&loaded));
    }
    for resource in &loaded.files {
        if let Ok(Some(root)) = resource.tree(&mut |_| {}) {
            converted.rules.push(RuleText::new(domain(&root), &root));
        }
    }
    Ok(converted)
}

fn domain<'n>(root: &'n Node<'_>) -> &'n str {
    let Content::Map(entries) = root.content() else { return "" };
    let domain = entries.iter().find(|(key, _)| key.text() == Some("domain"));
    domain.and_then(|(_, value)| value.text()).unwrap_or_default()
}

/// Removes the fields that a message does not have, and lists them.
fn remove_unknown(
    value: &mut Value,
    message: &MessageDescriptor,
    path: &str,
    removed: &mut Vec<String>,
) {
    // Maps of any content, and numbers and durations.
    if message.full_name().starts_with("google.protobuf.") {
        return;
    }
    let Value::Object(fields) = value else { return };
    let known = |name: &str| {
        message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
    };
    // The type of a resource in a response.
    fields.retain(|name, _| {
        let is_known = name == "@type" || known(name).is_some();
        if !is_known {
            removed.push(format!("{path}: {name}: there is no such field"));
        }
        is_known && name != "@type"
    });
    for (name, value) in fields {
        let Some(Kind::Message(message)) = known(name).as_ref().map(FieldDescriptor::kind) else {
            continue;
        };
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    remove_unknown(item, &message, &format!("{path}: {name}[{at}]"), removed);
                }
            }
            value => remove_unknown(value, &message, &format!("{path}: {name}"), removed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::cli::convert::domain::tests::errors;

    const CONFIG: &str = r#"{
        "@type": "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig",
        "name": "a", "domain": "shop", "descriptors": [
            {"key": "user", "rateLimit": {"requestsPerUnit": 5, "unit": "MINUTE", "name": "on"}},
            {"key": "path", "value": "/a", "shadow_mode": true, "color": "red",
             "rate_limit": {"unit": "DAY", "requests_per_unit": 7, "replaces": [{"name": "on"}]},
             "metadata": {"team": ["a", 1, null]}}]}"#;

    #[test]
    fn messages_become_rule_files_and_unknown_fields_are_listed() {
        let converted = convert("c.json", CONFIG).unwrap();
        assert_eq!(
            converted.left_out,
            ["c.json: a: descriptors[1]: color: there is no such field"]
        );
        let [rules] = converted.rules.as_slice() else { panic!("{converted:?}") };
        assert_eq!(errors(rules), "");
        assert_eq!(
            rules.text,
            "\
domain: shop
descriptors:
  - key: user
    rate_limit:
      requests_per_unit: 5
      unit: MINUTE
      name: \"on\"
  - key: path
    value: /a
    shadow_mode: true
    metadata:
      team:
        - a
        - 1
        - null
    rate_limit:
      requests_per_unit: 7
      unit: DAY
      replaces:
        - name: \"on\"
"
        );
    }

    #[test]
    fn lists_and_sequences_give_a_file_each() {
        let (a, b) = (r#"{"domain":"a"}"#, r#"{"domain":"b"}"#);
        for text in [format!("[{a},{b}]"), format!("{a}\n{b}")] {
            let files: Vec<_> = convert("c", &text).unwrap().rules;
            let names: Vec<_> = files.iter().map(|rules| rules.file.as_str()).collect();
            assert_eq!(names, ["a.yaml", "b.yaml"]);
        }
    }

    #[test]
    fn invalid_messages_are_errors() {
        for (text, wanted) in [
            ("{", "error: c.json: EOF"),
            (r#"{"domain": 1}"#, "error: c.json: "),
            (
                r#"{"name": "a", "descriptors": []}"#,
                "a: error: config file cannot have empty domain",
            ),
            (
                r#"{"domain": "a", "descriptors": [{"key": "k", "rateLimit": {}}]}"#,
                "  at: descriptors[0].rate_limit.unit (k)",
            ),
        ] {
            let error = convert("c.json", text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_converted_loads(
            domain in ".{1,5}",
            rules in prop::collection::btree_map(".{1,4}", (".{0,3}", 0..9u32, 0..9, ".{0,3}"), 0..5)
        ) {
            let descriptors: Vec<Value> = rules.into_iter().map(|(key, (value, count, unit, name))| {
                json!({ "key": key, "value": value,
                        "rateLimit": { "unit": unit, "requestsPerUnit": count, "name": name } })
            }).collect();
            let text = json!({ "domain": domain, "descriptors": descriptors }).to_string();
            // Others are no valid rules.
            if let Ok(converted) = convert("c", &text) {
                for rules in &converted.rules {
                    prop_assert_eq!(errors(rules), "");
                }
            }
        }
    }
}
