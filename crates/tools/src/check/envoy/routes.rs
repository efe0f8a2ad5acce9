//! `weir check --envoy`: finds which items of `rate_limits` a rate-limit filter uses on a route, as Envoy 1.40 does.
//!
//! The most specific `typed_per_filter_config` counts: that of the weighted cluster, the route, the virtual host or the
//! route configuration. Its `rate_limits` replace those of the filter. Those of the filter replace those of routes and
//! virtual hosts. Of the latter, only the items of the filter's stage are used.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::actions::{Values, descriptors, exact_path, size, unknown};
use super::charges;
use super::filter::{EnvoyConfig, Filter, Sent, stage};
use super::findings::Findings;
use super::nodes::{get, has_type, is_true, list, text};
use super::reservations::Reservations;
use super::reservations::id::ItemPlace;
use weir_rules::Position;
use weir_rules::tree::{Content, Node};

/// The units of work for a filter on a route, and for a value that it sends: see [`Findings::spend`].
const ROUTE_EFFORT: usize = 64;
const VALUE_EFFORT: usize = 128;

const LOCAL_FILTER_TYPE: &str = "filters.http.local_ratelimit.v3.LocalRateLimit";

/// The routes of one HTTP connection manager with its filters.
pub(super) struct Routes<'c, 'n, 'a> {
    config: &'c EnvoyConfig<'n, 'a>,
    filters: Vec<Filter<'n, 'a>>,
    findings: &'c mut Findings,
    /// The indices of filters that send a request to weir on some route.
    asking: BTreeSet<usize>,
    items: BTreeMap<Position, HostItem<'n>>,
    /// The descriptors found so far: the place of the item, domain and entries.
    seen: BTreeSet<(Position, String, String)>,
    /// Hashes of what the route charges so far, to find what is charged twice.
    charged: HashSet<u64>,
    /// The `rate_limits` of filters and of `typed_per_filter_config` to check by `charges.rs`, by their first items.
    charges: BTreeMap<Position, &'n [Node<'a>]>,
    reservations: Reservations<'n, 'a>,
    /// Whether Envoy's local rate-limit filter is there, which uses the same items.
    has_local: bool,
    is_complete: bool,
}

/// An item of a route or a virtual host.
struct HostItem<'n> {
    stage: &'n str,
    /// The place of the item's `hits_addend`.
    hits: Option<Position>,
    is_used: bool,
}

/// A route, and what configures filters on it, the most specific first.
struct Route<'n, 'a> {
    position: Position,
    rate_limits: &'n [Node<'a>],
    of_host: &'n [Node<'a>],
    includes_host: bool,
    clusters: Values,
    configs: Vec<&'n Node<'a>>,
}

