//! Applies patches to a route configuration.

use super::Patch;
use crate::cli::check::envoy::Findings;
use crate::cli::check::envoy::nodes::{get, is_field, list, text};
use weir_rules::Position;
use weir_rules::tree::{Content, Node, Style};

/// The effort of a patch on a route: see [`Findings::spend`].
const PATCH_EFFORT: usize = 64;

/// Returns a route configuration with these patches; none if that takes too long. Names that are empty are
/// those of a host or a route that stands for one that is not in the files.
pub(super) fn apply<'a>(
    base: &Node<'a>,
    patches: &[&Patch<'_, 'a>],
    findings: &mut Findings,
) -> Option<Node<'a>> {
    let config = text(base, "name");
    let patches: Vec<_> = patches
        .iter()
        .filter(|it| config.is_empty() || it.config.is_empty() || it.config == config)
        .copied()
        .collect();
    let merged = merge_all(base, of(&patches, "ROUTE_CONFIGURATION"), findings)?;
    let mut hosts = Vec::new();
    let added = of(&patches, "VIRTUAL_HOST").filter(|patch| patch.adds()).map(|it| &it.value);
    for host in list(&merged, "virtual_hosts").iter().chain(added) {
        let name = text(host, "name");
        let patches: Vec<_> =
            patches.iter().filter(|it| it.host.is_empty() || it.host == name).copied().collect();
        let host = merge_all(host, of(&patches, "VIRTUAL_HOST"), findings)?;
        let added = of(&patches, "HTTP_ROUTE").filter(|patch| patch.adds()).map(|it| &it.value);
        let mut routes = Vec::new();
        for route in list(&host, "routes").iter().chain(added) {
            let name = text(route, "name");
            let patches =
                of(&patches, "HTTP_ROUTE").filter(|it| it.route.is_empty() || it.route == name);
            routes.push(merge_all(route, patches, findings)?);
        }
        hosts.push(with(&host, "routes", routes));
    }
    Some(with(&merged, "virtual_hosts", hosts))
}

fn of<'p, 'n, 'a>(
    patches: &'p [&'p Patch<'n, 'a>],
    apply_to: &'p str,
) -> impl Iterator<Item = &'p Patch<'n, 'a>> {
    patches.iter().copied().filter(move |patch| patch.apply_to == apply_to)
}

/// Merges those patches that are no additions.
fn merge_all<'p, 'n: 'p, 'a: 'p>(
    base: &Node<'a>,
    patches: impl Iterator<Item = &'p Patch<'n, 'a>>,
    findings: &mut Findings,
) -> Option<Node<'a>> {
    let mut merged = base.clone();
    for patch in patches {
        let size = merged.size() as usize + patch.value.size() as usize;
        if !findings.spend(patch.position, PATCH_EFFORT.saturating_add(size)) {
            return None;
        }
        if !patch.adds() {
            merged = merge(&merged, &patch.value);
        }
    }
    Some(merged)
}

/// Merges messages as Istio does: lists are joined, messages merged, and what has a type of its own (`@type`) is
/// replaced.
fn merge<'a>(base: &Node<'a>, patch: &Node<'a>) -> Node<'a> {
    match (base.content(), patch.content()) {
        (Content::Map(_), Content::Map(_)) if get(patch, "@type").is_some() => patch.clone(),
        (Content::Map(fields), Content::Map(patches)) => {
            let mut fields = fields.to_vec();
            for (name, value) in patches {
                let is_same = |other: &Node<'_>| match (name.text(), other.text()) {
                    (Some(a), Some(b)) => is_field(a, b) || is_field(b, a),
                    _ => false,
                };
                match fields.iter_mut().find(|(other, _)| is_same(other)) {
                    Some((_, field)) => *field = merge(field, value),
                    None => fields.push((name.clone(), value.clone())),
                }
            }
            Node::map(patch.position, fields)
        }
        (Content::List(items), Content::List(patches)) => {
            Node::list(patch.position, items.iter().chain(patches).cloned().collect())
        }
        _ => patch.clone(),
    }
}

/// Returns a message with another list in this field.
fn with<'a>(base: &Node<'a>, field: &'static str, items: Vec<Node<'a>>) -> Node<'a> {
    let fields = match base.content() {
        Content::Map(fields) => fields.to_vec(),
        _ => Vec::new(),
    };
    let is_other =
        |(name, _): &(Node<'a>, Node<'a>)| !name.text().is_some_and(|name| is_field(name, field));
    let fields = fields.into_iter().filter(is_other);
    map(base.position, fields.chain([(word(field), Node::list(base.position, items))]).collect())
}

/// A message that is in no file: its position is that of what it stands for.
pub(super) fn map<'a>(position: Position, fields: Vec<(Node<'a>, Node<'a>)>) -> Node<'a> {
    let fields = fields.into_iter().map(|(name, value)| (name.moved(position), value));
    Node::map(position, fields.collect())
}

pub(super) fn word(text: &str) -> Node<'static> {
    Node::scalar(Position::in_text(1, 1), text.to_owned(), Style::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::yaml;

    #[test]
    fn messages_are_merged_as_istio_does() {
        let read = |text: &'static str| yaml::parse(text).unwrap().unwrap();
        let base = read(
            "{rateLimits: [1], route: {cluster: a}, typedPerFilterConfig: {f: {'@type': x, a: 1}}}",
        );
        let patch = read(
            "{rate_limits: [2], route: {timeout: 1s}, typed_per_filter_config: {f: {'@type': y}}}",
        );
        let merged = merge(&base, &patch);
        let items: Vec<_> = list(&merged, "rate_limits").iter().map(Node::text).collect();
        assert_eq!(items, [Some("1"), Some("2")]);
        let route = get(&merged, "route").unwrap();
        assert_eq!((text(route, "cluster"), text(route, "timeout")), ("a", "1s"));
        let filter = get(get(&merged, "typed_per_filter_config").unwrap(), "f").unwrap();
        assert_eq!((text(filter, "@type"), text(filter, "a")), ("y", ""));
    }
}
