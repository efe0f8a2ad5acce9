//! YAML as a tree that keeps where each thing stands and whether it was quoted.
//!
//! Only the first document of a file is read. The tree is compact, 40 bytes a node, as a node may
//! be two bytes of the file: it bounds what a file can make the process allocate.

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

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    pub place: Place,
    pub kind: Kind<'a>,
    /// Nodes in it, itself included, aliases followed; long texts count more than once.
    size: u32,
    /// Levels of lists and maps in it, itself included, aliases followed.
    depth: u16,
    /// Of a scalar.
    style: Style,
}

#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// As it was written.
    Scalar(Cow<'a, str>),
    List(Rc<[Node<'a>]>),
    Map(Rc<[(Node<'a>, Node<'a>)]>),
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
    /// What a scalar is; none for a list or a map.
    pub fn value(&self) -> Option<Value<'_>> {
        self.text().map(|text| self.style.value(text))
    }

    /// A scalar's text as it was written, and decoded where it was encoded.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is the key that merges another map.
    pub fn is_merge_key(&self) -> bool {
        self.style == Style::Plain && self.text() == Some("<<")
    }

    fn scalar(place: Place, text: Cow<'a, str>, style: Style) -> Node<'a> {
        let size = u32::try_from(1 + text.len() / ALIASED_BYTES).unwrap_or(u32::MAX);
        Node { place, kind: Kind::Scalar(text), size, depth: 0, style }
    }

    fn list(place: Place, items: Vec<Node<'a>>) -> Node<'a> {
        let (size, depth) = extent(items.iter());
        Node { place, kind: Kind::List(items.into()), size, depth, style: Style::Plain }
    }

    fn map(place: Place, items: Vec<(Node<'a>, Node<'a>)>) -> Node<'a> {
        let (size, depth) = extent(items.iter().flat_map(|(key, value)| [key, value]));
        Node { place, kind: Kind::Map(items.into()), size, depth, style: Style::Plain }
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
            Open::List(place, anchor, items) => (Node::list(place, items), anchor),
            Open::Map(place, anchor, items, _) => (Node::map(place, items), anchor),
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
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let (text, style) = resolve(text, style, tag.as_deref())
                    .map_err(|message| Broken { place, message })?;
                (Node::scalar(place, text, style), anchor)
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
