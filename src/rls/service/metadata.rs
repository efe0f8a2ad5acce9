//! Encodes the `dynamic_metadata` of a response to Envoy: the request, and the `metadata` of the rules that allowed it.

use prost_types::{ListValue, Struct, Value, value::Kind};

use crate::proto::envoy::r#type::v3::RateLimitUnit;
use weir_common::entry::Entry;
use weir_common::value;
use weir_limiter::{Descriptor, Request, RequestDecision};
use weir_rules::Metadata;

/// Encodes `domain`, `descriptors`, `hitsAddend` unless it is 0, and `metadata`: the merged
/// metadata of the rules that allowed their descriptor. The earlier descriptor wins where two
/// differ.
pub(super) fn encode(request: &Request<'_>, decision: &RequestDecision<'_>) -> Struct {
    let mut metadata = Metadata::new();
    for status in decision.statuses.iter().filter(|status| !status.over_limit) {
        if let Some(more) = status.metadata() {
            merge(&mut metadata, more);
        }
    }
    let mut out = Struct::default();
    let mut set = |key: &str, value| drop(out.fields.insert(key.to_owned(), value));
    set("domain", text(request.domain));
    set("descriptors", list(request.descriptors.iter().map(descriptor)));
    if request.hits_addend != 0 {
        set("hitsAddend", number(f64::from(request.hits_addend)));
    }
    if !metadata.is_empty() {
        set("metadata", from_json(&serde_json::Value::Object(metadata)));
    }
    out
}

fn descriptor(descriptor: &Descriptor<'_>) -> Value {
    let mut out = Struct::default();
    let mut set = |key: &str, value| drop(out.fields.insert(key.to_owned(), value));
    let entry = |(key, value): &Entry<'_>| text(&format!("{key}={}", value::shown(value)));
    let entries = descriptor.entries.iter().map(entry);
    set("entries", list(entries));
    if let Some(limit) = &descriptor.limit {
        let mut parts = Vec::new();
        if limit.requests_per_unit != 0 {
            parts.push(format!("requests_per_unit:{}", limit.requests_per_unit));
        }
        match RateLimitUnit::try_from(limit.unit) {
            Ok(RateLimitUnit::Unknown) => {}
            Ok(unit) => parts.push(format!("unit:{}", unit.as_str_name())),
            Err(_) => parts.push(format!("unit:{}", limit.unit)),
        }
        if let Some(multiplier) = limit.unit_multiplier {
            parts.push(format!("unit_multiplier:{{value:{multiplier}}}"));
        }
        set("limit", text(&parts.join(" ")));
    }
    if let Some(hits) = descriptor.hits_addend {
        set("hitsAddend", number(hits as f64));
    }
    value(Kind::StructValue(out))
}

/// Adds to `into` the keys that it lacks; maps are merged recursively.
fn merge(into: &mut Metadata, more: &Metadata) {
    for (key, value) in more {
        match (into.get_mut(key), value) {
            (None, value) => drop(into.insert(key.clone(), value.clone())),
            (Some(serde_json::Value::Object(mine)), serde_json::Value::Object(theirs)) => {
                merge(mine, theirs);
            }
            _ => {}
        }
    }
}

fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => value(Kind::NullValue(0)),
        Json::Bool(b) => value(Kind::BoolValue(*b)),
        Json::Number(n) => number(n.as_f64().unwrap_or_default()),
        Json::String(s) => text(s),
        Json::Array(items) => list(items.iter().map(from_json)),
        Json::Object(map) => value(Kind::StructValue(Struct {
            fields: map.iter().map(|(key, value)| (key.clone(), from_json(value))).collect(),
        })),
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

fn number(number: f64) -> Value {
    value(Kind::NumberValue(number))
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    value(Kind::ListValue(ListValue { values: values.collect() }))
}
