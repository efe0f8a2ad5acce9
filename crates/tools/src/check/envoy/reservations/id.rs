//! `weir check --envoy`: reports items of Envoy's `rate_limits` that identify a reservation (hits that are held until
//! the end of a request) by an id that the client can choose, or that all requests share.

use super::super::actions::written_entry;
use super::super::filter::{EnvoyConfig, FILTER_TYPE};
use super::super::findings::Findings;
use super::super::nodes::{get, has_type, is_true, list, path, text};
use weir_rules::tree::Node;

const MUTATION_TYPE: &str = "filters.http.header_mutation.v3.HeaderMutation";
const REQUEST_ID: &str = "x-request-id";

/// The route for which Envoy sends an item.
pub(crate) struct ItemPlace<'p, 'n, 'a> {
    pub manager: &'n Node<'a>,
    pub route: &'n Node<'a>,
    /// The `typed_per_filter_config` of the route, the most specific first.
    pub configs: &'p [&'n Node<'a>],
}

/// Reports an item whose id a client can choose, or that sends one id for all requests. `id` is the key of its entry.
pub(super) fn check(
    id: &str,
    item: &Node<'_>,
    place: &ItemPlace<'_, '_, '_>,
    config: &EnvoyConfig<'_, '_>,
    findings: &mut Findings,
) {
    let is_id = |action: &&Node<'_>| written_entry(action).is_some_and(|(key, _)| key == id);
    if !findings.spend(item.position, list(item, "actions").len()) {
        return;
    }
    let Some(action) = list(item, "actions").iter().rfind(is_id) else { return };
    if get(action, "query_parameters").is_some() {
        let message = "a client can choose the id of its reservations: it is a query parameter";
        findings.add(action.position, message.to_owned(), "", &help("x-reservation-id"));
    } else if let Some(value) = get(action, "generic_key") {
        let value = text(value, "descriptor_value");
        let message = match value.contains('%') {
            true => {
                format!("all requests have the same id: Envoy sends '{value}' as it is written")
            }
            false => format!("all requests have the same id, '{value}'"),
        };
        findings.add(action.position, message, "", &help("x-reservation-id"));
    } else if let Some(header) = get(action, "request_headers") {
        let name = text(header, "header_name");
        if is_chosen_by_envoy(name, place, config, findings) {
            return;
        }
        let (why, help) = match name.eq_ignore_ascii_case(REQUEST_ID) {
            true => (
                format!("Envoy keeps the '{name}' that it sends"),
                format!(
                    "set `use_remote_address: true` in the HTTP connection manager of an edge. Otherwise {}",
                    help("x-reservation-id")
                ),
            ),
            false => (
                format!(
                    "no `header_mutation` before the rate limit overwrites the header '{name}'"
                ),
                format!(
                    "{}. `request_headers_to_add` of routes comes after the rate limit",
                    help(name)
                ),
            ),
        };
        let message = format!("a client can choose the id of its reservations: {why}");
        findings.add(action.position, message, "", &help);
    }
}

/// How to send an id that a client cannot choose.
fn help(header: &str) -> String {
    format!(
        "take it from a header that the filter envoy.filters.http.header_mutation sets before: `append: {{ header: \
         {{ key: {header}, value: \"%UNIQUE_ID%\" }}, append_action: OVERWRITE_IF_EXISTS_OR_ADD }}`"
    )
}

/// Whether Envoy overwrites a header with an id of its own before the rate-limit filter reads it.
fn is_chosen_by_envoy(
    name: &str,
    place: &ItemPlace<'_, '_, '_>,
    config: &EnvoyConfig<'_, '_>,
    findings: &mut Findings,
) -> bool {
    let manager = place.manager;
    let is_edge =
        is_true(manager, "use_remote_address") && !is_true(manager, "preserve_external_request_id");
    let is_request_id = name.eq_ignore_ascii_case(REQUEST_ID);
    if is_request_id && is_edge {
        return true;
    }
    let early = list(manager, "early_header_mutation_extensions");
    let early = early.iter().filter_map(|extension| get(extension, "typed_config"));
    let early = early.flat_map(|extension| list(extension, "mutations"));
    let is_before = |filter: &&Node<'_>| {
        !config.typed_config(filter).is_some_and(|typed| has_type(typed, FILTER_TYPE))
    };
    let filters = list(manager, "http_filters").iter().take_while(is_before);
    let filters = filters.flat_map(|filter| {
        let own = config.typed_config(filter).filter(|own| has_type(own, MUTATION_TYPE));
        let of_routes =
            place.configs.iter().filter_map(|configs| get(configs, text(filter, "name")));
        let configs = own.into_iter().flat_map(move |own| of_routes.clone().chain([own]));
        configs.filter_map(|config| path(config, &["mutations"]))
    });
    let of_filters = filters.flat_map(|filter| list(filter, "request_mutations"));
    let mutations: Vec<_> = early.chain(of_filters).collect();
    let effort = mutations.len() + list(manager, "http_filters").len();
    if !findings.spend(place.route.position, effort) {
        return true;
    }
    mutations.into_iter().filter_map(|mutation| get(mutation, "append")).any(|append| {
        let Some(header) = get(append, "header") else { return false };
        let overwrites =
            matches!(text(append, "append_action"), "OVERWRITE_IF_EXISTS_OR_ADD" | "2");
        let value = text(header, "value");
        let is_unique = value.contains("%UNIQUE_ID%") || (is_edge && value.contains("%STREAM_ID%"));
        text(header, "key").eq_ignore_ascii_case(name) && overwrites && is_unique
    })
}
