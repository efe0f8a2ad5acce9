//! Messages that are written as a struct, with their type beside it (`TypedStruct`).

use super::nodes::{get, text, walk};
use weir_rules::tree::{Content, Node};

/// Returns a document with each `TypedStruct` as the message that it stands for.
pub(super) fn unwrapped(root: Node<'_>) -> Node<'_> {
    let mut has_any = false;
    walk(&root, &mut |node, _| has_any |= is_typed_struct(node));
    if has_any { unwrap(&root) } else { root }
}

fn is_typed_struct(node: &Node<'_>) -> bool {
    let name = text(node, "@type").rsplit('/').next();
    matches!(name, Some("udpa.type.v1.TypedStruct" | "xds.type.v3.TypedStruct"))
}

fn unwrap<'a>(node: &Node<'a>) -> Node<'a> {
    let fields = |entries: &[(Node<'a>, Node<'a>)]| {
        entries.iter().map(|(name, value)| (name.clone(), unwrap(value))).collect::<Vec<_>>()
    };
    match node.content() {
        Content::Scalar(_) => node.clone(),
        Content::List(items) => Node::list(node.position, items.iter().map(unwrap).collect()),
        Content::Map(entries) if is_typed_struct(node) => {
            let mut message = match get(node, "value").map(Node::content) {
                Some(Content::Map(entries)) => fields(entries),
                _ => Vec::new(),
            };
            let name = entries.iter().map(|(name, _)| name).find(|it| it.text() == Some("@type"));
            message.extend(name.cloned().zip(get(node, "type_url").cloned()));
            Node::map(node.position, message)
        }
        Content::Map(entries) => Node::map(node.position, fields(entries)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::envoy::nodes::{has_type, list, path};
    use weir_rules::yaml;

    #[test]
    fn structs_are_messages_of_their_types() {
        for kind in ["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"] {
            let inner = format!("{{'@type': x/{kind}, typeUrl: x/b.v3.Inner, value: {{c: 2}}}}");
            let text_of = format!(
                "a:\n- typed_config: {{'@type': type.googleapis.com/{kind}, type_url: x/a.v3.Outer, value: \
                 {{b: 1, inner: {inner}}}}}\n- {{'@type': x/{kind}}}\n"
            );
            let root = unwrapped(yaml::parse(&text_of).unwrap().unwrap());
            let [first, second] = list(&root, "a") else { panic!() };
            let config = get(first, "typed_config").unwrap();
            assert!(has_type(config, "a.v3.Outer") && text(config, "b") == "1", "{config:?}");
            let inner = path(config, &["inner"]).unwrap();
            assert!(has_type(inner, "b.v3.Inner") && text(inner, "c") == "2", "{inner:?}");
            assert!(get(second, "@type").is_none(), "{second:?}");
        }
    }
}
