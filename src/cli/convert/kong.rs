//! Converts the plugins `rate-limiting` and `rate-limiting-advanced` of Kong.
//!
//! Of the plugins of one name, a request uses the most specific: that of its route, of its service, or of all. The
//! first entry of a descriptor says whose plugin it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Converted;
use super::actions::{Item, Route, fixed, header, remote_address, without_routes};
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use super::fields::{get, items, list, number, period, place, text};
use super::yaml::node;
use weir_limit::Unit;
use weir_rules::tree::{Content, Node, Value as Scalar};
use weir_rules::yaml::Documents;

const PLUGINS: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// The key of the entry that says whose plugin it is.
const KEY: &str = "kong";

const OF_CONSUMER: &str = "a limit of one consumer or group: write a rule with its name as value";

/// What a route may also match, which its route for Envoy does not.
const OTHER_MATCHES: [&str; 5] = ["headers", "snis", "sources", "destinations", "expression"];

struct Conversion<'d> {
    name: &'d str,
    rules: Domain,
    left_out: Vec<String>,
    /// The plugins, by their owners and names; none for those that are not converted.
    plugins: BTreeMap<(String, &'static str), Option<Plugin>>,
    /// The places of plugins whose routes are not in the file.
    unplaced: Vec<String>,
}

/// A plugin. Its rule is added when a route uses it.
struct Plugin {
    path: Vec<PathEntry>,
    limits: Vec<Limit>,
    item: Item,
    place: String,
    is_used: bool,
}

/// A route, and the names of its owners, the most specific first.
struct Owned<'n> {
    node: &'n Node<'n>,
    owners: [String; 3],
}

/// Converts a declarative configuration, or the Kubernetes resources of plugins.
///
/// # Errors
///
/// The text is not YAML or JSON, or has no such plugin.
pub(super) fn convert(name: &str, text: &str, domain: &str) -> Result<Converted, String> {
    let mut conversion = Conversion {
        name,
        rules: Domain::new(domain),
        left_out: Vec::new(),
        plugins: BTreeMap::new(),
        unplaced: Vec::new(),
    };
    let (mut routes, mut items) = (Vec::new(), Vec::new());
    for document in Documents::new(text) {
        let root = document.map_err(|error| {
            format!("error: {name}:{}:{}: {}", error.line, error.column, error.message)
        })?;
        let Some(root) = root else { continue };
        match self::text(&root, "kind") {
            Some(_) => items.extend(conversion.resources(&root)),
            None => routes.extend(conversion.declared(&root)),
        }
    }
    let Conversion { rules, mut left_out, plugins, unplaced, .. } = conversion;
    if !items.is_empty() {
        left_out.extend(without_routes(unplaced));
        routes.push(Route::all(items));
    }
    for plugin in plugins.values().flatten().filter(|plugin| !plugin.is_used) {
        let place = &plugin.place;
        left_out.push(format!("{place}: no route uses this plugin: more specific ones replace it"));
    }
    if plugins.is_empty() && left_out.is_empty() {
        return Err(format!(
            "error: {name}: there is no plugin rate-limiting or rate-limiting-advanced that is enabled"
        ));
    }
    let mut converted = Converted::with_envoy(domain, &rules, &routes);
    converted.left_out = left_out;
    Ok(converted)
}

