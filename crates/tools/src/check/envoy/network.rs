//! `weir check --envoy`: finds the descriptors that Envoy's rate-limit filters for TCP and Thrift send.

use std::collections::HashSet;

use super::actions::{fixed, thrift_entry};
use super::charges::check_twice;
use super::filter::{Sent, stage};
use super::findings::Findings;
use super::nodes::{get, has_type, list, path, text};
use super::routes::clusters;
use weir_rules::tree::Node;

pub(super) const TCP_FILTER_TYPE: &str = "filters.network.ratelimit.v3.RateLimit";

pub(super) fn thrift_filters<'n, 'a>(
    proxy: &'n Node<'a>,
) -> impl Iterator<Item = &'n Node<'a>> + use<'n, 'a> {
    let configs = list(proxy, "thrift_filters").iter();
    let configs = configs.filter_map(|filter| get(filter, "typed_config"));
    configs.filter(|config| has_type(config, "thrift_proxy.filters.ratelimit.v3.RateLimit"))
}

/// Returns a descriptor that a filter sends for an item of its list, without the entries.
fn new(filter: &Node<'_>, item: &Node<'_>, findings: &Findings) -> Sent {
    let (has_limit, origin) = (get(item, "limit").is_some(), findings.origin(item.position));
    Sent { has_limit, ..Sent::new(text(filter, "domain"), Vec::new(), origin) }
}

pub(super) fn tcp(filter: &Node<'_>, findings: &mut Findings, sent: &mut Vec<Sent>) {
    let mut charged = HashSet::new();
    for item in list(filter, "descriptors") {
        check_twice(text(filter, "domain"), item, &mut charged, findings);
        let entries = list(item, "entries").iter();
        let entry = |entry| (text(entry, "key").to_owned(), fixed(text(entry, "value")));
        sent.push(Sent { entries: entries.map(entry).collect(), ..new(filter, item, findings) });
    }
}

/// Adds what a Thrift filter sends for the routes of its proxy. Returns whether all of it is known.
pub(super) fn thrift(
    proxy: &Node<'_>,
    filter: &Node<'_>,
    findings: &mut Findings,
    sent: &mut Vec<Sent>,
) -> bool {
    let Some(routes) = get(proxy, "route_config") else { return false };
    for action in list(routes, "routes").iter().filter_map(|route| get(route, "route")) {
        let (clusters, mut charged) = (clusters(action), HashSet::new());
        let items = list(action, "rate_limits").iter();
        for item in items.filter(|item| stage(item) == stage(filter)) {
            if !findings.spend(item.position, item.size as usize) {
                return false;
            }
            check_twice(text(filter, "domain"), item, &mut charged, findings);
            let mut descriptor = new(filter, item, findings);
            for action in list(item, "actions") {
                // Envoy rejects a configuration with others.
                let Some((key, values)) = thrift_entry(action, &clusters) else { return false };
                check_key(action, &key, findings);
                descriptor.entries.push((key, values));
            }
            sent.push(descriptor);
        }
    }
    true
}

/// Reports a key that the Thrift filter does not send.
fn check_key(action: &Node<'_>, sent: &str, findings: &mut Findings) {
    let constants = ["generic_key", "header_value_match"].into_iter();
    let written = constants.filter_map(|name| path(action, &[name, "descriptor_key"]));
    for key in written.filter(|key| key.text() != Some(sent)) {
        let message = format!("Envoy's Thrift filter ignores `descriptor_key`: it sends '{sent}'");
        let help = format!("write the rule for the key `{sent}`, and remove `descriptor_key`");
        findings.add(key.position, message, &key.shown(), &help);
    }
}
