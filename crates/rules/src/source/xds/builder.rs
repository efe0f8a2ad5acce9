//! Builds the nodes of an xDS message's tree, and numbers its fields. Also the errors of messages that are unreadable.

use std::borrow::Cow;

use prost::DecodeError;

use crate::model::proto::FieldValue;
use crate::syntax::position::Position;
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Node, Style};

/// The maximum nesting of messages: the default of Protobuf's decoders.
pub(crate) const MAX_LEVELS: u32 = 100;

/// The maximum number of fields of a message, each of up to two nodes: a YAML file may have as many nodes.
const MAX_FIELDS: u32 = (1 << 23) - 1;

/// Why a message is not a rule file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// It cannot be decoded as the type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It has too many levels.
    #[error("messages are nested more than {MAX_LEVELS} levels deep")]
    TooDeep,
    /// It is too large.
    #[error("it has more than {MAX_FIELDS} fields")]
    TooManyFields,
}

impl Unreadable {
    /// Returns the problem of the resource of that name.
    pub fn problem(&self, resource: &str) -> Problem {
        let message = format!(
            "the resource cannot be read as ratelimit.config.ratelimit.v3.RateLimitConfig: {self}"
        );
        let help = "send the message as Protobuf encodes it, with at most 100 levels, or split it into \
                    several";
        Problem::of_file(resource, message, help)
    }
}

pub(crate) type Map = Vec<(Node<'static>, Node<'static>)>;

/// A node, or why its message is not a rule file.
pub(crate) type Built = Result<Node<'static>, Unreadable>;

#[derive(Debug, Default)]
pub(crate) struct Builder {
    fields: u32,
}

impl Builder {
    /// Returns the position of the last field, for its value.
    pub fn position(&self) -> Position {
        Position::Field(self.fields)
    }

    /// Counts an entry of a map or an item of a list.
    fn count(&mut self) -> Result<(), Unreadable> {
        self.fields += 1;
        if self.fields > MAX_FIELDS { Err(Unreadable::TooManyFields) } else { Ok(()) }
    }

    /// Counts an entry of a map and returns its key.
    pub fn key(&mut self, key: impl Into<Cow<'static, str>>) -> Built {
        self.count()?;
        Ok(self.scalar(key, Style::Text))
    }

    /// Returns a scalar at the position of the last field.
    pub fn scalar(&self, text: impl Into<Cow<'static, str>>, style: Style) -> Node<'static> {
        Node::scalar(self.position(), text.into(), style)
    }

    /// Returns a list at the position of the last field. `node` returns each item, at its own position.
    pub fn list<T>(
        &mut self,
        items: Vec<T>,
        mut node: impl FnMut(&mut Builder, T) -> Built,
    ) -> Built {
        let position = self.position();
        let mut nodes = Vec::with_capacity(items.len());
        for item in items {
            self.count()?;
            nodes.push(node(self, item)?);
        }
        Ok(Node::list(position, nodes))
    }

    /// Adds a list to a map, unless it is empty.
    pub fn add_list<T>(
        &mut self,
        map: &mut Map,
        key: &'static str,
        items: Vec<T>,
        node: impl FnMut(&mut Builder, T) -> Built,
    ) -> Result<(), Unreadable> {
        if !items.is_empty() {
            map.push((self.key(key)?, self.list(items, node)?));
        }
        Ok(())
    }

    /// Adds a field that is set to a map.
    pub fn add(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: impl Into<FieldValue>,
    ) -> Result<(), Unreadable> {
        if let FieldValue(Some((text, style))) = value.into() {
            map.push((self.key(key)?, self.scalar(text, style)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_limited_in_number() {
        let mut builder = Builder { fields: MAX_FIELDS - 1 };
        assert_eq!(builder.count(), Ok(()));
        assert_eq!(builder.position(), Position::Field(MAX_FIELDS));
        assert_eq!(builder.count(), Err(Unreadable::TooManyFields));
    }
}