impl Conversion<'_> {
    fn leave_out(&mut self, node: &Node<'_>, error: &str) {
        self.left_out.push(format!("{}: {error}", place(self.name, node)));
    }

    /// The items of plugins without the routes that they are for.
    fn resources(&mut self, root: &Node<'_>) -> Vec<Item> {
        let resources = match text(root, "kind") {
            Some(kind) if kind.ends_with("List") => list(root, "items").iter().collect(),
            _ => vec![root],
        };
        let mut items = Vec::new();
        for resource in resources {
            let is_plugin =
                matches!(text(resource, "kind"), Some("KongPlugin" | "KongClusterPlugin"));
            let wanted = PLUGINS.into_iter().find(|name| text(resource, "plugin") == Some(name));
            let (Some(plugin), true) = (wanted, is_plugin) else { continue };
            let metadata = |field| get(resource, "metadata").and_then(|it| text(it, field));
            let owner = match (metadata("namespace"), metadata("name").unwrap_or("unnamed")) {
                (Some(namespace), name) => format!("plugin/{namespace}/{name}"),
                (None, name) => format!("plugin/{name}"),
            };
            if self.plugin(&owner, plugin, resource) {
                self.unplaced.push(place(self.name, resource));
                items.extend(self.item(&[owner], plugin));
            }
        }
        items
    }

    fn declared(&mut self, root: &Node<'_>) -> Vec<Route> {
        let mut owned = Vec::new();
        self.plugins(list(root, "plugins"), None);
        for service in list(root, "services") {
            let name = owner("service", service);
            self.plugins(list(service, "plugins"), Some(&name));
            for route in list(service, "routes") {
                owned.extend(self.route(route, &name));
            }
        }
        for route in list(root, "routes") {
            let service = get(route, "service");
            let service = service.and_then(|it| it.text().or_else(|| text(it, "name")));
            owned.extend(self.route(route, &format!("service/{}", service.unwrap_or_default())));
        }
        for consumer in list(root, "consumers").iter().chain(list(root, "consumer_groups")) {
            for plugin in list(consumer, "plugins") {
                if text(plugin, "name").is_some_and(|name| PLUGINS.contains(&name)) {
                    self.leave_out(plugin, OF_CONSUMER);
                }
            }
        }
        self.hosts(&owned)
    }

    /// Reads a route. Lists what its route for Envoy does not match.
    fn route<'n>(&mut self, route: &'n Node<'n>, service: &str) -> Option<Owned<'n>> {
        let protocols: Vec<&str> = list(route, "protocols").iter().filter_map(Node::text).collect();
        let has = |wanted: &[&str]| protocols.iter().any(|it| wanted.contains(it));
        if has(&["tcp", "tls", "tls_passthrough", "udp"]) {
            self.leave_out(route, "its `protocols` have no requests, which weir counts");
            return None;
        }
        if has(&["grpc", "grpcs"]) {
            let error = "`protocols`: the route for Envoy matches other requests too: write `grpc: {}` into its \
                         `match` if it is for gRPC only";
            self.leave_out(route, error);
        }
        for field in OTHER_MATCHES.into_iter().filter(|field| is_given(route, field)) {
            let error = format!(
                "`{field}`: the route for Envoy matches requests without it too: add it to the `match` or the listener"
            );
            self.leave_out(route, &error);
        }
        let name = owner("route", route);
        self.plugins(list(route, "plugins"), Some(&name));
        Some(Owned { node: route, owners: [name, service.to_owned(), "all".to_owned()] })
    }

    /// Converts the plugins of an owner, or those that name theirs.
    fn plugins(&mut self, plugins: &[Node<'_>], owner: Option<&str>) {
        for plugin in plugins {
            let wanted = PLUGINS.into_iter().find(|name| text(plugin, "name") == Some(name));
            let Some(name) = wanted else { continue };
            let named = |field: &str| {
                let of = get(plugin, field)?;
                of.text().or_else(|| text(of, "name")).map(|name| format!("{field}/{name}"))
            };
            if ["consumer", "consumer_group"].into_iter().any(|field| is_given(plugin, field)) {
                self.leave_out(plugin, OF_CONSUMER);
                continue;
            }
            let owner =
                owner.map(str::to_owned).or_else(|| named("route")).or_else(|| named("service"));
            self.plugin(&owner.unwrap_or_else(|| "all".to_owned()), name, plugin);
        }
    }

    /// Adds a plugin of an owner. Returns whether it is one to use.
    fn plugin(&mut self, owner: &str, name: &'static str, plugin: &Node<'_>) -> bool {
        let is = |field: &str, wanted| {
            get(plugin, field).and_then(Node::value) == Some(Scalar::Bool(wanted))
        };
        if is("enabled", false) || is("disabled", true) {
            return false;
        }
        let key = (owner.to_owned(), name);
        if self.plugins.contains_key(&key) {
            let error = "an earlier plugin has the same name and scope: remove one of them";
            self.leave_out(plugin, error);
            return false;
        }
        let converted = self.convert(owner, name, plugin);
        let converted = converted.map_err(|error| self.leave_out(plugin, &error)).ok();
        self.plugins.insert(key, converted);
        true
    }

    fn convert(&mut self, owner: &str, name: &str, plugin: &Node<'_>) -> Result<Plugin, String> {
        let config = get(plugin, "config").ok_or("it has no `config`")?;
        let (limits, field) = match name {
            "rate-limiting" => (limits(config)?, "limit_by"),
            _ => (advanced_limits(config)?, "identifier"),
        };
        // Both plugins may have one owner.
        let value =
            if field == "limit_by" { owner.to_owned() } else { format!("{owner}/advanced") };
        let mut path: Vec<PathEntry> = vec![(KEY.to_owned(), Some(value.clone()))];
        let mut actions = vec![fixed(KEY, &value)];
        let by = text(config, field).unwrap_or("consumer");
        let mut add = |key: &str, action: Value| {
            path.push((key.to_owned(), None));
            actions.push(action);
        };
        match by {
            "ip" => add("remote_address", remote_address()),
            "service" => {}
            "header" => {
                let header_name = text(config, "header_name").ok_or("`header_name` is missing")?;
                let header_name = header_name.to_ascii_lowercase();
                add(&header_name, header(&header_name, &header_name));
            }
            "path" => {
                let wanted = text(config, "path").ok_or("`path` is missing")?;
                let matches = json!([{ "name": ":path", "string_match": { "exact": wanted } }]);
                let action = json!({ "descriptor_key": "path", "descriptor_value": wanted, "headers": matches });
                path.push(("path".to_owned(), Some(wanted.to_owned())));
                actions.push(json!({ "header_value_match": action }));
            }
            "consumer" | "credential" => {
                let header_name = match by {
                    "consumer" => "x-consumer-username",
                    _ => "x-credential-identifier",
                };
                add(by, header(by, header_name));
                let error = format!(
                    "`{field}: {by}`: Envoy does not know Kong's consumers; the rule counts the header \
                     {header_name}, which your authentication must set, and no request without it"
                );
                self.leave_out(plugin, &error);
            }
            other => return Err(format!("`{field}: {other}` has no equivalent")),
        }
        let (item, place) = (Item::new(actions), place(self.name, plugin));
        Ok(Plugin { path, limits, item, place, is_used: false })
    }

    /// The routes of each host. Those for all hosts come after those of one.
    fn hosts(&mut self, owned: &[Owned<'_>]) -> Vec<Route> {
        if owned.is_empty() {
            let owners = ["all".to_owned()];
            let items = PLUGINS.iter().filter_map(|plugin| self.item(&owners, plugin)).collect();
            return vec![Route::all(items)];
        }
        let texts = |node: &Node<'_>, field: &str| -> Vec<String> {
            list(node, field).iter().filter_map(Node::text).map(str::to_owned).collect()
        };
        let mut hosts: BTreeSet<String> =
            owned.iter().flat_map(|it| texts(it.node, "hosts")).collect();
        hosts.insert("*".to_owned());
        let mut routes = Vec::new();
        for host in &hosts {
            let mut of_host = Vec::new();
            for route in owned {
                let own = texts(route.node, "hosts");
                if !own.is_empty() && !own.contains(host) {
                    continue;
                }
                let items: Vec<Item> =
                    PLUGINS.iter().filter_map(|plugin| self.item(&route.owners, plugin)).collect();
                let paths = match texts(route.node, "paths") {
                    paths if paths.is_empty() => vec!["/".to_owned()],
                    paths => paths,
                };
                for path in paths {
                    let mut matches = match path.strip_prefix('~') {
                        Some(regex) => json!({ "safe_regex": { "regex": format!("{regex}.*") } }),
                        None => json!({ "prefix": path }),
                    };
                    let methods = texts(route.node, "methods");
                    if !methods.is_empty() {
                        let regex = json!({ "safe_regex": { "regex": methods.join("|") } });
                        matches["headers"] = json!([{ "name": ":method", "string_match": regex }]);
                    }
                    // Kong prefers hosts, then methods, then expressions, then long paths.
                    let order = (
                        own.is_empty(),
                        methods.is_empty(),
                        !path.starts_with('~'),
                        usize::MAX - path.len(),
                    );
                    of_host.push((order, matches, items.clone()));
                }
            }
            of_host.sort_by_key(|(order, _, _)| *order);
            routes.extend(of_host.into_iter().map(|(_, matches, items)| Route {
                host: if host == "*" { "all".to_owned() } else { host.clone() },
                domains: vec![host.clone()],
                matches: node(&matches),
                items,
            }));
        }
        routes
    }

    /// The item of the most specific plugin of a name. Adds its rule.
    fn item(&mut self, owners: &[String], name: &'static str) -> Option<Item> {
        let key = |owner: &&String| self.plugins.contains_key(&((*owner).clone(), name));
        let owner = owners.iter().find(key)?.clone();
        let converted = self.plugins.get_mut(&(owner, name))?;
        let plugin = converted.as_mut()?;
        if !std::mem::replace(&mut plugin.is_used, true) {
            for limit in &plugin.limits {
                if let Err(error) = self.rules.add(plugin.path.clone(), limit.clone()) {
                    self.left_out.push(format!("{}: {error}", plugin.place));
                    *converted = None;
                    return None;
                }
            }
        }
        Some(plugin.item.clone())
    }
}

