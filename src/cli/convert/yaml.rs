//! Writes the tree of rules as YAML.

use std::fmt::Write;

use weir_common::escape::Escaping;
use weir_rules::Position;
use weir_rules::tree::{Content, Node, Style, Value};

/// Returns the YAML of a map, in block style.
pub(super) fn write(node: &Node<'_>) -> String {
    let mut out = String::new();
    block(&mut out, node, 0);
    out
}

/// Returns a node on one line, in flow style.
pub(super) fn flow(node: &Node<'_>) -> String {
    let mut out = String::new();
    match node.content() {
        Content::Scalar(_) => scalar(&mut out, node),
        Content::List(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            out = format!("[{}]", items.join(", "));
        }
        Content::Map(entries) if entries.is_empty() => out.push_str("{}"),
        Content::Map(entries) => {
            let entries = entries.iter();
            let entries: Vec<String> =
                entries.map(|(key, value)| format!("{}: {}", flow(key), flow(value))).collect();
            out = format!("{{ {} }}", entries.join(", "));
        }
    }
    out
}

/// Returns the node of a JSON value.
pub(super) fn node(value: &serde_json::Value) -> Node<'static> {
    use serde_json::Value as Json;
    let at = Position::Field(0);
    let text = |text: &str| Node::scalar(at, text.to_owned(), Style::Text);
    match value {
        Json::String(value) => text(value),
        Json::Array(items) => Node::list(at, items.iter().map(node).collect()),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (text(name), node(value)));
            Node::map(at, fields.collect())
        }
        other => Node::scalar(at, other.to_string(), Style::Plain),
    }
}

/// Returns a copy that does not borrow a text.
pub(super) fn owned(node: &Node<'_>) -> Node<'static> {
    let at = Position::Field(0);
    match node.content() {
        Content::Scalar(text) => {
            let is_text = matches!(node.value(), Some(Value::Text(_)));
            let style = if is_text { Style::Text } else { Style::Plain };
            Node::scalar(at, text.clone().into_owned(), style)
        }
        Content::List(items) => Node::list(at, items.iter().map(owned).collect()),
        Content::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| (owned(key), owned(value)));
            Node::map(at, entries.collect())
        }
    }
}

/// Writes the lines of a list or map. The first is indented by the caller.
fn block(out: &mut String, node: &Node<'_>, indent: usize) {
    match node.content() {
        Content::Map(entries) => {
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 {
                    pad(out, indent);
                }
                scalar(out, key);
                out.push(':');
                nested(out, value, indent);
            }
        }
        Content::List(items) => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    pad(out, indent);
                }
                out.push('-');
                match is_inline(item) {
                    true => nested(out, item, indent),
                    false => {
                        out.push(' ');
                        block(out, item, indent + 2);
                    }
                }
            }
        }
        Content::Scalar(_) => nested(out, node, indent),
    }
}

/// Writes what follows a key or a dash, and the end of the line.
fn nested(out: &mut String, node: &Node<'_>, indent: usize) {
    match node.content() {
        Content::Scalar(_) => {
            out.push(' ');
            scalar(out, node);
            out.push('\n');
        }
        Content::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Content::List(items) if items.is_empty() => out.push_str(" []\n"),
        Content::Map(_) | Content::List(_) => {
            out.push('\n');
            pad(out, indent + 2);
            block(out, node, indent + 2);
        }
    }
}

fn is_inline(node: &Node<'_>) -> bool {
    match node.content() {
        Content::Scalar(_) => true,
        Content::Map(entries) => entries.is_empty(),
        Content::List(items) => items.is_empty(),
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Writes a scalar. Text is quoted unless it is a word that no version of YAML reads as something else.
fn scalar(out: &mut String, node: &Node<'_>) {
    let text = node.text().unwrap_or_default();
    let is_text = matches!(node.value(), Some(Value::Text(_)));
    if !is_text || is_word(text) {
        out.push_str(text);
        return;
    }
    // A string of JSON is one of YAML. Writing to a string cannot fail.
    let quoted = serde_json::Value::from(text).to_string();
    let _ = Escaping::new(out, r"\n").write_str(&quoted);
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
        && matches!(Style::Plain.value(text), Value::Text(_))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use weir_rules::yaml;

    const AT: Position = Position::Field(0);

    fn text(text: &str) -> Node<'static> {
        Node::scalar(AT, text.to_owned(), Style::Text)
    }

    /// Compares content; styles of text may differ.
    fn assert_same(a: &Node<'_>, b: &Node<'_>, written: &str) {
        match (a.content(), b.content()) {
            (Content::Scalar(_), Content::Scalar(_)) => {
                assert_eq!(a.value(), b.value(), "{written}");
            }
            (Content::List(a), Content::List(b)) => {
                assert_eq!(a.len(), b.len(), "{written}");
                a.iter().zip(b).for_each(|(a, b)| assert_same(a, b, written));
            }
            (Content::Map(a), Content::Map(b)) => {
                assert_eq!(a.len(), b.len(), "{written}");
                for (a, b) in a.iter().zip(b) {
                    assert_same(&a.0, &b.0, written);
                    assert_same(&a.1, &b.1, written);
                }
            }
            _ => panic!("{a:?} and {b:?}: {written}"),
        }
    }

    fn nodes() -> impl Strategy<Value = Node<'static>> {
        let leaf = prop_oneof![
            any::<String>().prop_map(|it| text(&it)),
            prop::sample::select(vec![
                "on", "010", "~", "a b", "- a", "a: b", "\u{feff}", "#", "é"
            ])
            .prop_map(text),
            any::<u32>().prop_map(|it| Node::scalar(AT, it.to_string(), Style::Plain)),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|it| Node::list(AT, it)),
                prop::collection::btree_map("[a-z]{1,3}", inner, 0..4).prop_map(|it| {
                    Node::map(AT, it.into_iter().map(|(key, it)| (text(&key), it)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(node in nodes()) {
            let node = Node::map(AT, vec![(text("a"), node)]);
            let written = write(&node);
            let read = yaml::parse(&written);
            let read = read.unwrap_or_else(|error| panic!("{error:?}: {written}")).unwrap();
            assert_same(&node, &read, &written);
            let written = flow(&node);
            let read = yaml::parse(&written);
            let read = read.unwrap_or_else(|error| panic!("{error:?}: {written}")).unwrap();
            assert_same(&node, &read, &written);
        }
    }

    #[test]
    fn words_are_not_quoted_and_all_else_is() {
        let list = ["a", "/a/b-c.d", "on", "10", "a*", ""].map(text);
        let node = Node::map(AT, vec![(text("k"), Node::list(AT, list.to_vec()))]);
        assert_eq!(
            write(&node),
            "k:\n  - a\n  - /a/b-c.d\n  - \"on\"\n  - \"10\"\n  - \"a*\"\n  - \"\"\n"
        );
    }
}
