//! Parses YAML (rule files, settings, tests) into a tree of nodes with positions, and suggests fixes for syntax errors.

mod tags;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Span, StrInput};
use tags::resolve;

use super::position::Position;
use super::problem::{Problem, lines};
use super::tree::Node;
use weir_common::named_enum;

/// The maximum nesting of lists and maps, with aliases expanded: more than rule files need, and safe for the stack.
const MAX_DEPTH: usize = 512;

/// The maximum number of nodes that all aliases of a file expand to. A few lines of aliases to
/// aliases could expand to billions. The parser of envoyproxy/ratelimit has the same limit.
const MAX_ALIASED_NODES: u32 = 400_000;

const MAX_NODES: u32 = 1 << 24;

/// The error that stopped the parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The message of the parser.
    pub message: String,
    /// What it is about.
    pub cause: Cause,
}

named_enum! {
    /// What a syntax error is about, with its fix.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Cause, help {
        /// The value does not fit its tag. The message quotes the value.
        Tag = "write a value of the tag's type, or remove the tag",
        /// A tab indents a line.
        Tab = "indent with spaces, not with a tab",
        /// A colon is where no value may be.
        MappingValue = "indent as the siblings are, and quote a value with `: ` in it",
        /// A bracket or a brace is not closed.
        Bracket = "close it with a ] or }",
        /// A quote is not closed.
        Quote = "close the quote that is open above",
        /// The indentation fits no level.
        Indentation = "indent the line with as many spaces as its siblings",
        /// An alias is in its own anchor, or aliases expand to too many nodes.
        Alias = "replace the alias with the value of its anchor",
        /// Lists and maps are nested too deeply.
        Depth = "use fewer levels: rule files never need that many",
        /// There are too many nodes.
        Size = "split the file into several",
        /// Another error.
        Other = "fix the YAML here: put text with special characters in quotes",
    }
}

impl Cause {
    fn of(kind: &ErrorKind) -> Cause {
        use ErrorKind::*;
        match kind {
            TabNotAllowed
            | TabInBlockIndentation
            | TabInIndentation
            | TabAtBlockScalarStart
            | TabInPlainScalar => Cause::Tab,
            MappingValueNotAllowed => Cause::MappingValue,
            UnclosedFlowCollection { .. } => Cause::Bracket,
            UnclosedQuotedScalar | InvalidQuotedScalarIndent | DocumentIndicatorInQuotedScalar => {
                Cause::Quote
            }
            InvalidIndentation
            | InvalidFlowScalarIndent
            | InvalidBlockScalarIndent
            | ZeroBlockScalarIndent => Cause::Indentation,
            RecursionLimitExceeded => Cause::Depth,
            _ => Cause::Other,
        }
    }
}

/// Builds the tree of the first document; none for an empty text.
///
/// # Errors
/// The text is not YAML, or exceeds a limit.
pub fn parse(text: &str) -> Result<Option<Node<'_>>, SyntaxError> {
    Documents::new(text).next().unwrap_or(Ok(None))
}

/// The documents of a text, which `---` separates. An error ends them.
pub struct Documents<'a> {
    /// The parser; none after an error, and at the end.
    parser: Option<Parser<'a, StrInput<'a>>>,
}

impl<'a> Documents<'a> {
    /// Returns the documents of a text; nothing is read yet.
    pub fn new(text: &'a str) -> Documents<'a> {
        let mut options = Options::default();
        options.set_emit_comments(false);
        options.block_nesting_limit = MAX_DEPTH;
        options.flow_nesting_limit = MAX_DEPTH;
        Documents { parser: Some(Parser::new_from_str_with_options(text, options)) }
    }

    /// Returns the position of the next node or syntax error after the documents that were read. Empty ones have none.
    pub fn rest(mut self) -> Option<Position> {
        for event in self.parser.as_mut()? {
            match event {
                Ok((Event::Scalar(text, ScalarStyle::Plain, ..), _))
                    if matches!(&*text, "" | "~") => {}
                Ok((
                    Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..),
                    span,
                )) => return Some(position(span.start)),
                Ok(_) => {}
                Err(error) => return Some(position(*error.marker())),
            }
        }
        None
    }

