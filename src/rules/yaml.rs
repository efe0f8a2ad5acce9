//! YAML as a tree that keeps where each thing stands and whether it was quoted.
//!
//! Scalars mean what they mean to the reference's parser, which reads YAML 1.1: `yes` and `on` are
//! booleans, `010` is eight. Only the first document of a file is read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

/// How deep lists and maps may nest once aliases are followed: far beyond any rule file, far below
/// any stack's end.
const MAX_DEPTH: usize = 512;

/// How many nodes all aliases of a file together may stand for, so that a few lines of aliases to
/// aliases cannot stand for billions. The reference's parser draws the line there too.
const MAX_ALIASED: u32 = 400_000;

/// How many nodes a file may have.
const MAX_NODES: u32 = 20_000_000;

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
    /// Nodes in it, itself included, aliases followed.
    size: u32,
    /// Levels of lists and maps in it, itself included, aliases followed.
    depth: u16,
}

#[derive(Clone, Debug)]
pub enum Kind<'a> {
    Scalar(Scalar<'a>),
    List(Rc<[Node<'a>]>),
    Map(Rc<[(Node<'a>, Node<'a>)]>),
}

/// A scalar as it was written.
#[derive(Clone, Debug)]
pub struct Scalar<'a> {
    pub text: Rc<Cow<'a, str>>,
    /// Not quoted, and no block: what it is goes by what it looks like.
    pub plain: bool,
}

/// What a scalar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    /// A float or an integer beyond 64 bits: nothing that a rule file holds.
    Other,
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
                let size = 1 + items.iter().map(|item| item.size).sum::<u32>();
                let depth = 1 + items.iter().map(|item| item.depth).max().unwrap_or(0);
                (Node { place, kind: Kind::List(items.into()), size, depth }, anchor)
            }
            Open::Map(place, anchor, items, _) => {
                let nodes = || items.iter().flat_map(|(key, value)| [key, value]);
                let size = 1 + nodes().map(|node| node.size).sum::<u32>();
                let depth = 1 + nodes().map(|node| node.depth).max().unwrap_or(0);
                (Node { place, kind: Kind::Map(items.into()), size, depth }, anchor)
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
        let broken = |message: &str| Err(Broken { place, message: message.to_owned() });
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                // A tag says what the text is to be: !!int "5" is a number, !!str 5 is none.
                let plain = match tag {
                    None => style == ScalarStyle::Plain,
                    Some(tag) => {
                        matches!(tag.core_suffix(), Some("int" | "bool" | "float" | "null"))
                    }
                };
                let scalar = Scalar { text: Rc::new(text), plain };
                (Node { place, kind: Kind::Scalar(scalar), size: 1, depth: 0 }, anchor)
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
                        return broken("its aliases come to too many nodes");
                    }
                    (Node { place, ..node.clone() }, 0)
                }
                None => return broken("an alias cannot stand inside what it stands for"),
            },
            _ => return Ok(()),
        };
        if self.open.len() + usize::from(node.depth) > MAX_DEPTH {
            return broken("nested too deep");
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return broken("it has too many nodes");
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

impl<'a> Scalar<'a> {
    pub fn value(&self) -> Value<'_> {
        let text: &str = &self.text;
        if !self.plain {
            return Value::Text(text);
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Value::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => Value::Bool(false),
            _ if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
                Value::Text(text)
            }
            _ => number(text),
        }
    }
}

/// What begins like a number: an integer, something else that is no text, or text after all.
fn number(text: &str) -> Value<'_> {
    let digits = text.replace('_', "");
    let (negative, magnitude) = match digits.strip_prefix(['+', '-']) {
        Some(rest) => (digits.starts_with('-'), rest),
        None => (false, digits.as_str()),
    };
    let (radix, magnitude) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &magnitude[2..]),
        [b'0', b'b' | b'B', ..] => (2, &magnitude[2..]),
        [b'0', b'o' | b'O', ..] => (8, &magnitude[2..]),
        [b'0', _, ..] => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if !magnitude.is_empty() && magnitude.chars().all(|c| c.is_digit(radix)) {
        let signed = format!("{}{magnitude}", if negative { "-" } else { "" });
        return i64::from_str_radix(&signed, radix).map_or(Value::Other, Value::Int);
    }
    if is_float(&digits) { Value::Other } else { Value::Text(text) }
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
        || (unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.contains(|c: char| c.is_ascii_digit())
            && unsigned.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> String {
        let node = parse(text).unwrap().unwrap();
        let Kind::Scalar(scalar) = node.kind else { panic!("{text} is no scalar") };
        format!("{:?}", scalar.value())
    }

    #[test]
    fn scalars_mean_what_yaml_1_1_says() {
        for (text, wanted) in [
            ("5", "Int(5)"),
            ("0x10", "Int(16)"),
            ("0b11", "Int(3)"),
            ("010", "Int(8)"),
            ("0o10", "Int(8)"),
            ("1_000", "Int(1000)"),
            ("-7", "Int(-7)"),
            ("9223372036854775808", "Other"),
            ("1.5", "Other"),
            ("5.0", "Other"),
            ("1e3", "Other"),
            (".inf", "Other"),
            ("2001-12-14", "Text(\"2001-12-14\")"),
            ("yes", "Bool(true)"),
            ("Off", "Bool(false)"),
            ("~", "Null"),
            ("\"5\"", "Text(\"5\")"),
            ("'yes'", "Text(\"yes\")"),
            ("!!str 5", "Text(\"5\")"),
            ("!!int '5'", "Int(5)"),
            ("!!bool yes", "Bool(true)"),
            ("!own yes", "Text(\"yes\")"),
            ("10.0.0.1", "Text(\"10.0.0.1\")"),
            ("1-2-3", "Text(\"1-2-3\")"),
            ("08", "Other"),
            ("hello", "Text(\"hello\")"),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn only_the_first_document_is_read() {
        let node = parse("---\na: 1\n---\nb: [").unwrap().unwrap();
        let Kind::Map(items) = node.kind else { panic!() };
        assert_eq!(items.len(), 1);
        assert!(parse("").unwrap().is_none());
        assert!(parse("# nothing\n").unwrap().is_none());
    }

    #[test]
    fn places_are_lines_and_columns_from_one() {
        let node = parse("a:\n  - b: c\n").unwrap().unwrap();
        let Kind::Map(items) = &node.kind else { panic!() };
        let Kind::List(list) = &items[0].1.kind else { panic!() };
        let Kind::Map(inner) = &list[0].kind else { panic!() };
        assert_eq!(inner[0].1.place, Place { line: 2, column: 8 });
    }

    #[test]
    fn neither_depth_nor_aliases_can_exhaust_anything() {
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
        let deep: String = (0..2_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(parse(&deep).is_err());
        let mut bomb = "a0: &a0 [x]\n".to_owned();
        for i in 1..40 {
            let last = i - 1;
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{last}"); 9].join(","));
        }
        assert_eq!(parse(&bomb).unwrap_err().message, "its aliases come to too many nodes");
        assert!(parse("a: &a [*a]\n").is_err());
        // Each line a little deeper than the one before it, by an alias to it.
        let mut chain = "a0: &a0 [x]\n".to_owned();
        for i in 1..100 {
            let last = i - 1;
            chain += &format!("a{i}: &a{i} {}*a{last}{}\n", "[".repeat(400), "]".repeat(400));
        }
        assert_eq!(parse(&chain).unwrap_err().message, "nested too deep");
    }
}
