//! `weir check --envoy`: finds the rate-limit filters (HTTP, TCP, Thrift) in an Envoy configuration.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::filter::{EnvoyConfig, FILTER_TYPE, Filter, Sent, stage};
use super::findings::Findings;
use super::network;
use super::nodes::{get, has_type, is_true, list, path, text, walk};
use super::quotas;
use super::routes::Routes;
use super::service::{Clusters, check_denials};
use weir_rules::tree::{Content, Node};
use weir_rules::{Rule, RuleSet};

impl<'n, 'a> EnvoyConfig<'n, 'a> {
    /// Indexes what filters refer to by name, in the documents of all files: routes, clusters, extensions.
    pub fn new(
        rules: &'n RuleSet,
        roots: impl Iterator<Item = &'n Node<'a>>,
    ) -> EnvoyConfig<'n, 'a> {
        let reserving = rules.rules().filter(|rule| rule.reserve.is_some());
        let mut config = EnvoyConfig {
            route_configs: HashMap::new(),
            clusters: Clusters::default(),
            extensions: HashMap::new(),
            runtime_zeros: HashSet::new(),
            quota_domains: BTreeSet::new(),
            rules,
            reserving_domains: reserving.map(Rule::domain).collect(),
        };
        for root in roots {
            walk(root, &mut |node, place| {
                let name = text(node, "name");
                if get(node, "virtual_hosts").is_some() && !name.is_empty() {
                    config.route_configs.entry(name).or_default().push((place.dump, node));
                }
                config.clusters.add(node);
                if has_type(node, quotas::FILTER_TYPE) {
                    config.quota_domains.insert(text(node, "domain"));
                }
                if has_type(node, "core.v3.TypedExtensionConfig") {
                    config
                        .extensions
                        .extend(get(node, "typed_config").map(|config| (name, config)));
                }
                if let Some(layer) = get(node, "static_layer") {
                    add_zeros(layer, "", &mut config.runtime_zeros);
                }
            });
        }
        config
    }

    /// Adds what the filters of a file send. Returns whether all of it is known.
    pub fn read(&self, root: &'n Node<'a>, findings: &mut Findings, sent: &mut Vec<Sent>) -> bool {
        let mut is_complete = true;
        walk(root, &mut |node, place| {
            if place.is_copy {
                return;
            }
            if get(node, "http_filters").is_some() {
                is_complete &= self.connection_manager(node, place.dump, findings, sent);
            }
            if has_type(node, quotas::FILTER_TYPE) || has_type(node, quotas::OVERRIDE_TYPE) {
                is_complete &= quotas::read(node, &self.quota_domains, findings, sent);
            }
            if has_type(node, network::TCP_FILTER_TYPE) {
                network::tcp(node, findings, sent);
                self.clusters.check(node, findings);
            }
            for filter in network::thrift_filters(node) {
                is_complete &= network::thrift(node, filter, findings, sent);
                self.clusters.check(filter, findings);
            }
        });
        is_complete
    }

    fn connection_manager(
        &self,
        manager: &'n Node<'a>,
        dump: usize,
        findings: &mut Findings,
        sent: &mut Vec<Sent>,
    ) -> bool {
        let filters: Vec<_> =
            list(manager, "http_filters").iter().filter_map(|node| self.filter(node)).collect();
        for filter in &filters {
            self.clusters.check(filter.config, findings);
            check_denials(filter.config, findings);
        }
        let route_config = get(manager, "route_config").or_else(|| {
            let name = path(manager, &["rds", "route_config_name"])?.text()?;
            let known = self.route_configs.get(name)?;
            let own = known.iter().find(|(other, _)| *other == dump).or(known.last());
            own.map(|(_, route_config)| *route_config)
        });
        let Some(route_config) = route_config else {
            // Its routes come from elsewhere, and so may descriptors.
            return filters.is_empty() && self.quota_domains.is_empty();
        };
        let mut routes = Routes::new(self, filters, findings);
        routes.read(manager, route_config, sent);
        routes.finish()
    }

    pub fn typed_config(&self, node: &'n Node<'a>) -> Option<&'n Node<'a>> {
        match get(node, "config_discovery") {
            Some(_) => self.extensions.get(text(node, "name")).copied(),
            None => get(node, "typed_config"),
        }
    }

    fn filter(&self, node: &'n Node<'a>) -> Option<Filter<'n, 'a>> {
        let config = self.typed_config(node).filter(|config| has_type(config, FILTER_TYPE))?;
        let enabled = path(config, &["filter_enabled", "default_value"]);
        let is_off = enabled.is_some_and(|value| matches!(text(value, "numerator"), "" | "0"));
        let has_key = path(config, &["filter_enabled", "runtime_key"]).is_some();
        Some(Filter {
            name: text(node, "name"),
            config,
            domain: text(config, "domain"),
            domain_position: get(config, "domain").unwrap_or(config).position,
            stage: stage(config),
            rate_limits: list(config, "rate_limits"),
            is_disabled: is_true(node, "disabled"),
            is_off: is_off && !has_key,
        })
    }
}

/// Adds the keys of a runtime layer, with dots between their levels, whose value is 0.
fn add_zeros(layer: &Node<'_>, above: &str, zeros: &mut HashSet<String>) {
    let Content::Map(entries) = layer.content() else { return };
    for (name, value) in entries {
        let name = name.text().unwrap_or_default();
        let name = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        match value.text() {
            Some("0" | "false") => {
                zeros.insert(name);
            }
            Some(_) => {}
            None => add_zeros(value, &name, zeros),
        }
    }
}