impl<'c, 'n, 'a> Routes<'c, 'n, 'a> {
    pub fn new(
        config: &'c EnvoyConfig<'n, 'a>,
        filters: Vec<Filter<'n, 'a>>,
        findings: &'c mut Findings,
    ) -> Routes<'c, 'n, 'a> {
        Routes {
            config,
            filters,
            findings,
            asking: BTreeSet::new(),
            items: BTreeMap::new(),
            seen: BTreeSet::new(),
            charged: HashSet::new(),
            charges: BTreeMap::new(),
            reservations: Reservations::default(),
            has_local: false,
            is_complete: true,
        }
    }

    /// Adds what the filters of the connection manager send.
    pub fn read(
        &mut self,
        manager: &'n Node<'a>,
        route_config: &'n Node<'a>,
        sent: &mut Vec<Sent>,
    ) {
        let is_local = |filter: &Node<'_>| {
            get(filter, "typed_config").is_some_and(|config| has_type(config, LOCAL_FILTER_TYPE))
        };
        self.has_local = list(manager, "http_filters").iter().any(is_local);
        self.is_complete &= get(route_config, "vhds").is_none();
        for host in list(route_config, "virtual_hosts") {
            self.is_complete &= get(host, "matcher").is_none();
            self.items_of(list(host, "rate_limits"));
            for route in list(host, "routes") {
                if !self.findings.spend(route.position, ROUTE_EFFORT) {
                    return;
                }
                let Some(action) = get(route, "route") else { continue };
                self.items_of(list(action, "rate_limits"));
                let mut used = Route {
                    position: route.position,
                    rate_limits: list(action, "rate_limits"),
                    of_host: list(host, "rate_limits"),
                    includes_host: is_true(action, "include_vh_rate_limits"),
                    clusters: clusters(action),
                    configs: Vec::new(),
                };
                for configs in configs(route_config, host, route, action) {
                    self.charged.clear();
                    used.configs = configs;
                    (0..self.filters.len()).for_each(|index| self.route(index, &used, sent));
                    let place = ItemPlace { manager, route, configs: &used.configs };
                    self.reservations.check(&place, self.config, self.findings);
                }
            }
        }
    }

    /// Reports filters and items that are not used. Returns whether all that is sent is known.
    pub fn finish(self) -> bool {
        for items in self.charges.values() {
            charges::check(items, self.findings);
        }
        for hits in self.items.values().filter_map(|item| item.hits) {
            let message = "Envoy ignores `hits_addend` on routes and virtual hosts".to_owned();
            let help = "move the item into the filter, or into `typed_per_filter_config`";
            self.findings.add(hits, message, "", help);
        }
        let is_complete = self.is_complete && self.findings.effort.is_some();
        if is_complete {
            self.report();
        }
        is_complete
    }

    fn items_of(&mut self, items: &'n [Node<'a>]) {
        for item in items {
            if !self.findings.spend(item.position, ROUTE_EFFORT) {
                return;
            }
            let hits = get(item, "hits_addend").map(|hits| hits.position);
            let item_of_host = HostItem { stage: stage(item), hits, is_used: false };
            self.items.entry(item.position).or_insert(item_of_host);
        }
    }

    fn route(&mut self, index: usize, route: &Route<'n, 'a>, sent: &mut Vec<Sent>) {
        let names = |configs: &&Node<'_>| match configs.content() {
            Content::Map(entries) => entries.len(),
            _ => 0,
        };
        let names: usize = route.configs.iter().map(names).sum();
        if !self.findings.spend(route.position, ROUTE_EFFORT + names) {
            return;
        }
        let filter = &self.filters[index];
        let own = route.configs.iter().find_map(|configs| get(configs, filter.name));
        if own.map_or(filter.is_disabled, |own| is_true(own, "disabled")) || filter.is_off {
            return;
        }
        // `FilterConfig` may wrap the configuration.
        let own = own.map(|own| get(own, "config").unwrap_or(own));
        let own_items = own.map_or(&[][..], |own| list(own, "rate_limits"));
        let domain = own.map(|own| text(own, "domain")).filter(|domain| !domain.is_empty());
        let domain = domain.unwrap_or(filter.domain);
        if !own_items.is_empty() {
            return self.send(index, domain, own_items, false, route, sent);
        }
        if !filter.rate_limits.is_empty() {
            return self.send(index, domain, filter.rate_limits, false, route, sent);
        }
        self.send(index, domain, route.rate_limits, true, route, sent);
        let of_host = match own.map(|own| text(own, "vh_rate_limits")) {
            _ if route.includes_host => true,
            Some("INCLUDE" | "1") => true,
            Some("IGNORE" | "2") => false,
            _ => route.rate_limits.is_empty(),
        };
        if of_host {
            self.send(index, domain, route.of_host, true, route, sent);
        }
    }

    /// Adds items that a filter uses; `by_stage`: only those of its stage.
    fn send(
        &mut self,
        index: usize,
        domain: &'n str,
        items: &'n [Node<'a>],
        by_stage: bool,
        route: &Route<'n, 'a>,
        sent: &mut Vec<Sent>,
    ) {
        let of_filter = self.filters[index].stage;
        let reserves = self.config.reserving_domains.contains(domain);
        // Elsewhere, Envoy ignores what an item charges.
        if !by_stage && let Some(first) = items.first() {
            self.charges.insert(first.position, items);
        }
        for item in items {
            let effort = size(item, &route.clusters).saturating_mul(VALUE_EFFORT);
            let effort = effort.saturating_add(item.size as usize);
            if !self.findings.spend(item.position, effort) {
                return;
            }
            let disable_key = text(item, "disable_key");
            let runtime_key = format!("ratelimit.{disable_key}.http_filter_enabled");
            let is_off =
                !disable_key.is_empty() && self.config.runtime_zeros.contains(&runtime_key);
            if by_stage && (stage(item) != of_filter || is_off) {
                continue;
            }
            self.asking.insert(index);
            if let Some(item) = self.items.get_mut(&item.position) {
                item.is_used = true;
            }
            if reserves {
                self.reservations.add(domain, item);
            }
            if !by_stage {
                charges::check_hits(item, self.findings);
            }
            // A reservation that is made twice is one.
            if !reserves {
                charges::check_twice(domain, item, &mut self.charged, self.findings);
            }
            if let Some(header) = exact_path(item) {
                let message =
                    "this compares the path with its query string, which any client can add";
                let help = "match the path by `prefix` or by `safe_regex`";
                self.findings.add_once(header.position, message, "", help);
            }
            let variants = match descriptors(item, &route.clusters) {
                Ok(variants) => variants,
                Err(action) => {
                    self.is_complete = false;
                    let (why, name, help) = unknown(action);
                    let message = format!("{why}: its item is not compared with the rules");
                    self.findings.add_once(action.position, &message, name, &help);
                    continue;
                }
            };
            for entries in variants {
                let shown = format!("{entries:?}");
                if self.seen.insert((item.position, domain.to_owned(), shown)) {
                    let has_limit = get(item, "limit").is_some();
                    let new = Sent::new(domain, entries, self.findings.origin(item.position));
                    sent.push(Sent { has_limit, is_shared: by_stage, ..new });
                }
            }
        }
    }

    /// Reports filters that never ask, and items that no filter uses.
    fn report(self) {
        let item_stages: HashSet<&str> = self.items.values().map(|item| item.stage).collect();
        let filter_stages: HashSet<&str> = self.filters.iter().map(|filter| filter.stage).collect();
        for (index, filter) in self.filters.iter().enumerate() {
            if self.asking.contains(&index) {
                continue;
            }
            let (message, help) = if filter.is_off {
                ("`filter_enabled` is 0".to_owned(), "raise it, or remove the filter")
            } else if self.items.is_empty() {
                let help = "add `rate_limits` to a route, to a virtual host, or to the filter";
                ("there are no `rate_limits`".to_owned(), help)
            } else if !item_stages.contains(filter.stage) {
                let message = format!("no `rate_limits` have its stage, {}", filter.stage);
                (message, "set the same `stage` in the filter and in the items")
            } else {
                let help = "check `disabled`, `disable_key` and `vh_rate_limits` of the routes, and \
                            that they have a cluster";
                ("its `rate_limits` are never used".to_owned(), help)
            };
            let message = format!("this filter never asks weir: {message}");
            self.findings.add(filter.domain_position, message, filter.domain, help);
        }
        if self.filters.is_empty() && self.has_local {
            return;
        }
        let unused = self.items.iter().filter(|(_, item)| !item.is_used);
        for (position, HostItem { stage, .. }) in unused {
            let (message, help) = if self.filters.is_empty() {
                let help = "add the filter envoy.filters.http.ratelimit before the router";
                ("there is no rate-limit filter".to_owned(), help)
            } else if !filter_stages.contains(stage) {
                let message = format!("no filter has the stage {stage}");
                (message, "set the same `stage` in the filter and in the item")
            } else {
                let help = "the `rate_limits` of a route replace those of its virtual host, and those \
                            of the filter or of `typed_per_filter_config` replace both; routes \
                            can also disable the filter";
                ("others replace it, or the filter is disabled".to_owned(), help)
            };
            self.findings.add(*position, format!("this item is never used: {message}"), "", help);
        }
    }
}