    fn read(&mut self) -> Result<Option<Option<Node<'a>>>, SyntaxError> {
        let mut tree = TreeBuilder::default();
        for event in self.parser.iter_mut().flatten() {
            let (event, span) = event.map_err(|error| {
                let (line, column) = line_column(*error.marker());
                SyntaxError { line, column, message: error.info(), cause: Cause::of(error.kind()) }
            })?;
            match event {
                Event::DocumentEnd => return Ok(Some(tree.root)),
                Event::StreamEnd => return Ok(None),
                _ => tree.add(event, &span)?,
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<Option<Node<'a>>, SyntaxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let document = self.read().transpose();
        if !matches!(document, Some(Ok(_))) {
            self.parser = None;
        }
        document
    }
}

fn position(marker: Marker) -> Position {
    let (line, column) = line_column(marker);
    Position::in_text(line, column)
}

/// The line and column of a marker, counted from 1.
fn line_column(marker: Marker) -> (u32, u32) {
    (marker.line() as u32, marker.col() as u32 + 1)
}

/// A list or map that is not complete.
enum Open<'a> {
    List(Position, usize, Vec<Node<'a>>),
    Map(Position, usize, Vec<(Node<'a>, Node<'a>)>, Option<Node<'a>>),
}

impl<'a> Open<'a> {
    /// Returns the completed node and its anchor.
    fn close(self) -> (Node<'a>, usize) {
        match self {
            Open::List(position, anchor, items) => (Node::list(position, items), anchor),
            Open::Map(position, anchor, entries, _) => (Node::map(position, entries), anchor),
        }
    }
}

#[derive(Default)]
struct TreeBuilder<'a> {
    open: Vec<Open<'a>>,
    anchors: HashMap<usize, Node<'a>>,
    root: Option<Node<'a>>,
    nodes: u32,
    /// Nodes that aliases expand to.
    aliased: u32,
}

impl<'a> TreeBuilder<'a> {
    fn add(&mut self, event: Event<'a>, span: &Span) -> Result<(), SyntaxError> {
        let (line, column) = line_column(span.start);
        let position = Position::in_text(line, column);
        let error_here = |cause, message: &str| {
            let message = message.to_owned();
            SyntaxError { line, column, message, cause }
        };
        let (mut node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let (text, style) = resolve(text, style, tag.as_deref())
                    .map_err(|message| error_here(Cause::Tag, &message))?;
                (Node::scalar(position, text, style), anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Open::List(position, anchor, Vec::new()));
                return Ok(());
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(Open::Map(position, anchor, Vec::new(), None));
                return Ok(());
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => open.close(),
                None => return Ok(()),
            },
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    let message = "an alias inside the value of its own anchor";
                    return Err(error_here(Cause::Alias, message));
                };
                self.aliased = self.aliased.saturating_add(node.size);
                if self.aliased > MAX_ALIASED_NODES {
                    return Err(error_here(Cause::Alias, "document contains excessive aliasing"));
                }
                (node.alias(position), 0)
            }
            _ => return Ok(()),
        };
        if self.open.len() + usize::from(node.depth) > MAX_DEPTH {
            return Err(error_here(Cause::Depth, "nested too deep"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(error_here(Cause::Size, "it has too many nodes"));
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

/// Describes the error that stopped the parser. The text after it was not checked.
pub(crate) fn problem(file: &str, text: &str, error: SyntaxError) -> Problem {
    let SyntaxError { mut line, mut column, message, cause } = error;
    if cause == Cause::Tab {
        // The parser may stop before the line that the tab indents.
        (line, column) = indenting_tab(text, line).unwrap_or((line, column));
    }
    let message = format!("error loading config file: yaml: line {line}: {message}");
    let problem = Problem::of_file(file, message, cause.help());
    problem.at(Position::in_text(line, column)).about(word_at(text, line, column))
}

/// Finds the first tab that indents this line or one of the next two; returns its line and column.
fn indenting_tab(text: &str, line: u32) -> Option<(u32, u32)> {
    let skipped = line.saturating_sub(1) as usize;
    lines(text).enumerate().skip(skipped).take(3).find_map(|(i, line)| {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        Some((i as u32 + 1, indent.find('\t')? as u32 + 1))
    })
}

fn word_at(text: &str, line: u32, column: u32) -> String {
    let line = lines(text).nth(line.saturating_sub(1) as usize).unwrap_or("");
    let rest = line.chars().skip(column.saturating_sub(1) as usize);
    rest.take_while(|c| !c.is_whitespace()).take(80).collect()
}
