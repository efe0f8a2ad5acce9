//! The tree into which a YAML file or an xDS message is parsed. Each node has its position, for errors.
//!
//! A node takes 40 bytes and may be a single byte of a file, so the number of nodes bounds the memory for reading it.

mod scalar;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::position::Position;
pub use scalar::{Style, Value};

/// Bytes of text that count as one more node in the size of a scalar.
const TEXT_BYTES_PER_NODE: usize = 64;

/// A part of a document, with its position.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// The position of its start.
    pub position: Position,
    storage: Storage<'a>,
    /// The number of nodes in it, itself included, with aliases expanded. Long texts count more than once.
    pub size: u32,
    /// The levels of lists and maps in it, including itself and with aliases expanded.
    pub(super) depth: u16,
    style: Style,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Text as written, or decoded if it was encoded.
    Scalar(Cow<'a, str>),
    /// Items, in order.
    List(Box<[Node<'a>]>),
    /// Keys and values, in order; a key may be repeated.
    Map(Box<[(Node<'a>, Node<'a>)]>),
}

#[derive(Clone, Debug)]
enum Storage<'a> {
    Owned(Content<'a>),
    /// The content of a node with an anchor, which its aliases share.
    Shared(Rc<Content<'a>>),
}

impl<'a> Node<'a> {
    /// Returns a node of a text.
    pub fn scalar(position: Position, text: impl Into<Cow<'a, str>>, style: Style) -> Node<'a> {
        let text = text.into();
        let size = u32::try_from(1 + text.len() / TEXT_BYTES_PER_NODE).unwrap_or(u32::MAX);
        let storage = Storage::Owned(Content::Scalar(text));
        Node { position, storage, size, depth: 0, style }
    }

    /// Returns a node of a list.
    pub fn list(position: Position, items: Vec<Node<'a>>) -> Node<'a> {
        let (size, depth) = extent(items.iter());
        let storage = Storage::Owned(Content::List(items.into()));
        Node { position, storage, size, depth, style: Style::Plain }
    }

    /// Returns a node of a map.
    pub fn map(position: Position, entries: Vec<(Node<'a>, Node<'a>)>) -> Node<'a> {
        let (size, depth) = extent(entries.iter().flat_map(|(key, value)| [key, value]));
        let storage = Storage::Owned(Content::Map(entries.into()));
        Node { position, storage, size, depth, style: Style::Plain }
    }

    /// Returns the content, of an alias that of its anchor.
    pub fn content(&self) -> &Content<'a> {
        match &self.storage {
            Storage::Owned(content) => content,
            Storage::Shared(content) => content,
        }
    }

    /// The value of a scalar; none for a list or a map.
    pub fn value(&self) -> Option<Value<'_>> {
        self.text().map(|text| self.style.value(text))
    }

    /// Returns the text of a scalar; none for a list or a map.
    pub fn text(&self) -> Option<&str> {
        match self.content() {
            Content::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the node is a scalar without quotes or a tag.
    pub fn is_plain(&self) -> bool {
        self.style == Style::Plain && self.text().is_some()
    }

    /// Whether the node is null or empty.
    pub fn is_null(&self) -> bool {
        self.value() == Some(Value::Null)
    }

    /// The text in problems, truncated.
    pub fn shown(&self) -> String {
        match self.content() {
            Content::Scalar(text) => text.chars().take(80).collect(),
            Content::List(_) => "[…]".to_owned(),
            Content::Map(_) => "{…}".to_owned(),
        }
    }

    pub(crate) fn described(&self) -> String {
        match self.content() {
            Content::Scalar(_) => format!("`{}`", self.shown()),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
        }
    }

    /// Returns the first value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        let Content::Map(entries) = self.content() else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// Returns the items of a list; none for a scalar or a map.
    pub fn items(&self) -> Option<&[Node<'a>]> {
        if let Content::List(items) = self.content() { Some(items) } else { None }
    }

    /// Whether this is the key `<<`, which merges another map.
    pub(crate) fn is_merge_key(&self) -> bool {
        self.style == Style::Plain && self.text() == Some("<<")
    }

    /// A node with the same content at the position of an alias.
    pub(crate) fn alias(&self, position: Position) -> Node<'a> {
        Node { position, ..self.clone() }
    }

    /// Returns a copy that is at another position, with everything in it.
    pub fn moved(&self, position: Position) -> Node<'a> {
        self.copied(Some(position), |text| text.clone())
    }

    /// Returns a copy that does not borrow the text.
    pub(crate) fn detached(&self) -> Node<'static> {
        self.copied(None, |text| Cow::Owned(text.clone().into_owned()))
    }

    fn copied<'c>(
        &self,
        to: Option<Position>,
        copy: fn(&Cow<'a, str>) -> Cow<'c, str>,
    ) -> Node<'c> {
        let position = to.unwrap_or(self.position);
        let copied = |node: &Node<'a>| node.copied(to, copy);
        match self.content() {
            Content::Scalar(text) => Node::scalar(position, copy(text), self.style),
            Content::List(items) => Node::list(position, items.iter().map(copied).collect()),
            Content::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (copied(key), copied(value)));
                Node::map(position, entries.collect())
            }
        }
    }

    /// Makes the node cheap to clone.
    pub fn share(self) -> Node<'a> {
        let storage = match self.storage {
            Storage::Owned(content) => Storage::Shared(Rc::new(content)),
            shared => shared,
        };
        Node { storage, ..self }
    }
}

/// Compares the content, without positions.
impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.content(), other.content()) {
            (Content::Scalar(one), Content::Scalar(text)) => {
                self.style == other.style && one == text
            }
            (Content::List(one), Content::List(items)) => one == items,
            (Content::Map(one), Content::Map(entries)) => one == entries,
            _ => false,
        }
    }
}

/// Hashes the content, without positions.
impl Hash for Node<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.content() {
            Content::Scalar(text) => (0_u8, self.style, text).hash(state),
            Content::List(items) => (1_u8, items).hash(state),
            Content::Map(entries) => (2_u8, entries).hash(state),
        }
    }
}

/// Returns the size and depth of a list or map of these nodes.
fn extent<'n>(nodes: impl Iterator<Item = &'n Node<'n>>) -> (u32, u16) {
    nodes.fold((1, 1), |(size, depth), node| {
        (size.saturating_add(node.size), depth.max(node.depth.saturating_add(1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_small() {
        assert_eq!(size_of::<Node<'_>>(), 40);
    }
}
