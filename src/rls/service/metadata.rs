//! Encodes the `dynamic_metadata` of a response to Envoy: the request, and the `metadata` of the rules that allowed it.

use std::collections::BTreeMap;

use prost_types::{Struct, Value, value::Kind};

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
    let mut set = |key: &str, value: Value| drop(out.fields.insert(key.to_owned(), value));
    set("domain", request.domain.into());
    set("descriptors", list(request.descriptors.iter().map(descriptor)));
    if request.hits_addend != 0 {
        set("hitsAddend", request.hits_addend.into());
    }
    if !metadata.is_empty() {
        set("metadata", from_json(&serde_json::Value::Object(metadata)));
    }
    out
}

fn descriptor(descriptor: &Descriptor<'_>) -> Value {
    let mut fields = BTreeMap::new();
    let mut set = |key: &str, value: Value| drop(fields.insert(key.to_owned(), value));
    let entry = |(key, value): &Entry<'_>| Value::from(format!("{key}={}", value::shown(value)));
    set("entries", list(descriptor.entries.iter().map(entry)));
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
        set("limit", parts.join(" ").into());
    }
    if let Some(hits) = descriptor.hits_addend {
        set("hitsAddend", (hits as f64).into());
    }
    fields.into()
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
        Json::Null => Kind::NullValue(0).into(),
        Json::Bool(b) => (*b).into(),
        Json::Number(n) => n.as_f64().unwrap_or_default().into(),
        Json::String(s) => s.as_str().into(),
        Json::Array(items) => list(items.iter().map(from_json)),
        Json::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), from_json(value)));
            fields.collect::<BTreeMap<_, _>>().into()
        }
    }
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    values.collect::<Vec<_>>().into()
}