/// The name of a service or route as an owner: two without a name are not one.
fn owner(kind: &str, node: &Node<'_>) -> String {
    match text(node, "name") {
        Some(name) => format!("{kind}/{name}"),
        None => format!("{kind}/unnamed-{}", node.position.line().unwrap_or_default()),
    }
}

/// Whether a field has a value: not null, nor an empty list or map.
fn is_given(node: &Node<'_>, field: &str) -> bool {
    get(node, field).is_some_and(|value| match value.content() {
        Content::Scalar(_) => value.value() != Some(Scalar::Null),
        Content::List(items) => !items.is_empty(),
        Content::Map(entries) => !entries.is_empty(),
    })
}

/// The limits of `rate-limiting`: fixed windows, those of months and years by the calendar.
fn limits(config: &Node<'_>) -> Result<Vec<Limit>, String> {
    let units = [
        ("second", Unit::Second),
        ("minute", Unit::Minute),
        ("hour", Unit::Hour),
        ("day", Unit::Day),
        ("month", Unit::Month),
        ("year", Unit::Year),
    ];
    let mut limits = Vec::new();
    for (field, unit) in units {
        if !is_given(config, field) {
            continue;
        }
        let requests = number(config, field).and_then(|number| u32::try_from(number).ok());
        let requests_per_unit =
            requests.ok_or_else(|| format!("`{field}` is not a number from 0 to 4294967295"))?;
        let algorithm = match unit {
            Unit::Month | Unit::Year => Algorithm::Calendar,
            _ => Algorithm::FixedWindow,
        };
        limits.push(Limit {
            name: String::new(),
            requests_per_unit,
            unit,
            multiplier: 1,
            algorithm,
        });
    }
    match limits.is_empty() {
        true => Err("it has no limit, such as `minute`".to_owned()),
        false => Ok(limits),
    }
}

