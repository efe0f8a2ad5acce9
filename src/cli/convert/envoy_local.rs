//! Converts the local rate limit of Envoy (`envoy.filters.http.local_ratelimit`).
//!
//! Each configuration of the filter has buckets of its own, so its name is the first entry of its descriptors. The
//! bucket of all its requests is a rule with that entry alone.

use std::collections::{BTreeMap, BTreeSet};

use super::Converted;
use super::actions::{Item, Route, fixed, without_routes};
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use super::fields::{period_of, place};
use super::yaml::{node, owned};
use crate::cli::check::actions::written_entry;
use crate::cli::check::nodes::{get, has_type, is_true, list, path, text, walk};
use crate::cli::check::typed_struct::unwrapped;
use weir_rules::Position;
use weir_rules::tree::{Node, Value};
use weir_rules::yaml::Documents;

const TYPE: &str = "filters.http.local_ratelimit.v3.LocalRateLimit";

const NOTE: &str =
    "Envoy counts in each of its processes, or each connection; weir counts for all together";

struct Conversion<'d> {
    name: &'d str,
    rules: Domain,
    left_out: Vec<String>,
    /// The configurations, by their places.
    configs: BTreeMap<Position, Config>,
    names: BTreeSet<String>,
    routes: Vec<Route>,
    /// The items of configurations whose routes are not in the file.
    items: Vec<Item>,
    /// The places of these configurations.
    unplaced: Vec<String>,
}

struct Config {
    name: String,
    /// Whether all requests have a bucket.
    has_bucket: bool,
    descriptors: Vec<Descriptor>,
}

struct Descriptor {
    entries: Vec<PathEntry>,
    limit: Limit,
    place: String,
    is_sent: bool,
}

/// Converts the configurations of a file.
///
/// # Errors
///
/// The text is not YAML or JSON, or has no such configuration.
pub(super) fn convert(name: &str, text: &str, domain: &str) -> Result<Converted, String> {
    let mut conversion = Conversion {
        name,
        rules: Domain::new(domain),
        left_out: Vec::new(),
        configs: BTreeMap::new(),
        names: BTreeSet::new(),
        routes: Vec::new(),
        items: Vec::new(),
        unplaced: Vec::new(),
    };
    for document in Documents::new(text) {
        let root = document.map_err(|error| {
            format!("error: {name}:{}:{}: {}", error.line, error.column, error.message)
        })?;
        if let Some(root) = root {
            conversion.document(&unwrapped(root));
        }
    }
    if conversion.configs.is_empty() {
        return Err(format!(
            "error: {name}: there is no filter envoy.filters.http.local_ratelimit"
        ));
    }
    let Conversion { rules, mut left_out, configs, mut routes, items, unplaced, .. } = conversion;
    if !items.is_empty() {
        left_out.extend(without_routes(unplaced));
        routes.push(Route::all(items));
    }
    for descriptor in configs.values().flat_map(|config| &config.descriptors) {
        if !descriptor.is_sent {
            let place = &descriptor.place;
            left_out.push(format!(
                "{place}: no `rate_limits` of a route that uses it send this descriptor"
            ));
        }
    }
    let mut converted = Converted::with_envoy(domain, &rules, &routes);
    converted.left_out = left_out;
    if !rules.is_empty() {
        converted.notes.push(NOTE);
    }
    Ok(converted)
}

/// Whether a share of requests is all of them.
fn is_all(share: &Node<'_>) -> bool {
    let numerator = match text(share, "denominator") {
        "" | "HUNDRED" | "0" => "100",
        "TEN_THOUSAND" | "1" => "10000",
        _ => "1000000",
    };
    text(share, "numerator") == numerator
}

