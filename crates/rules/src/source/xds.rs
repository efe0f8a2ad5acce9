//! Builds the tree of a `RateLimitConfig`, the xDS form of a rule file: the same tree as the YAML of the file has, with
//! fields instead of lines for positions.
//!
//! A message is never decoded as a whole: a descriptor of two bytes would take 400 in memory, and a small message can
//! have a million of them. Each level is decoded when the tree reaches it; the levels below stay encoded until then.

mod builder;
mod field_path;
mod message;

use std::hash::{Hash, Hasher};
use std::mem;

pub use builder::Unreadable;
use builder::{Builder, Built, MAX_LEVELS, Map};
use bytes::Bytes;
use message::{Config, Descriptor, Items, MetadataField, Named, Value, ValueKind};
use prost::Message;

use crate::model::key::Key;
use crate::model::proto::{self as pb, FieldValue};
use crate::syntax::document::Document;
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Node, Style};

/// About how long a YAML text is for each byte of a message with the same content.
const TEXT_BYTES_PER_BYTE: usize = 3;

/// A `RateLimitConfig` message. It is kept encoded, which takes far less memory than its tree.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The name in errors and warnings.
    pub name: String,
    message: Bytes,
}

impl Resource {
    /// Reads the name of a message, or uses `name` if it has none. The rest is decoded when its tree is built.
    ///
    /// # Errors
    /// The message cannot be decoded.
    pub fn decode(message: Bytes, name: &str) -> Result<Resource, Unreadable> {
        let found = Named::decode(&*message)?.name;
        let name = if found.is_empty() { name.to_owned() } else { found };
        Ok(Resource { name, message })
    }
}

/// Hashes the name and the rules. Encoders may write the same maps in any order.
impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        if let Ok(root) = self.tree(&mut |_| {}) {
            root.hash(state);
        }
    }
}

impl Document for Resource {
    fn name(&self) -> &str {
        &self.name
    }

    fn text_bytes(&self) -> usize {
        self.message.len().saturating_mul(TEXT_BYTES_PER_BYTE)
    }

    fn tree(&self, _: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem> {
        let config = Config::decode(self.message.clone()).map_err(Unreadable::from);
        let root = config.and_then(|config| root(&mut Builder::default(), config));
        root.map(Some).map_err(|error| error.problem(&self.name))
    }

    fn merges_siblings(&self) -> bool {
        true
    }

    fn source_text(&self) -> Option<&str> {
        None
    }

    fn render(files: &[Self], problems: &[&Problem]) -> String {
        field_path::render(files, problems)
    }

    fn locate<'l>(files: &'l [Self], problems: &[&'l Problem]) -> Vec<(String, &'l Problem)> {
        field_path::locate(files, problems)
    }
}

fn root(builder: &mut Builder, config: Config) -> Built {
    let position = builder.position();
    let mut map = Map::default();
    let key = builder.key("domain")?;
    map.push((key, builder.scalar(config.domain, Style::Text)));
    builder.add(&mut map, "charge", config.charge)?;
    builder.add(&mut map, "on_store_failure", config.on_store_failure)?;
    descriptors(builder, &mut map, config.descriptors, MAX_LEVELS)?;
    Ok(Node::map(position, map))
}

fn descriptors(
    builder: &mut Builder,
    map: &mut Map,
    messages: Vec<Bytes>,
    levels: u32,
) -> Result<(), Unreadable> {
    builder.add_list(map, "descriptors", messages, |builder, message| {
        let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
        descriptor(builder, Descriptor::decode(message)?, levels)
    })
}

/// The fields of a descriptor that are set, as the map of the last item.
fn descriptor(builder: &mut Builder, message: Descriptor, levels: u32) -> Built {
    let (position, mut map) = (builder.position(), Map::default());
    builder.add(&mut map, "key", message.key)?;
    builder.add(&mut map, "value", message.value)?;
    for (key, texts) in [("network", message.network), ("values", message.values)] {
        let scalar = |builder: &mut Builder, text: String| Ok(builder.scalar(text, Style::Text));
        builder.add_list(&mut map, key, texts, scalar)?;
    }
    builder.add(&mut map, "values_file", message.values_file)?;
    if let Some(group) = message.group {
        let key = builder.key("group")?;
        let (position, mut lengths) = (builder.position(), Map::default());
        builder.add(&mut lengths, "v4", group.v4)?;
        builder.add(&mut lengths, "v6", group.v6)?;
        map.push((key, Node::map(position, lengths)));
    }
    if let Some(reserve) = message.reserve {
        let key = builder.key("reserve")?;
        map.push((key, self::reserve(builder, reserve)?));
    }
    if let Some(ban) = message.ban {
        let key = builder.key("ban")?;
        map.push((key, self::ban(builder, ban)?));
    }
    builder.add(&mut map, "lease", message.lease)?;
    builder.add(&mut map, "shadow_mode", message.shadow_mode)?;
    builder.add(&mut map, "quota_mode", message.quota_mode)?;
    builder.add(&mut map, "detailed_metric", message.detailed_metric)?;
    builder.add(&mut map, "value_to_metric", message.value_to_metric)?;
    builder.add(&mut map, "share_threshold", message.share_threshold)?;
    if !message.metadata.is_empty() {
        let key = builder.key("metadata")?;
        map.push((key, metadata(builder, message.metadata, levels)?));
    }
    if let Some(limit) = message.rate_limit {
        let key = builder.key("rate_limit")?;
        map.push((key, policy(builder, limit)?));
    }
    builder.add_list(&mut map, "rate_limits", message.rate_limits, |builder, limit| {
        policy(builder, pb::RateLimitPolicy::decode(limit)?)
    })?;
    descriptors(builder, &mut map, message.descriptors, levels)?;
    Ok(Node::map(position, map))
}

/// The fields of `reserve` that are set, as the map of the last key.
fn reserve(builder: &mut Builder, reserve: pb::RateLimitReserve) -> Built {
    let (position, mut map) = (builder.position(), Map::default());
    builder.add(&mut map, "id", reserve.id)?;
    builder.add(&mut map, "settle", reserve.settle)?;
    builder.add(&mut map, "estimate", reserve.estimate)?;
    builder.add(&mut map, "at_least", reserve.at_least)?;
    builder.add(&mut map, "at_most", reserve.at_most)?;
    builder.add(&mut map, "timeout", reserve.timeout)?;
    Ok(Node::map(position, map))
}

/// The fields of `ban` that are set, as the map of the last key.
fn ban(builder: &mut Builder, ban: pb::RateLimitBan) -> Built {
    let (position, mut map) = (builder.position(), Map::default());
    builder.add(&mut map, "after", Some(ban.after).filter(|after| *after != 0))?;
    builder.add(&mut map, "within", ban.within)?;
    builder.add_list(&mut map, "for", ban.r#for, |builder, time| {
        let (text, style) = FieldValue::from(Some(time)).0.unwrap_or(("".into(), Style::Text));
        Ok(builder.scalar(text, style))
    })?;
    builder.add(&mut map, "forget", ban.forget)?;
    Ok(Node::map(position, map))
}