/// The limits of `rate-limiting-advanced`: a list of numbers, and one of the seconds of their windows.
fn advanced_limits(config: &Node<'_>) -> Result<Vec<Limit>, String> {
    let numbers = |field: &str| -> Option<Vec<i64>> {
        let number = |node: &Node<'_>| node.text()?.parse().ok();
        items(get(config, field)?)?.iter().map(number).collect()
    };
    let limits = numbers("limit").ok_or("`limit` is not a list of whole numbers")?;
    let windows = numbers("window_size").ok_or("`window_size` is not a list of whole seconds")?;
    if limits.len() != windows.len() || limits.is_empty() {
        return Err("`limit` and `window_size` have different lengths".to_owned());
    }
    let algorithm = match text(config, "window_type") {
        Some("fixed") => Algorithm::FixedWindow,
        _ => Algorithm::SlidingWindow,
    };
    let limit = |(limit, window): (&i64, &i64)| {
        let requests_per_unit =
            u32::try_from(*limit).map_err(|_| format!("the limit {limit} is out of range"))?;
        let (unit, multiplier) = period(*window)
            .ok_or_else(|| format!("a window of {window} seconds is out of range"))?;
        Ok(Limit { name: String::new(), requests_per_unit, unit, multiplier, algorithm })
    };
    limits.iter().zip(&windows).map(limit).collect()
}

#[cfg(test)]
mod tests;
