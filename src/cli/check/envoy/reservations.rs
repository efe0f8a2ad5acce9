//! Checks the items of `rate_limits` that reserve hits and settle them, by the rules with `reserve` that they reach.

mod calls;
mod expression;
mod hits;
mod id;
mod pairs;

use std::collections::{BTreeMap, HashMap};

use self::pairs::Reserving;
use super::Findings;
use super::actions::Values;
use super::filter::EnvoyConfig;
use super::nodes::{get, list};
use weir_rules::Position;
use weir_rules::tree::Node;

/// An item that a filter uses on a route.
#[derive(Clone, Copy)]
pub(super) struct Used<'n, 'a> {
    pub item: &'n Node<'a>,
    pub domain: &'n str,
    /// Whether Envoy ignores its `hits_addend`.
    pub ignores_hits: bool,
    /// How its filter calls the rate-limit service.
    pub grpc_service: Option<&'n Node<'a>>,
}

/// Where items are used.
pub(super) struct Place<'p, 'n, 'a> {
    pub manager: &'n Node<'a>,
    pub route: &'n Node<'a>,
    /// The action of the route.
    pub action: &'n Node<'a>,
    /// The clusters of the route.
    pub clusters: &'p Values,
    /// The `typed_per_filter_config` of the route, the most specific first.
    pub configs: &'p [&'n Node<'a>],
}

/// A domain, the places of its items and whether Envoy ignores their hits, and the clusters that they send.
type ItemsOfDomain<'n> = (&'n str, Vec<(Position, bool)>, Values);

/// The items that were checked, and those that a route uses.
#[derive(Default)]
pub(super) struct Reservations<'n, 'a> {
    used: Vec<Used<'n, 'a>>,
    /// What the items of a domain reserve, by their places: many routes use the same items.
    known: HashMap<ItemsOfDomain<'n>, Vec<Reserving<'n, 'a>>>,
}

impl<'n, 'a> Reservations<'n, 'a> {
    /// Adds an item that the next route uses.
    pub fn add(&mut self, used: Used<'n, 'a>) {
        self.used.push(used);
    }

    /// Checks the items that were added, which are used at this place.
    pub fn check(
        &mut self,
        place: &Place<'_, 'n, 'a>,
        config: &EnvoyConfig<'n, 'a>,
        findings: &mut Findings,
    ) {
        let mut by_domain: BTreeMap<&str, Vec<Used<'n, 'a>>> = BTreeMap::new();
        for used in self.used.drain(..) {
            by_domain.entry(used.domain).or_default().push(used);
        }
        for used in by_domain.into_values() {
            self.check_domain(&used, place, config, findings);
        }
    }

    fn check_domain(
        &mut self,
        used: &[Used<'n, 'a>],
        place: &Place<'_, 'n, 'a>,
        config: &EnvoyConfig<'n, 'a>,
        findings: &mut Findings,
    ) {
        let Some(&Used { domain, item, .. }) = used.first() else { return };
        let Some(rules) = config.rules.domain(domain) else { return };
        if !findings.spend(item.position, used.len()) {
            return;
        }
        let places = used.iter().map(|used| (used.item.position, used.ignores_hits)).collect();
        // Most items send the same whatever the cluster of the route is.
        let names_cluster = |used: &Used<'_, '_>| {
            let mut actions = list(used.item, "actions").iter();
            actions.any(|action| get(action, "destination_cluster").is_some())
        };
        let clusters = match used.iter().any(names_cluster) {
            true => place.clusters.clone(),
            false => Values::Any,
        };
        let key = (domain, places, clusters);
        let reserving = self.known.entry(key).or_insert_with(|| {
            let found = pairs::check(rules, used, place.clusters, findings);
            for Reserving { starts, ends, .. } in &found {
                for used in starts.iter().chain(ends) {
                    calls::check_retries(used, config, findings);
                }
            }
            found
        });
        for Reserving { rule, starts, ends } in reserving {
            let first = if starts.is_empty() { ends } else { starts };
            for used in first {
                id::check(rule, used.item, place, config, findings);
            }
            calls::check_timeout(rule, place, findings);
        }
    }
}
