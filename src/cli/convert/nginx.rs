//! Converts `limit_req` and `limit_conn` of nginx.
//!
//! A zone of `limit_req_zone` becomes a `gcra` limit, which spaces requests as nginx does; nginx counts the burst
//! beside the first request. A zone of `limit_conn_zone` becomes a `concurrency` limit: with HTTP/2, nginx counts
//! requests too. The zone's name is the first entry of a descriptor, its key the others.

mod parser;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::parser::{Directive, parse};
use super::Converted;
use super::actions::{Item, Route, fixed, header, remote_address};
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use super::yaml::node;
use weir_limit::Unit;

/// The key of the entry with a zone's name.
const ZONE: &str = "zone";

const NOTE: &str = "nginx answers 503 and counts in each machine, unless it is configured otherwise; Envoy answers \
                    429, and weir counts for all together";

/// The key of a zone: the entries and actions of its variables.
type Key = Vec<(String, Value)>;

#[derive(Default)]
struct Conversion<'d> {
    name: &'d str,
    domain: Domain,
    left_out: Vec<String>,
    /// Zones of requests, with their rates, and of connections.
    rates: BTreeMap<&'d str, (Key, (u32, Unit))>,
    connections: BTreeMap<&'d str, Key>,
    /// The rules so far: the names of their zones, with the burst or the number of connections.
    rules: BTreeMap<String, (String, u32)>,
    domains: BTreeSet<String>,
    routes: Vec<Route>,
}

/// The directives that apply to a location.
#[derive(Clone, Copy, Default)]
struct Scope<'d> {
    requests: &'d [Directive],
    connections: &'d [Directive],
}

/// Converts a configuration, or a part of one.
///
/// # Errors
///
/// The text is no such configuration.
pub(super) fn convert(name: &str, text: &str, domain: &str) -> Result<Converted, String> {
    let directives =
        parse(text).map_err(|(line, error)| format!("error: {name}:{line}: {error}"))?;
    let mut conversion = Conversion { name, domain: Domain::new(domain), ..Conversion::default() };
    conversion.zones(&directives);
    conversion.block(&directives, Scope::default());
    let Conversion { domain: rules, left_out, routes, .. } = conversion;
    let mut converted = Converted::with_envoy(domain, &rules, &routes);
    converted.left_out = left_out;
    if !rules.is_empty() {
        converted.notes.push(NOTE);
    }
    Ok(converted)
}

impl<'d> Conversion<'d> {
    fn leave_out(&mut self, line: usize, error: &str) {
        self.left_out.push(format!("{}:{line}: {error}", self.name));
    }

    /// Reads the zones of all blocks.
    fn zones(&mut self, directives: &'d [Directive]) {
        for directive in directives.iter().filter(|it| !is_of_connections(it)) {
            let is_rate = directive.name == "limit_req_zone";
            if is_rate || directive.name == "limit_conn_zone" {
                let added = self.zone(directive, is_rate);
                added.unwrap_or_else(|error| self.leave_out(directive.line, &error));
            }
            self.zones(&directive.block);
        }
    }

    fn zone(&mut self, directive: &'d Directive, is_rate: bool) -> Result<(), String> {
        let key = directive.args.first().ok_or("there is no key")?;
        let zone = value(directive, "zone").ok_or("there is no `zone=NAME:SIZE`")?;
        let zone = zone.split(':').next().unwrap_or(zone);
        let key = zone_key(key)?;
        if is_rate {
            let rate = value(directive, "rate").and_then(rate);
            let rate = rate.ok_or("there is no `rate=Nr/s` or `rate=Nr/m` above 0")?;
            self.rates.insert(zone, (key, rate));
        } else {
            self.connections.insert(zone, key);
        }
        Ok(())
    }

    /// Converts the servers in a block.
    fn block(&mut self, directives: &'d [Directive], outer: Scope<'d>) {
        let scope = scope(directives, outer);
        for directive in directives {
            match directive.name.as_str() {
                "server" => self.server(directive, scope),
                "stream" | "mail" if has_limits(&directive.block) => {
                    let error = format!(
                        "`{}` has connections, not requests: Envoy's HTTP filter does not count them",
                        directive.name
                    );
                    self.leave_out(directive.line, &error);
                }
                _ if is_of_connections(directive) => {}
                "include" => {
                    let error = "`include` is not followed: convert the output of `nginx -T`";
                    self.leave_out(directive.line, error);
                }
                _ => self.block(&directive.block, scope),
            }
        }
        self.report_switches(directives);
    }

    /// Lists what changes limits and has no equivalent.
    fn report_switches(&mut self, directives: &[Directive]) {
        for directive in directives {
            let is_on = directive.args.first().is_some_and(|arg| arg == "on");
            if matches!(directive.name.as_str(), "limit_req_dry_run" | "limit_conn_dry_run")
                && is_on
            {
                let error =
                    format!("`{}`: write `shadow_mode: true` into the rule", directive.name);
                self.leave_out(directive.line, &error);
            }
        }
    }

