//! YAML as a tree that keeps where each thing stands and whether it was quoted.
//!
//! Only the first document of a file is read. A node takes 40 bytes, and may be one byte of the
//! file: so the tree is what bounds the memory that a file can make the process take.

mod scalar;

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, Span};

pub use scalar::Value;
use scalar::{Style, resolve};

/// How deep lists and maps may nest once aliases are followed: far beyond any rule file, far below
/// any stack's end.
const MAX_DEPTH: usize = 512;

/// How many nodes all aliases of a file together may stand for, so that a few lines of aliases to
/// aliases cannot stand for billions. The reference's parser draws the line there too.
const MAX_ALIASED: u32 = 400_000;

/// Bytes of text that count as one more node where an alias repeats them.
const ALIASED_BYTES: usize = 64;

/// How many nodes a file may have.
const MAX_NODES: u32 = 1 << 24;

/// Where something stands: line and column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    /// No text has more lines.
    pub const MAX: Place = Place { line: u32::MAX, column: u32::MAX };
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    pub place: Place,
    content: Content<'a>,
    /// Nodes in it, itself included, aliases followed; long texts count more than once.
    size: u32,
    /// Levels of lists and maps in it, itself included, aliases followed.
    depth: u16,
    /// Of a scalar.
    style: Style,
}

#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// As it was written, or decoded where it was encoded.
    Scalar(Cow<'a, str>),
    List(Box<[Node<'a>]>),
    Map(Box<[(Node<'a>, Node<'a>)]>),
}

#[derive(Clone, Debug)]
enum Content<'a> {
    Own(Kind<'a>),
    /// Has an anchor, which aliases may refer to, or is such an alias.
    Shared(Rc<Kind<'a>>),
}

/// Why a file is no YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub place: Place,
    pub message: String,
}

/// Reads the first document; none where there is none.
pub fn parse(text: &str) -> Result<Option<Node<'_>>, Broken> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.block_nesting_limit = MAX_DEPTH;
    options.flow_nesting_limit = MAX_DEPTH;
    let mut tree = Tree::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| Broken {
            place: Place {
                line: error.marker().line() as u32,
                column: error.marker().col() as u32 + 1,
            },
            message: error.info(),
        })?;
        if let Event::DocumentEnd = event {
            break;
        }
        tree.add(event, &span)?;
    }
    Ok(tree.root)
}

impl<'a> Node<'a> {
    pub fn kind(&self) -> &Kind<'a> {
        match &self.content {
            Content::Own(kind) => kind,
            Content::Shared(kind) => kind,
        }
    }

    /// What a scalar is; none for a list or a map.
    pub fn value(&self) -> Option<Value<'_>> {
        self.text().map(|text| self.style.value(text))
    }

    /// A scalar's text.
    pub fn text(&self) -> Option<&str> {
        match self.kind() {
            Kind::Scalar(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_list(&self) -> bool {
        matches!(self.kind(), Kind::List(_))
    }

    /// Whether this is the key that merges another map.
    pub fn is_merge_key(&self) -> bool {
        self.style == Style::Plain && self.text() == Some("<<")
    }

    fn new(place: Place, kind: Kind<'a>, style: Style) -> Node<'a> {
        let (size, depth) = match &kind {
            Kind::Scalar(text) => {
                (u32::try_from(1 + text.len() / ALIASED_BYTES).unwrap_or(u32::MAX), 0)
            }
            Kind::List(items) => extent(items.iter()),
            Kind::Map(items) => extent(items.iter().flat_map(|(key, value)| [key, value])),
        };
        Node { place, content: Content::Own(kind), size, depth, style }
    }

    /// Makes the node one that can be cloned for nothing.
    fn share(self) -> Node<'a> {
        let content = match self.content {
            Content::Own(kind) => Content::Shared(Rc::new(kind)),
            shared => shared,
        };
        Node { content, ..self }
    }
}

/// Size and depth of what has these nodes in it.
fn extent<'n>(nodes: impl Iterator<Item = &'n Node<'n>>) -> (u32, u16) {
    nodes.fold((1, 1), |(size, depth), node| {
        (size.saturating_add(node.size), depth.max(node.depth.saturating_add(1)))
    })
}

/// A list or map whose end has not come yet.
enum Open<'a> {
    List(Place, usize, Vec<Node<'a>>),
    Map(Place, usize, Vec<(Node<'a>, Node<'a>)>, Option<Node<'a>>),
}

impl<'a> Open<'a> {
    /// The node that is whole now, and its anchor.
    fn close(self) -> (Node<'a>, usize) {
        match self {
            Open::List(place, anchor, items) => {
                (Node::new(place, Kind::List(items.into()), Style::Plain), anchor)
            }
            Open::Map(place, anchor, items, _) => {
                (Node::new(place, Kind::Map(items.into()), Style::Plain), anchor)
            }
        }
    }
}

#[derive(Default)]
struct Tree<'a> {
    open: Vec<Open<'a>>,
    anchors: HashMap<usize, Node<'a>>,
    root: Option<Node<'a>>,
    /// Nodes so far, and those that aliases so far stand for.
    nodes: u32,
    aliased: u32,
}

impl<'a> Tree<'a> {
    fn add(&mut self, event: Event<'a>, span: &Span) -> Result<(), Broken> {
        let place = Place { line: span.start.line() as u32, column: span.start.col() as u32 + 1 };
        let broken = |message: &str| Broken { place, message: message.to_owned() };
        let (mut node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let (text, style) = resolve(text, style, tag.as_deref())
                    .map_err(|message| Broken { place, message })?;
                (Node::new(place, Kind::Scalar(text), style), anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Open::List(place, anchor, Vec::new()));
                return Ok(());
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(Open::Map(place, anchor, Vec::new(), None));
                return Ok(());
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => open.close(),
                None => return Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    self.aliased = self.aliased.saturating_add(node.size);
                    if self.aliased > MAX_ALIASED {
                        return Err(broken("its aliases come to too many nodes"));
                    }
                    (Node { place, ..node.clone() }, 0)
                }
                None => return Err(broken("an alias cannot stand inside what it stands for")),
            },
            _ => return Ok(()),
        };
        if self.open.len() + usize::from(node.depth) > MAX_DEPTH {
            return Err(broken("nested too deep"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(broken("it has too many nodes"));
        }
        if anchor != 0 {
            node = node.share();
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, _, items)) => items.push(node),
            Some(Open::Map(_, _, items, key)) => match key.take() {
                None => *key = Some(node),
                Some(key) => items.push((key, node)),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
