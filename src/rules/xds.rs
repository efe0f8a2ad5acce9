//! The xDS form of a rule file: turned into the YAML that says the same, so that one reader checks
//! both and tells of problems in the same words.

mod told;

use std::fmt::Write;

use prost_types::{Struct, Value, value::Kind};

use super::source::RuleFile;
use crate::proto::ratelimit::config::ratelimit::v3 as pb;
pub use told::render_errors;

/// The rule file that `config` is, named as the resource is.
pub fn rule_file(config: &pb::RateLimitConfig) -> RuleFile {
    let mut yaml = Yaml::default();
    yaml.text("domain", &config.domain);
    yaml.text_unless_empty("charge", &config.charge);
    yaml.text_unless_empty("on_store_failure", &config.on_store_failure);
    yaml.descriptors(&config.descriptors);
    RuleFile { name: config.name.clone(), text: yaml.text }
}

/// Block YAML in the making.
#[derive(Default)]
struct Yaml {
    text: String,
    depth: usize,
    /// Whether the next line begins an item of a list.
    item: bool,
}

impl Yaml {
    /// A key and what comes after it, as it is.
    fn line(&mut self, key: &str, value: &str) {
        let (indent, dash) = match self.item {
            true => ("  ".repeat(self.depth - 1), "- "),
            false => ("  ".repeat(self.depth), ""),
        };
        self.item = false;
        let space = if value.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{indent}{dash}{key}:{space}{value}");
    }

    /// A text, in quotes: JSON's are YAML's.
    fn text(&mut self, key: &str, value: &str) {
        self.line(key, &quoted(value));
    }

    fn text_unless_empty(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.line(key, "true");
        }
    }

    fn number(&mut self, key: &str, value: Option<u32>) {
        if let Some(value) = value {
            self.line(key, &value.to_string());
        }
    }

    /// A length of time, to the microsecond; one that is none (negative) as it came.
    fn time(&mut self, key: &str, time: Option<&prost_types::Duration>) {
        let Some(time) = time else { return };
        let (seconds, micros) = (time.seconds, time.nanos / 1_000);
        self.line(
            key,
            &match micros {
                0 => format!("{seconds}s"),
                _ => format!("{seconds}s{micros}us"),
            },
        );
    }

    /// A list of maps, each made by `item`.
    fn list<T>(&mut self, key: &str, items: &[T], item: impl Fn(&mut Yaml, &T)) {
        if items.is_empty() {
            return;
        }
        self.line(key, "");
        self.depth += 1;
        for one in items {
            self.item = true;
            item(self, one);
        }
        self.depth -= 1;
    }

    fn descriptors(&mut self, descriptors: &[pb::RateLimitDescriptor]) {
        self.list("descriptors", descriptors, |yaml, descriptor| {
            yaml.text("key", &descriptor.key);
            yaml.text_unless_empty("value", &descriptor.value);
            yaml.flag("shadow_mode", descriptor.shadow_mode);
            yaml.flag("quota_mode", descriptor.quota_mode);
            yaml.flag("detailed_metric", descriptor.detailed_metric);
            yaml.flag("value_to_metric", descriptor.value_to_metric);
            yaml.flag("share_threshold", descriptor.share_threshold);
            if let Some(metadata) = &descriptor.metadata {
                let json = serde_json::Value::Object(from_struct(metadata));
                yaml.line("metadata", &escaped(&json.to_string()));
            }
            if let Some(policy) = &descriptor.rate_limit {
                yaml.line("rate_limit", "");
                yaml.depth += 1;
                yaml.policy(policy);
                yaml.depth -= 1;
            }
            yaml.list("rate_limits", &descriptor.rate_limits, Yaml::policy);
            yaml.descriptors(&descriptor.descriptors);
        });
    }

    fn policy(&mut self, policy: &pb::RateLimitPolicy) {
        // First, so that every item has a first line.
        self.line("requests_per_unit", &policy.requests_per_unit.to_string());
        let without_unit =
            policy.unlimited || policy.period.is_some() || policy.algorithm == "concurrency";
        if policy.unit != 0 || !without_unit {
            // An unknown unit is told by its name, an undefined one by its number.
            let unit = pb::RateLimitUnit::try_from(policy.unit);
            let unit = unit.map_or_else(|_| policy.unit.to_string(), |u| u.as_str_name().into());
            self.text("unit", &unit);
        }
        self.flag("unlimited", policy.unlimited);
        self.text_unless_empty("name", &policy.name);
        self.list("replaces", &policy.replaces, |yaml, replaced| {
            yaml.text("name", &replaced.name);
        });
        self.text_unless_empty("algorithm", &policy.algorithm);
        self.number("unit_multiplier", policy.unit_multiplier);
        self.time("period", policy.period.as_ref());
        self.number("burst", policy.burst);
        self.number("refill_amount", policy.refill_amount);
        self.time("refill_interval", policy.refill_interval.as_ref());
        self.flag("strict", policy.strict);
        self.number("buckets", policy.buckets);
        if let Some(charge_denied) = policy.charge_denied {
            self.line("charge_denied", &charge_denied.to_string());
        }
        self.number("max_debt", policy.max_debt);
        self.text_unless_empty("hold_id", &policy.hold_id);
        self.time("hold_timeout", policy.hold_timeout.as_ref());
        self.text_unless_empty("align", &policy.align);
        self.text_unless_empty("time_zone", &policy.time_zone);
        self.flag("shadow_mode", policy.shadow_mode);
    }
}

/// A text in double quotes. JSON's escapes are YAML's; what YAML alone takes for no printable
/// character is escaped too.
fn quoted(text: &str) -> String {
    escaped(&serde_json::Value::from(text).to_string())
}

fn escaped(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

fn from_struct(from: &Struct) -> serde_json::Map<String, serde_json::Value> {
    from.fields.iter().map(|(key, value)| (key.clone(), from_value(value))).collect()
}

fn from_value(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(b)) => (*b).into(),
        // Whole numbers as such: the two are one in protobuf.
        Some(Kind::NumberValue(n)) if n.fract() == 0.0 && n.abs() < 1e15 => (*n as i64).into(),
        Some(Kind::NumberValue(n)) => (*n).into(),
        Some(Kind::StringValue(s)) => s.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(from_value).collect(),
        Some(Kind::StructValue(map)) => Json::Object(from_struct(map)),
    }
}