    fn server(&mut self, server: &'d Directive, outer: Scope<'d>) {
        let scope = scope(&server.block, outer);
        self.report_switches(&server.block);
        let names =
            server.block.iter().filter(|it| it.name == "server_name").flat_map(|it| &it.args);
        let mut domains = Vec::new();
        for name in names {
            match name.as_str() {
                "" | "_" => domains.push("*".to_owned()),
                name if name.starts_with('~') => {
                    let error = format!("server_name `{name}`: Envoy's hosts have no expressions");
                    self.leave_out(server.line, &error);
                }
                name => match name.strip_prefix('.') {
                    Some(domain) => domains.extend([domain.to_owned(), format!("*.{domain}")]),
                    None => domains.push(name.to_owned()),
                },
            }
        }
        if domains.is_empty() {
            domains.push("*".to_owned());
        }
        let count = domains.len();
        domains.retain(|domain| self.domains.insert(domain.clone()));
        if domains.len() < count {
            self.leave_out(
                server.line,
                "an earlier server has the same name: give it a listener of its own",
            );
        }
        let Some(host) = domains.first().cloned() else { return };
        let mut routes = Vec::new();
        self.locations(&server.block, scope, &mut routes);
        // Envoy takes the first that matches, nginx the most specific.
        routes.sort_by_key(|(order, _, _)| *order);
        let has_root = routes.iter().any(|(_, matches, _)| *matches == json!({ "prefix": "/" }));
        if !has_root {
            let items = self.items(scope);
            routes.push(((3, 0), json!({ "prefix": "/" }), items));
        }
        self.routes.extend(routes.into_iter().map(|(_, matches, items)| Route {
            host: host.clone(),
            domains: domains.clone(),
            matches: node(&matches),
            items,
        }));
    }

    /// Adds the locations of a block, each with its place in the order of matching.
    fn locations(
        &mut self,
        directives: &'d [Directive],
        outer: Scope<'d>,
        routes: &mut Vec<((u8, usize), Value, Vec<Item>)>,
    ) {
        for directive in directives {
            match directive.name.as_str() {
                "location" => {}
                "include" => {
                    let error = "`include` is not followed: convert the output of `nginx -T`";
                    self.leave_out(directive.line, error);
                    continue;
                }
                _ => continue,
            }
            let scope = scope(&directive.block, outer);
            self.report_switches(&directive.block);
            let args: Vec<&str> = directive.args.iter().map(String::as_str).collect();
            let pattern = args.last().copied().unwrap_or_default();
            let (order, matches) = match args.as_slice() {
                [name] if name.starts_with('@') => continue,
                ["=", path] => ((0, 0), json!({ "path": path })),
                ["^~", path] => ((1, usize::MAX - path.len()), json!({ "prefix": path })),
                ["~" | "~*", _] => {
                    let case = if args[0] == "~*" { "(?i)" } else { "" };
                    let regex = format!("{case}.*(?:{pattern}).*");
                    let place = routes.len();
                    ((2, place), json!({ "safe_regex": { "regex": regex } }))
                }
                [path] => ((3, usize::MAX - path.len()), json!({ "prefix": path })),
                _ => {
                    self.leave_out(
                        directive.line,
                        "a location has a path, or one of = ^~ ~ ~* and a path",
                    );
                    continue;
                }
            };
            self.locations(&directive.block, scope, routes);
            let items = self.items(scope);
            routes.push((order, matches, items));
        }
    }

    /// The items of a location. Adds their rules.
    fn items(&mut self, scope: Scope<'d>) -> Vec<Item> {
        let requests = scope.requests.iter().filter(|it| it.name == "limit_req");
        let connections = scope.connections.iter().filter(|it| it.name == "limit_conn");
        let mut items = Vec::new();
        for directive in requests.chain(connections) {
            match self.item(directive) {
                Ok(item) if directive.name == "limit_conn" => {
                    items.push(item.clone());
                    items.push(Item { is_end: true, ..item });
                }
                Ok(item) => items.push(item),
                Err(error) => self.leave_out_once(directive.line, &error),
            }
        }
        items
    }

    /// Lists what is inherited by several locations once.
    fn leave_out_once(&mut self, line: usize, error: &str) {
        let text = format!("{}:{line}: {error}", self.name);
        if !self.left_out.contains(&text) {
            self.left_out.push(text);
        }
    }

