//! Trees of YAML.

use super::super::tree::Content;
use super::super::yaml::*;

/// Returns the value of a scalar, or the message of its error.
pub(crate) fn value(text: &str) -> String {
    match parse(text) {
        Ok(node) => format!("{:?}", node.unwrap().value().unwrap()),
        Err(error) => error.message,
    }
}

#[test]
fn only_the_first_document_is_read() {
    let node = parse("---\na: 1\n---\nb: [").unwrap().unwrap();
    let Content::Map(items) = node.content() else { panic!() };
    assert_eq!(items.len(), 1);
    assert!(parse("").unwrap().is_none());
    assert!(parse("# nothing\n").unwrap().is_none());
}

#[test]
fn positions_are_lines_and_columns_from_one() {
    let node = parse("a:\n  - b: c\n").unwrap().unwrap();
    let Content::Map(items) = node.content() else { panic!() };
    let Content::List(list) = items[0].1.content() else { panic!() };
    let Content::Map(inner) = list[0].content() else { panic!() };
    assert_eq!(inner[0].1.position, Position::in_text(2, 8));
}

#[test]
fn depth_and_aliases_are_limited() {
    let deep = "[".repeat(100_000);
    assert!(parse(&deep).is_err());
    let deep: String = (0..2_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(parse(&deep).is_err());
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for i in 1..40 {
        let last = i - 1;
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{last}"); 9].join(","));
    }
    assert_eq!(parse(&bomb).unwrap_err().message, "document contains excessive aliasing");
    assert!(parse("a: &a [*a]\n").is_err());
    // Each line a little deeper than the one before it, by an alias to it.
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for i in 1..100 {
        let last = i - 1;
        chain += &format!("a{i}: &a{i} {}*a{last}{}\n", "[".repeat(400), "]".repeat(400));
    }
    assert_eq!(parse(&chain).unwrap_err().message, "nested too deep");
}

#[test]
fn aliases_of_long_texts_are_limited_like_aliases_of_many_nodes() {
    let file = |length, aliases| {
        format!("a: &a {}\nb: [{}]\n", "x".repeat(length), vec!["*a"; aliases].join(","))
    };
    let error = |text: &str| parse(text).err().map(|error| error.message);
    assert_eq!(error(&file(63, 100_000)), None);
    assert_eq!(error(&file(64_000, 399)), None);
    let many = Some("document contains excessive aliasing".to_owned());
    assert_eq!(error(&file(64_000, 400)), many);
}
