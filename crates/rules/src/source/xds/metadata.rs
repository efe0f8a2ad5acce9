//! Builds the nodes of metadata, a `google.protobuf.Struct`.

use bytes::Bytes;
use prost::Message;

use super::message::{List, MetadataField, Struct, Value, ValueKind};
use super::{Builder, Map, Unreadable};
use crate::syntax::tree::{Node, Style};

/// The map of the last key or item. It may be sent in several messages. Its keys are sorted: encoders
/// write maps in any order, and the same rules must give the same tree.
pub(crate) fn map(
    builder: &mut Builder,
    messages: Vec<Bytes>,
    levels: u32,
) -> Result<Node<'static>, Unreadable> {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    let position = builder.position();
    let mut fields = Vec::new();
    for message in messages {
        for field in Struct::decode(message)?.fields {
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
fn value(builder: &mut Builder, message: Bytes, levels: u32) -> Result<Node<'static>, Unreadable> {
    let levels = levels.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    Ok(match Value::decode(message)?.kind {
        None | Some(ValueKind::Null(_)) => builder.scalar("null", Style::Plain),
        Some(ValueKind::Bool(flag)) => {
            builder.scalar(if flag { "true" } else { "false" }, Style::Plain)
        }
        // Protobuf has one type for whole numbers and fractions.
        Some(ValueKind::Number(n)) if n.fract() == 0.0 && n.abs() < 1e15 => {
            builder.scalar((n as i64).to_string(), Style::Plain)
        }
        Some(ValueKind::Number(n)) => {
            builder.scalar(serde_json::Value::from(n).to_string(), Style::Plain)
        }
        Some(ValueKind::Text(text)) => builder.scalar(text, Style::Text),
        Some(ValueKind::Struct(message)) => map(builder, vec![message], levels)?,
        Some(ValueKind::List(message)) => {
            let messages = List::decode(message)?.values;
            builder.list(messages, |builder, message| value(builder, message, levels))?
        }
    })
}
