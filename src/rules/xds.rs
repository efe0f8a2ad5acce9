//! The xDS form of a rule file: turned into the YAML that says the same, so that one reader checks
//! both and reports problems in the same words.
//!
//! The message is never decoded as a whole. A descriptor of two bytes would be 400 in memory, and
//! a million of them fit into a small message; so each level is read when its turn comes, and what
//! is below it stays as it was sent.

mod field_path;
mod wire;
mod writer;

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::source::RuleFile;
use crate::proto::ratelimit::config::ratelimit::v3 as pb;
pub use field_path::render_errors;
use wire::{Config, Descriptor, Field, List, Struct, Value, ValueKind};
use writer::Writer;

/// How many levels messages may nest: as deep as Protobuf's decoders follow by default.
const MAX_LEVELS: u32 = 100;

/// Why a message is no rule file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("messages are nested more than {MAX_LEVELS} levels deep")]
    TooDeep,
    #[error("it has more than {} fields", writer::MAX_FIELDS)]
    TooManyFields,
}

/// The rule file that an encoded `RateLimitConfig` is, named as the message says, else `name`.
///
/// # Errors
/// The message cannot be decoded, nests too deep or is too large.
pub fn rule_file(message: Bytes, name: &str) -> Result<RuleFile, Unreadable> {
    let config = Config::decode(message)?;
    let mut out = Writer::default();
    out.line("domain", &config.domain);
    for (key, text) in [("charge", &config.charge), ("on_store_failure", &config.on_store_failure)]
    {
        if !text.is_empty() {
            out.line(key, text);
        }
    }
    if !config.descriptors.is_empty() {
        out.key("descriptors");
        descriptors(&mut out, config.descriptors, MAX_LEVELS)?;
        out.end_line();
    }
    let name = if config.name.is_empty() { name.to_owned() } else { config.name };
    Ok(RuleFile { name, text: out.into_text() })
}

fn descriptors(out: &mut Writer, messages: Vec<Bytes>, levels: u32) -> Result<(), Unreadable> {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    out.open('[');
    for message in messages {
        let sent = Descriptor::decode(message)?;
        out.end_line();
        out.item('{');
        out.text_unless_empty("key", &sent.key);
        out.text_unless_empty("value", &sent.value);
        for (key, flag) in [
            ("shadow_mode", sent.shadow_mode),
            ("quota_mode", sent.quota_mode),
            ("detailed_metric", sent.detailed_metric),
            ("value_to_metric", sent.value_to_metric),
            ("share_threshold", sent.share_threshold),
        ] {
            out.flag(key, flag);
        }
        if !sent.metadata.is_empty() {
            out.key("metadata");
            metadata(out, sent.metadata, levels)?;
        }
        if let Some(limit) = &sent.rate_limit {
            out.key("rate_limit");
            out.open('{');
            policy(out, limit);
            out.close('}');
        }
        if !sent.rate_limits.is_empty() {
            out.key("rate_limits");
            out.open('[');
            for limit in sent.rate_limits {
                out.item('{');
                policy(out, &pb::RateLimitPolicy::decode(limit)?);
                out.close('}');
                out.check()?;
            }
            out.close(']');
        }
        if !sent.descriptors.is_empty() {
            out.key("descriptors");
            descriptors(out, sent.descriptors, levels)?;
        }
        out.close('}');
        out.check()?;
    }
    out.close(']');
    Ok(())
}

/// The fields of a limit that are set.
fn policy(out: &mut Writer, policy: &pb::RateLimitPolicy) {
    if policy.requests_per_unit != 0 {
        out.number("requests_per_unit", Some(policy.requests_per_unit));
    }
    let without_unit =
        policy.unlimited || policy.period.is_some() || policy.algorithm == "concurrency";
    if policy.unit != 0 || !without_unit {
        // An unknown unit is shown by its name, an undefined one by its number.
        let unit = pb::RateLimitUnit::try_from(policy.unit);
        let unit = unit.map_or_else(|_| policy.unit.to_string(), |u| u.as_str_name().into());
        out.text("unit", &unit);
    }
    out.flag("unlimited", policy.unlimited);
    out.text_unless_empty("name", &policy.name);
    if !policy.replaces.is_empty() {
        out.key("replaces");
        out.open('[');
        for replaced in &policy.replaces {
            out.item('{');
            out.text_unless_empty("name", &replaced.name);
            out.close('}');
        }
        out.close(']');
    }
    out.text_unless_empty("algorithm", &policy.algorithm);
    out.number("unit_multiplier", policy.unit_multiplier);
    out.time("period", policy.period.as_ref());
    out.number("burst", policy.burst);
    out.number("refill_amount", policy.refill_amount);
    out.time("refill_interval", policy.refill_interval.as_ref());
    out.flag("strict", policy.strict);
    out.number("buckets", policy.buckets);
    if let Some(charge_denied) = policy.charge_denied {
        out.plain("charge_denied", charge_denied);
    }
    out.number("max_debt", policy.max_debt);
    out.text_unless_empty("hold_id", &policy.hold_id);
    out.time("hold_timeout", policy.hold_timeout.as_ref());
    out.text_unless_empty("align", &policy.align);
    out.text_unless_empty("time_zone", &policy.time_zone);
    out.flag("shadow_mode", policy.shadow_mode);
}

/// A map of metadata, sent in one message or in several that together are one. Its keys are in
/// order: encoders write maps in any, and the same rules must give the same text.
fn metadata(out: &mut Writer, messages: Vec<Bytes>, levels: u32) -> Result<(), Unreadable> {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    let mut fields = Vec::new();
    for message in messages {
        for field in Struct::decode(message)?.fields {
            fields.push(Field::decode(field)?);
        }
    }
    fields.sort_by(|a, b| a.key.cmp(&b.key));
    // Of equal keys the last counts.
    fields.reverse();
    fields.dedup_by(|a, b| a.key == b.key);
    out.open('{');
    for field in fields.into_iter().rev() {
        out.any_key(&field.key);
        value(out, field.value, levels)?;
    }
    out.close('}');
    Ok(())
}

fn value(out: &mut Writer, message: Bytes, levels: u32) -> Result<(), Unreadable> {
    out.check()?;
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    match Value::decode(message)?.kind {
        None | Some(ValueKind::Null(_)) => out.push("null"),
        Some(ValueKind::Bool(flag)) => out.push(if flag { "true" } else { "false" }),
        // Whole numbers as such: the two are one in Protobuf.
        Some(ValueKind::Number(n)) if n.fract() == 0.0 && n.abs() < 1e15 => {
            out.push(&(n as i64).to_string());
        }
        Some(ValueKind::Number(n)) => out.push(&serde_json::Value::from(n).to_string()),
        Some(ValueKind::Text(text)) => out.quoted(&text),
        Some(ValueKind::Struct(message)) => metadata(out, vec![message], levels)?,
        Some(ValueKind::List(message)) => {
            out.open('[');
            for item in List::decode(message)?.values {
                out.next();
                value(out, item, levels)?;
            }
            out.close(']');
        }
    }
    Ok(())
}