/// The `typed_per_filter_config` of a route, the most specific first; a list for each weighted cluster
/// that has its own.
fn configs<'n, 'a>(
    route_config: &'n Node<'a>,
    host: &'n Node<'a>,
    route: &'n Node<'a>,
    action: &'n Node<'a>,
) -> Vec<Vec<&'n Node<'a>>> {
    let own = |node| get(node, "typed_per_filter_config");
    let base: Vec<_> = [own(route), own(host), own(route_config)].into_iter().flatten().collect();
    let clusters = get(action, "weighted_clusters").map_or(&[][..], |all| list(all, "clusters"));
    match clusters.iter().any(|cluster| own(cluster).is_some()) {
        false => vec![base],
        true => {
            let with = |cluster| own(cluster).into_iter().chain(base.iter().copied()).collect();
            clusters.iter().map(with).collect()
        }
    }
}

pub(super) fn clusters(action: &Node<'_>) -> Values {
    if let Some(cluster) = get(action, "cluster").and_then(Node::text) {
        return Values::OneOf(vec![cluster.to_owned()]);
    }
    match get(action, "weighted_clusters").map(|all| list(all, "clusters")) {
        Some(clusters) if clusters.iter().all(|cluster| get(cluster, "name").is_some()) => {
            Values::OneOf(clusters.iter().map(|cluster| text(cluster, "name").to_owned()).collect())
        }
        _ => Values::Any,
    }
}