/// The fields of a limit that are set, as the map of the last key or item.
fn policy(builder: &mut Builder, mut policy: pb::RateLimitPolicy) -> Built {
    let (position, mut map) = (builder.position(), Map::default());
    let number = Some(policy.requests_per_unit).filter(|number| *number != 0);
    builder.add(&mut map, "requests_per_unit", number)?;
    let without_unit = policy.unlimited
        || policy.period.is_some()
        || policy.algorithm == "concurrency"
        || !policy.rate.is_empty();
    if policy.unit != 0 || !without_unit {
        let unit = pb::RateLimitUnit::try_from(policy.unit);
        // The reference reports an undefined number as it is.
        let unit = unit.map_or_else(|_| policy.unit.to_string(), |unit| unit.as_str_name().into());
        builder.add(&mut map, "unit", unit)?;
    }
    builder.add(&mut map, "unlimited", policy.unlimited)?;
    builder.add(&mut map, "name", policy.name.clone())?;
    let replaces = mem::take(&mut policy.replaces);
    builder.add_list(&mut map, "replaces", replaces, |builder, replaced| {
        let (position, mut map) = (builder.position(), Map::default());
        builder.add(&mut map, "name", replaced.name)?;
        Ok(Node::map(position, map))
    })?;
    builder.add(&mut map, "algorithm", policy.algorithm.clone())?;
    for (key, field) in Key::all().filter_map(|key| Some((key, key.field?))) {
        builder.add(&mut map, key.name, field(&policy))?;
    }
    builder.add(&mut map, "shadow_mode", policy.shadow_mode)?;
    Ok(Node::map(position, map))
}

/// Metadata, as the map of the last key or item. It may be sent in several messages. Its keys are sorted: encoders
/// write maps in any order, and the same rules must give the same tree.
fn metadata(builder: &mut Builder, messages: Vec<Bytes>, levels: u32) -> Built {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    let position = builder.position();
    let mut fields = Vec::new();
    for message in messages {
        for field in Items::decode(message)?.items {
            fields.push(MetadataField::decode(field)?);
        }
    }
    fields.sort_by(|a, b| a.key.cmp(&b.key));
    // The last of equal keys counts.
    fields.reverse();
    fields.dedup_by(|a, b| a.key == b.key);
    let mut map = Map::with_capacity(fields.len());
    for field in fields.into_iter().rev() {
        let key = builder.key(field.key)?;
        map.push((key, value(builder, field.value, levels)?));
    }
    Ok(Node::map(position, map))
}

/// The value of the last key or item.
fn value(builder: &mut Builder, message: Bytes, levels: u32) -> Built {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    Ok(match Value::decode(message)?.kind {
        None | Some(ValueKind::Null(_)) => builder.scalar("null", Style::Plain),
        Some(ValueKind::Bool(flag)) => builder.scalar(flag.to_string(), Style::Plain),
        // Protobuf has one type for whole numbers and fractions.
        Some(ValueKind::Number(n)) if n.fract() == 0.0 && n.abs() < 1e15 => {
            builder.scalar((n as i64).to_string(), Style::Plain)
        }
        Some(ValueKind::Number(n)) => {
            builder.scalar(serde_json::Value::from(n).to_string(), Style::Plain)
        }
        Some(ValueKind::Text(text)) => builder.scalar(text, Style::Text),
        Some(ValueKind::Struct(message)) => metadata(builder, vec![message], levels)?,
        Some(ValueKind::List(message)) => {
            let messages = Items::decode(message)?.items;
            builder.list(messages, |builder, message| value(builder, message, levels))?
        }
    })
}
