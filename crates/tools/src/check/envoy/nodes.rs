//! Looks up fields of Envoy's protobuf messages in parsed YAML or JSON, for `weir check --envoy`.

use weir_rules::tree::{Content, Node, Value};

/// The field with a name in snake_case, also if the file has it in lowerCamelCase.
pub(super) fn get<'n, 'a>(map: &'n Node<'a>, field: &str) -> Option<&'n Node<'a>> {
    let Content::Map(entries) = map.content() else { return None };
    let is_wanted = |name: &str| is_field(name, field);
    entries.iter().find(|(name, _)| name.text().is_some_and(is_wanted)).map(|(_, value)| value)
}

/// Follows the names of fields from map to map.
pub(super) fn path<'n, 'a>(map: &'n Node<'a>, fields: &[&str]) -> Option<&'n Node<'a>> {
    fields.iter().try_fold(map, |map, field| get(map, field))
}

/// The text of a field; empty if it is absent.
pub(super) fn text<'n>(map: &'n Node<'_>, field: &str) -> &'n str {
    get(map, field).and_then(Node::text).unwrap_or_default()
}

pub(super) fn is_true(map: &Node<'_>, field: &str) -> bool {
    get(map, field).and_then(Node::value) == Some(Value::Bool(true))
}

/// The items of a list; none if the field is absent.
pub(super) fn list<'n, 'a>(map: &'n Node<'a>, field: &str) -> &'n [Node<'a>] {
    match get(map, field).map(Node::content) {
        Some(Content::List(items)) => items,
        _ => &[],
    }
}

/// Whether a map is a message of a type: the end of its `@type`.
pub(super) fn has_type(map: &Node<'_>, name: &str) -> bool {
    text(map, "@type").strip_suffix(name).is_some_and(|rest| rest.ends_with(['.', '/']))
}

/// Where a node is in its file.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    /// The dump of a proxy that the place is in, as `/config_dump` has it; 0 outside of dumps. One file may have several.
    pub dump: usize,
    /// Whether the place is in the bootstrap of a dump that has the listeners again.
    pub is_copy: bool,
}

/// Calls `visit` for a node and all in it, except what a proxy does not use any more.
pub(super) fn walk<'n, 'a>(node: &'n Node<'a>, visit: &mut impl FnMut(&'n Node<'a>, Place)) {
    walk_in(node, Place::default(), visit);
}

fn walk_in<'n, 'a>(
    node: &'n Node<'a>,
    mut place: Place,
    visit: &mut impl FnMut(&'n Node<'a>, Place),
) {
    let configs = list(node, "configs");
    let has_listeners =
        configs.iter().any(|config| has_type(config, "admin.v3.ListenersConfigDump"));
    if !configs.is_empty() {
        place.dump = std::ptr::from_ref(node) as usize;
    }
    visit(node, place);
    match node.content() {
        Content::Scalar(_) => {}
        Content::List(items) => items.iter().for_each(|item| walk_in(item, place, visit)),
        Content::Map(_) if has_listeners => {
            for config in configs {
                let is_copy = has_type(config, "admin.v3.BootstrapConfigDump");
                walk_in(config, Place { is_copy, ..place }, visit);
            }
        }
        Content::Map(entries) => {
            for (name, value) in entries {
                let has_name = |field| name.text().is_some_and(|name| is_field(name, field));
                if !has_name("draining_state") && !has_name("error_state") {
                    walk_in(value, place, visit);
                }
            }
        }
    }
}

fn is_field(name: &str, field: &str) -> bool {
    name == field || is_camel_case_of(name, field)
}

fn is_camel_case_of(name: &str, field: &str) -> bool {
    let snake_case = name.chars().flat_map(|c| {
        c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()])
    });
    !name.contains('_') && snake_case.eq(field.chars())
}

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
            let name =
                entries.iter().map(|(name, _)| name).find(|name| name.text() == Some("@type"));
            message.extend(name.cloned().zip(get(node, "type_url").cloned()));
            Node::map(node.position, message)
        }
        Content::Map(entries) => Node::map(node.position, fields(entries)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_in_either_case() {
        assert!(is_camel_case_of("httpFilters", "http_filters"));
        assert!(is_camel_case_of("stage", "stage"));
        for name in ["httpfilters", "http_filters", "httpFilter", "httpFilterss", "HttpFilters"] {
            assert!(!is_camel_case_of(name, "http_filters"), "{name}");
        }
    }

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