    fn item(&mut self, directive: &'d Directive) -> Result<Item, String> {
        let (zone, key, limit, number) = match directive.name.as_str() {
            "limit_req" => {
                let zone = value(directive, "zone").ok_or("there is no `zone=NAME`")?;
                let known = self.rates.get(zone);
                let (key, (requests, unit)) = known
                    .ok_or_else(|| format!("the zone `{zone}` is not known or not converted"))?;
                let burst = match value(directive, "burst") {
                    Some(burst) => burst.parse::<u32>().map_err(|_| "`burst` is not a number")?,
                    None => 0,
                };
                let limit = Limit {
                    name: String::new(),
                    requests_per_unit: *requests,
                    unit: *unit,
                    multiplier: 1,
                    algorithm: Algorithm::Gcra(burst.saturating_add(1)),
                };
                (zone, key.clone(), limit, burst)
            }
            _ => {
                let [zone, number] = directive.args.as_slice() else {
                    return Err("`limit_conn` has a zone and a number".to_owned());
                };
                let key = self.connections.get(zone.as_str());
                let key =
                    key.ok_or_else(|| format!("the zone `{zone}` is not known or not converted"))?;
                let number = number.parse::<u32>().map_err(|_| "its number is not a number")?;
                let limit = Limit {
                    name: String::new(),
                    requests_per_unit: number,
                    unit: Unit::Second,
                    multiplier: 1,
                    algorithm: Algorithm::Concurrency,
                };
                (zone.as_str(), key.clone(), limit, number)
            }
        };
        let name = self.rule(directive, zone, number);
        let mut path: Vec<PathEntry> = vec![(ZONE.to_owned(), Some(name.clone()))];
        path.extend(key.iter().map(|(key, _)| (key.clone(), None)));
        if !self.rules.contains_key(&name) {
            self.domain.add(path, limit)?;
            self.rules.insert(name.clone(), (directive.name.clone(), number));
        }
        let is_whole = directive.args.iter().any(|arg| arg == "nodelay");
        if directive.name == "limit_req" && number > 0 && !is_whole {
            let error = "nginx delays requests of the burst without `nodelay`; weir lets them pass at once and \
                         denies those after them";
            self.leave_out_once(directive.line, error);
        }
        let key = key.into_iter().map(|(_, action)| action);
        Ok(Item::new(std::iter::once(fixed(ZONE, &name)).chain(key)))
    }

    /// The name of the rule for a zone with this burst or number. nginx has one count for all of a zone.
    fn rule(&mut self, directive: &Directive, zone: &str, number: u32) -> String {
        let wanted = (directive.name.clone(), number);
        match self.rules.get(zone) {
            None => zone.to_owned(),
            Some(known) if *known == wanted => zone.to_owned(),
            Some(_) => {
                let error = format!(
                    "the zone `{zone}` is used with several bursts or numbers, or for requests and \
                     connections: weir counts for each"
                );
                self.leave_out_once(directive.line, &error);
                let kind = if directive.name == "limit_conn" { "connections" } else { "burst" };
                format!("{zone}-{kind}-{number}")
            }
        }
    }
}

/// Whether the servers of a block are not HTTP's.
fn is_of_connections(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "stream" | "mail")
}

/// Whether a block has a limit, or what may have one.
fn has_limits(directives: &[Directive]) -> bool {
    directives.iter().any(|it| {
        matches!(it.name.as_str(), "limit_req" | "limit_conn" | "include") || has_limits(&it.block)
    })
}

/// The directives of a block, if it has any of its own: they replace those of the outer one.
fn scope<'d>(directives: &'d [Directive], outer: Scope<'d>) -> Scope<'d> {
    let has = |name: &str| directives.iter().any(|it| it.name == name);
    Scope {
        requests: if has("limit_req") { directives } else { outer.requests },
        connections: if has("limit_conn") { directives } else { outer.connections },
    }
}

/// The value of an argument `NAME=VALUE`.
fn value<'d>(directive: &'d Directive, name: &str) -> Option<&'d str> {
    directive.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
}

fn rate(text: &str) -> Option<(u32, Unit)> {
    let (number, unit) = match text.strip_suffix("r/s") {
        Some(number) => (number, Unit::Second),
        None => (text.strip_suffix("r/m")?, Unit::Minute),
    };
    number.parse().ok().filter(|number| *number > 0).map(|number| (number, unit))
}

/// The entries and actions of the variables of a key.
fn zone_key(key: &str) -> Result<Key, String> {
    let mut entries: Key = Vec::new();
    let mut rest = key;
    while let Some(at) = rest.find('$') {
        let inner = &rest[at + 1..];
        let (name, after) = match inner.strip_prefix('{').and_then(|it| it.split_once('}')) {
            Some(found) => found,
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                inner.split_at(inner.find(|c| !is_name(c)).unwrap_or(inner.len()))
            }
        };
        rest = after;
        let entry = variable(name).ok_or_else(|| {
            format!("Envoy has no action for the variable `${name}`: use an address, a header, an argument or the path")
        })?;
        if !entries.iter().any(|(key, _)| *key == entry.0) {
            entries.push(entry);
        }
    }
    // Text between variables, or a key without any, is the same for all requests.
    Ok(entries)
}

fn variable(name: &str) -> Option<(String, Value)> {
    let of_header = |key: &str, name: &str| Some((key.to_owned(), header(key, name)));
    match name {
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" => {
            Some(("remote_address".to_owned(), remote_address()))
        }
        "host" | "http_host" | "server_name" => of_header("host", ":authority"),
        "uri" | "request_uri" | "document_uri" => of_header("path", ":path"),
        "request_method" => of_header("method", ":method"),
        "scheme" => of_header("scheme", ":scheme"),
        name => {
            if let Some(header) = name.strip_prefix("http_") {
                return of_header(header, &header.replace('_', "-"));
            }
            let argument = name.strip_prefix("arg_")?;
            let query = json!({ "query_parameter_name": argument, "descriptor_key": argument });
            Some((argument.to_owned(), json!({ "query_parameters": query })))
        }
    }
}
