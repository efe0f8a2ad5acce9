//! Makes the nodes of a message's tree, and numbers and counts its fields.

use std::borrow::Cow;

use super::Unreadable;
use crate::position::Position;
use crate::tree::{Node, Style};

/// The maximum number of fields of a message, each of up to two nodes: a YAML file may have as many
/// nodes.
pub(super) const MAX_FIELDS: u32 = (1 << 23) - 1;

/// The entries of a map.
pub(super) type Map = Vec<(Node<'static>, Node<'static>)>;

#[derive(Debug, Default)]
pub(super) struct Builder {
    fields: u32,
}

impl Builder {
    /// The position of the last field, for its value.
    pub fn position(&self) -> Position {
        Position::Field(self.fields)
    }

    /// Counts a list item and returns its position.
    ///
    /// # Errors
    ///
    /// The resource has too many nodes.
    pub fn item(&mut self) -> Result<Position, Unreadable> {
        self.fields += 1;
        if self.fields > MAX_FIELDS { Err(Unreadable::TooManyFields) } else { Ok(self.position()) }
    }

    /// Counts an entry of a map and returns its key.
    ///
    /// # Errors
    ///
    /// The resource has too many nodes.
    pub fn key(&mut self, key: impl Into<Cow<'static, str>>) -> Result<Node<'static>, Unreadable> {
        self.item()?;
        Ok(self.scalar(key, Style::Text))
    }

    /// A scalar at the position of the last field.
    pub fn scalar(&self, text: impl Into<Cow<'static, str>>, style: Style) -> Node<'static> {
        Node::scalar(self.position(), text.into(), style)
    }

    pub fn text(
        &mut self,
        map: &mut Map,
        key: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Result<(), Unreadable> {
        self.entry(map, key, text, Style::Text)
    }

    pub fn text_unless_empty(
        &mut self,
        map: &mut Map,
        key: &'static str,
        text: String,
    ) -> Result<(), Unreadable> {
        if text.is_empty() { Ok(()) } else { self.text(map, key, text) }
    }

    pub fn flag(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: bool,
    ) -> Result<(), Unreadable> {
        self.bool(map, key, value.then_some(true))
    }

    pub fn bool(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: Option<bool>,
    ) -> Result<(), Unreadable> {
        let Some(value) = value else { return Ok(()) };
        self.entry(map, key, if value { "true" } else { "false" }, Style::Plain)
    }

    pub fn number(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: Option<u32>,
    ) -> Result<(), Unreadable> {
        let Some(value) = value else { return Ok(()) };
        self.entry(map, key, value.to_string(), Style::Plain)
    }

    /// A duration in microseconds. A negative one is passed on, for the reader to reject.
    pub fn duration(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: Option<prost_types::Duration>,
    ) -> Result<(), Unreadable> {
        let Some(value) = value else { return Ok(()) };
        let (seconds, micros) = (value.seconds, value.nanos / 1_000);
        match micros {
            0 => self.text(map, key, format!("{seconds}s")),
            _ => self.text(map, key, format!("{seconds}s{micros}us")),
        }
    }

    fn entry(
        &mut self,
        map: &mut Map,
        key: &'static str,
        value: impl Into<Cow<'static, str>>,
        style: Style,
    ) -> Result<(), Unreadable> {
        map.push((self.key(key)?, self.scalar(value, style)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_limited_in_number() {
        let mut builder = Builder { fields: MAX_FIELDS - 1 };
        assert_eq!(builder.item(), Ok(Position::Field(MAX_FIELDS)));
        assert_eq!(builder.item(), Err(Unreadable::TooManyFields));
    }
}