impl Conversion<'_> {
    fn document(&mut self, root: &Node<'_>) {
        let mut managers = Vec::new();
        walk(root, &mut |node, place| {
            let is_used = list(node, "http_filters").iter().any(|filter| local(filter).is_some());
            if is_used && get(node, "route_config").is_some() && !place.is_copy {
                managers.push(node);
            }
        });
        for manager in &managers {
            for filter in list(manager, "http_filters") {
                if let (Some(config), Some(routes)) = (local(filter), get(manager, "route_config"))
                {
                    self.manager(text(filter, "name"), config, routes);
                }
            }
        }
        if !managers.is_empty() {
            return;
        }
        // A part of a configuration.
        let mut others = Vec::new();
        walk(root, &mut |node, place| {
            if has_type(node, TYPE) && !place.is_copy {
                others.push(node);
            }
        });
        for config in others {
            if get(config, "token_bucket").is_some() && !self.configs.contains_key(&config.position)
            {
                let items = self.items(config, &[]);
                self.items.extend(items);
                self.unplaced.push(place(self.name, config));
            }
        }
    }

    fn manager(&mut self, filter: &str, config: &Node<'_>, route_config: &Node<'_>) {
        for host in list(route_config, "virtual_hosts") {
            let name = text(host, "name").to_owned();
            let domains = list(host, "domains").iter().filter_map(Node::text);
            let domains: Vec<String> = domains.map(str::to_owned).collect();
            for route in list(host, "routes") {
                let own = |node| path(node, &["typed_per_filter_config", filter]);
                let used = own(route).or(own(host)).or(own(route_config)).unwrap_or(config);
                let action = get(route, "route");
                let sent = |node: Option<&Node<'_>>| {
                    node.map_or_else(Vec::new, |node| {
                        list(node, "rate_limits").iter().map(owned).collect()
                    })
                };
                let mut items = sent(Some(used));
                if items.is_empty() {
                    items = sent(action);
                    let includes = action.is_some_and(|it| is_true(it, "include_vh_rate_limits"))
                        || text(used, "vh_rate_limits") == "INCLUDE";
                    if items.is_empty() || includes {
                        items.extend(sent(Some(host)));
                    }
                }
                let items = self.items(used, &items);
                self.routes.push(Route {
                    host: name.clone(),
                    domains: domains.clone(),
                    matches: get(route, "match")
                        .map_or_else(|| node(&serde_json::json!({ "prefix": "/" })), owned),
                    items,
                });
            }
        }
    }

    /// The items of a route with this configuration and these `rate_limits`. Adds their rules.
    fn items(&mut self, node: &Node<'_>, sent: &[Node<'static>]) -> Vec<Item> {
        if !self.configs.contains_key(&node.position) {
            let config = self.read(node);
            self.configs.insert(node.position, config);
        }
        let Some(config) = self.configs.get_mut(&node.position) else { return Vec::new() };
        let own = fixed(KEY, &config.name);
        let mut items = Vec::new();
        if config.has_bucket {
            items.push(Item::new([own.clone()]));
        }
        for item in sent {
            let actions = list(item, "actions");
            let Some(entries) = actions.iter().map(written_entry).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let mut is_used = false;
            for descriptor in &mut config.descriptors {
                if !matches(&descriptor.entries, &entries) {
                    continue;
                }
                let mut path = vec![(KEY.to_owned(), Some(config.name.clone()))];
                path.extend(descriptor.entries.iter().cloned());
                if !descriptor.is_sent
                    && let Err(error) = self.rules.add(path, descriptor.limit.clone())
                {
                    self.left_out.push(format!("{}: {error}", descriptor.place));
                    descriptor.is_sent = true;
                    continue;
                }
                (is_used, descriptor.is_sent) = (true, true);
            }
            if is_used {
                let mut sent = Item::new([own.clone()]);
                sent.actions.extend(actions.iter().cloned());
                items.push(sent);
            }
        }
        items
    }

    /// Lists where a configuration does not apply to all requests.
    fn check_shares(&mut self, node: &Node<'_>) {
        for field in ["filter_enabled", "filter_enforced"] {
            let share = path(node, &[field, "default_value"]);
            let error = match share {
                None => "absent, so Envoy limits no request",
                Some(share) if is_all(share) => continue,
                Some(_) => "not for all requests",
            };
            let place = place(self.name, share.unwrap_or(node));
            self.left_out.push(format!(
                "{place}: `{field}` is {error}: write `shadow_mode: true` into the rule to only measure"
            ));
        }
    }

    /// Reads a configuration of the filter. Adds the rule for all its requests.
    fn read(&mut self, node: &Node<'_>) -> Config {
        let wanted = match text(node, "stat_prefix") {
            "" => "local",
            name => name,
        };
        let mut name = wanted.to_owned();
        if !self.names.insert(name.clone()) {
            name = format!("{wanted}-{}", self.names.len() + 1);
            self.names.insert(name.clone());
        }
        let mut config = Config { name, has_bucket: false, descriptors: Vec::new() };
        let has_descriptors = !list(node, "descriptors").is_empty();
        if get(node, "token_bucket").is_some() || has_descriptors {
            self.check_shares(node);
        }
        let always = get(node, "always_consume_default_token_bucket");
        if always.and_then(Node::value) == Some(Value::Bool(false)) && has_descriptors {
            let error = "`always_consume_default_token_bucket: false`: requests of a descriptor count in the \
                         bucket of all requests too";
            self.left_out.push(format!("{}: {error}", place(self.name, always.unwrap_or(node))));
        }
        if let Some(bucket) = get(node, "token_bucket") {
            let path = vec![(KEY.to_owned(), Some(config.name.clone()))];
            match limit(bucket).and_then(|limit| self.rules.add(path, limit)) {
                Ok(()) => config.has_bucket = true,
                Err(error) => self.left_out.push(format!("{}: {error}", place(self.name, bucket))),
            }
        }
        for descriptor in list(node, "descriptors") {
            let place = place(self.name, descriptor);
            let entries = list(descriptor, "entries").iter().map(|entry| {
                let value = Some(text(entry, "value").to_owned()).filter(|value| !value.is_empty());
                (text(entry, "key").to_owned(), value)
            });
            let entries = entries.collect();
            match get(descriptor, "token_bucket")
                .map_or_else(|| Err("it has no `token_bucket`".to_owned()), limit)
            {
                Ok(limit) => {
                    config.descriptors.push(Descriptor { entries, limit, place, is_sent: false })
                }
                Err(error) => self.left_out.push(format!("{place}: {error}")),
            }
        }
        config
    }
}

