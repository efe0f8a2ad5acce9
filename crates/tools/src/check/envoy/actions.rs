//! `weir check --envoy`: computes the descriptors that Envoy can send for an item of `rate_limits` and its actions.

use super::nodes::{get, has_type, is_true, list, text};
use weir_common::suggest::nearest;
use weir_rules::tree::{Content, Node};

/// The values that an entry of a descriptor can have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Values {
    Any,
    /// Any path with its query string, from the header `:path`.
    Path,
    OneOf(Vec<String>),
}

pub(super) type SentEntry = (String, Values);

/// The most descriptors that are tried for one item. It has several because Envoy omits entries of absent headers.
const MAX_VARIANTS: usize = 64;

/// Returns the most values that the descriptors of an item have together. `clusters` are those of the route.
pub(super) fn size(item: &Node<'_>, clusters: &Values) -> usize {
    let actions = list(item, "actions").len();
    let variants = if actions < 6 { 1 << actions } else { MAX_VARIANTS };
    let values = if let Values::OneOf(clusters) = clusters { 1 + clusters.len() } else { 1 };
    1 + actions.saturating_mul(variants).saturating_mul(values)
}

/// Returns the descriptors that an item of `rate_limits` may send, or its first action that is not known.
/// `clusters` are those of the route.
pub(super) fn descriptors<'n, 'a>(
    item: &'n Node<'a>,
    clusters: &Values,
) -> Result<Vec<Vec<SentEntry>>, &'n Node<'a>> {
    let mut variants = vec![Vec::new()];
    for action in list(item, "actions") {
        let (entry, may_be_absent) = entry(action, clusters).ok_or(action)?;
        let shorter = match may_be_absent && variants.len() < MAX_VARIANTS {
            true => variants.clone(),
            false => Vec::new(),
        };
        variants.iter_mut().for_each(|variant| variant.push(entry.clone()));
        variants.extend(shorter);
    }
    variants.retain(|variant| !variant.is_empty());
    Ok(variants)
}

/// The header with the path and the query string.
const PATH: &str = ":path";

/// Returns the matcher of an item that compares the path with its query string, which a client can add to.
pub(super) fn exact_path<'n, 'a>(item: &'n Node<'a>) -> Option<&'n Node<'a>> {
    let headers = list(item, "actions")
        .iter()
        .filter_map(|action| get(action, "header_value_match"))
        .flat_map(|action| list(action, "headers"));
    let is_exact = |header: &&Node<'_>| {
        let matcher = get(header, "string_match");
        get(header, "exact_match").or_else(|| get(matcher?, "exact")).is_some()
    };
    headers.filter(|header| text(header, "name") == PATH).find(is_exact)
}

const ACTIONS: &str = "\
    source_cluster destination_cluster request_headers query_parameters remote_address generic_key \
    header_value_match query_parameter_value_match dynamic_metadata metadata extension masked_remote_address \
    remote_address_match";

/// Returns why it is not known what an action sends, its name, and what to write instead.
pub(super) fn unknown<'n>(action: &'n Node<'_>) -> (String, &'n str, String) {
    let name = match action.content() {
        Content::Map(entries) => entries.first().and_then(|(name, _)| name.text()),
        Content::Scalar(text) => Some(&**text),
        Content::List(_) => None,
    };
    let name = name.unwrap_or_default();
    let (why, help) = match nearest(name, ACTIONS.split(' ')) {
        _ if name.is_empty() => ("empty action".to_owned(), None),
        Some(near) if near == name => {
            let help = "Envoy needs `typed_config` in it".to_owned();
            (format!("incomplete action '{name}'"), Some(help))
        }
        near => {
            (format!("unknown action '{name}'"), near.map(|near| format!("did you mean `{near}`?")))
        }
    };
    let all = || format!("the actions of Envoy 1.40 are {}", ACTIONS.replace(' ', ", "));
    (why, name, help.unwrap_or_else(all))
}

/// The entry of an action of the Thrift filter; none if the filter does not know it. Keys of constants are fixed there,
/// and so are their values.
pub(super) fn thrift_entry(action: &Node<'_>, clusters: &Values) -> Option<SentEntry> {
    for (name, key) in [("generic_key", "generic_key"), ("header_value_match", "header_match")] {
        if let Some(action) = get(action, name) {
            let value = text(action, "descriptor_value").to_owned();
            return Some((key.to_owned(), Values::OneOf(vec![value])));
        }
    }
    let known = ["source_cluster", "destination_cluster", "request_headers", "remote_address"];
    known.iter().find_map(|name| get(action, name))?;
    entry(action, clusters).map(|(entry, _)| entry)
}

/// The entry of an action, and whether it is omitted where its source is absent. If not, the whole descriptor is.
fn entry(action: &Node<'_>, clusters: &Values) -> Option<(SentEntry, bool)> {
    let any = |key: &str| ((key.to_owned(), Values::Any), false);
    for name in ["remote_address", "masked_remote_address", "source_cluster"] {
        if get(action, name).is_some() {
            return Some(any(name));
        }
    }
    if get(action, "destination_cluster").is_some() {
        return Some((("destination_cluster".to_owned(), clusters.clone()), false));
    }
    for (name, default) in [
        ("request_headers", ""),
        ("query_parameters", "query_param"),
        ("metadata", ""),
        ("dynamic_metadata", ""),
    ] {
        if let Some(action) = get(action, name) {
            let is_path = name == "request_headers" && text(action, "header_name") == PATH;
            let values = if is_path { Values::Path } else { Values::Any };
            return Some(((key(action, default), values), is_true(action, "skip_if_absent")));
        }
    }
    for (name, default) in [
        ("generic_key", "generic_key"),
        ("header_value_match", "header_match"),
        ("query_parameter_value_match", "query_match"),
        ("remote_address_match", "remote_address_match"),
    ] {
        if let Some(action) = get(action, name) {
            return Some(((key(action, default), fixed(text(action, "descriptor_value"))), false));
        }
    }
    let extension = get(action, "extension")?;
    let config = get(extension, "typed_config")?;
    match has_type(config, "rate_limit_descriptors.expr.v3.Descriptor") {
        true => Some(((key(config, ""), Values::Any), is_true(config, "skip_if_error"))),
        false => Some(any(text(extension, "name"))),
    }
}

/// The entry of an action, with its value if it is written out; none for extensions and actions that are not known.
pub(super) fn written_entry(action: &Node<'_>) -> Option<(String, Option<String>)> {
    if get(action, "extension").is_some() {
        return None;
    }
    let ((key, values), _) = entry(action, &Values::Any)?;
    match values {
        Values::Any | Values::Path => Some((key, None)),
        Values::OneOf(values) => Some((key, values.into_iter().next())),
    }
}

fn key(action: &Node<'_>, default: &str) -> String {
    match text(action, "descriptor_key") {
        "" => default.to_owned(),
        key => key.to_owned(),
    }
}

/// A value that is written out; it may have operators of the access log.
pub(super) fn fixed(value: &str) -> Values {
    if value.contains('%') { Values::Any } else { Values::OneOf(vec![value.to_owned()]) }
}