/// The key of the entry with the name of a configuration.
const KEY: &str = "local";

/// The configuration of a filter, if it is the local rate limit.
fn local<'n, 'a>(filter: &'n Node<'a>) -> Option<&'n Node<'a>> {
    get(filter, "typed_config").filter(|config| has_type(config, TYPE))
}

fn limit(bucket: &Node<'_>) -> Result<Limit, String> {
    let number = |field: &str, default: Option<u32>| match text(bucket, field) {
        "" => default,
        text => text.parse().ok(),
    };
    let burst = number("max_tokens", None).filter(|max| *max > 0);
    let burst = burst.ok_or("`max_tokens` is not a number above 0")?;
    let tokens = number("tokens_per_fill", Some(1)).ok_or("`tokens_per_fill` is not a number")?;
    let (unit, multiplier, factor) = period_of(text(bucket, "fill_interval"))
        .ok_or("`fill_interval` is neither whole seconds nor a part of a second such as 0.1s")?;
    Ok(Limit {
        name: String::new(),
        requests_per_unit: tokens.saturating_mul(factor),
        unit,
        multiplier,
        algorithm: Algorithm::TokenBucket(burst),
    })
}

/// Whether a descriptor matches what actions send.
fn matches(descriptor: &[PathEntry], sent: &[PathEntry]) -> bool {
    descriptor.len() == sent.len()
        && descriptor.iter().zip(sent).all(|((key, value), (sent_key, sent_value))| {
            key == sent_key && (value.is_none() || sent_value.is_none() || value == sent_value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::convert::domain::tests::errors;

    const CONFIG: &str = "\
http_filters:
- name: local
  typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
    stat_prefix: edge
    token_bucket: { max_tokens: 1000, tokens_per_fill: 100, fill_interval: 0.1s }
    filter_enabled: { default_value: { numerator: 100 } }
    filter_enforced: { default_value: { numerator: 50 } }
route_config:
  virtual_hosts:
  - name: all
    domains: ['*']
    routes:
    - match: { prefix: /a }
      route:
        cluster: a
        rate_limits:
        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
        - actions: [{ remote_address: {} }]
      typed_per_filter_config:
        local:
          '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
          stat_prefix: edge
          token_bucket: { max_tokens: 10, fill_interval: 60s }
          filter_enabled: { default_value: { numerator: 100 } }
          always_consume_default_token_bucket: false
          descriptors:
          - { entries: [{ key: user, value: ann }], token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 1s } }
          - { entries: [{ key: path, value: /x }], token_bucket: { max_tokens: 5, fill_interval: 1s } }
          - { entries: [{ key: user }], token_bucket: { max_tokens: 5, fill_interval: 0.3s } }
    - match: { prefix: / }
      route: { cluster: b }
";

    #[test]
    fn buckets_become_rules() {
        let converted = convert("e.yaml", CONFIG, "d").unwrap();
        assert_eq!(
            converted.left_out,
            [
                "e.yaml:22: `filter_enforced` is absent, so Envoy limits no request: write `shadow_mode: true` into the \
                 rule to only measure",
                "e.yaml:26: `always_consume_default_token_bucket: false`: requests of a descriptor count in the bucket \
                 of all requests too",
                "e.yaml:30: `fill_interval` is neither whole seconds nor a part of a second such as 0.1s",
                "e.yaml:8: `filter_enforced` is not for all requests: write `shadow_mode: true` into the rule to \
                 only measure",
                "e.yaml:29: no `rate_limits` of a route that uses it send this descriptor",
            ]
        );
        assert_eq!(errors(&converted.rules[0]), "");
        let rules = &converted.rules[0].text;
        assert_eq!(rules.matches("algorithm: token_bucket").count(), 3, "{rules}");
        assert!(rules.contains("requests_per_unit: 1000\n      burst: 1000\n"), "{rules}");
        assert!(rules.contains("value: edge-2\n"), "{rules}");
        let part = "typed_config: { '@type': x/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, \
                    token_bucket: { max_tokens: 1, fill_interval: 1s } }";
        assert!(convert("e", part, "d").unwrap().envoy.is_some());
        assert!(convert("e", "a: 1", "d").unwrap_err().contains("there is no filter"));
    }

    #[test]
    fn a_filter_may_be_written_as_a_struct() {
        let patch = |stat_prefix: &str| {
            format!(
                "- patch:
    value:
      name: envoy.filters.http.local_ratelimit
      typed_config:
        '@type': type.googleapis.com/udpa.type.v1.TypedStruct
        type_url: type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
        value:
          stat_prefix: {stat_prefix}
          token_bucket: {{ max_tokens: 4, tokens_per_fill: 4, fill_interval: 60s }}
          filter_enabled: {{ default_value: {{ numerator: 100, denominator: HUNDRED }} }}
          filter_enforced: {{ default_value: {{ numerator: 100, denominator: HUNDRED }} }}
"
            )
        };
        let converted = convert("e", &(patch("a") + &patch("b")), "d").unwrap();
        // Which routes each is for is not in the file.
        assert!(converted.left_out[0].starts_with("e:5: the file does not say which requests"));
        assert_eq!(converted.left_out.len(), 2);
        assert_eq!(convert("e", &patch("a"), "d").unwrap().left_out, [""; 0]);
        let rules = &converted.rules[0].text;
        assert!(rules.contains("value: a\n") && rules.contains("value: b\n"), "{rules}");
        // Of two routes that match alike, Envoy uses the first.
        assert_eq!(converted.envoy.unwrap().matches("- match: ").count(), 1);
    }
}
