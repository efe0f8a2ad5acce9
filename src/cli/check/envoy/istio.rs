//! Istio's EnvoyFilter resources: the filters and `rate_limits` that their patches add to proxies.
//!
//! A patch names the host and the route that it changes. Istio makes these from other resources, so mostly
//! they are not in the files: then a route stands for them that has nothing but the patches. Of the patches,
//! a connection manager is made for each group of proxies that they select, and read like any other.

mod apply;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use self::apply::{apply, map, word};
pub(super) use self::sources::Sources;
use super::Findings;
use super::filter::{EnvoyConfig, Sent};
use super::input::EnvoyFile;
use super::nodes::{get, list, path, text, walk};
use super::resources::{ENVOY_FILTER, resources};
use super::routes::Routes;
use weir_rules::tree::{Content, Node};
use weir_rules::{Origin, Position};

/// The namespace whose resources are for all, unless Istio is configured otherwise.
const ROOT_NAMESPACE: &str = "istio-system";

/// The proxies that a resource is for: their namespace, and labels that they have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Selector<'n> {
    namespace: &'n str,
    labels: BTreeSet<(&'n str, &'n str)>,
}

/// A patch. Positions in its value are those of [`Sources`].
#[derive(Debug)]
struct Patch<'n, 'a> {
    selector: Selector<'n>,
    position: Position,
    apply_to: &'n str,
    /// Empty for all.
    context: &'n str,
    operation: &'n str,
    /// The names of the route configuration, the virtual host and the route; empty for all.
    config: &'n str,
    host: &'n str,
    route: &'n str,
    /// Whether a route configuration of the files has the host and the route that it names.
    is_known: bool,
    value: Node<'a>,
}

/// The patches of all files.
#[derive(Debug, Default)]
pub(super) struct Patches<'n, 'a> {
    list: Vec<Patch<'n, 'a>>,
    /// The route configurations of the files that patches name.
    known: Vec<Node<'a>>,
    /// The rate-limit filters of the files, for patches that rely on them.
    filters: Vec<Node<'a>>,
}

impl<'n, 'a> Patches<'n, 'a> {
    pub fn of(files: &'n [EnvoyFile<'a>], findings: &mut Findings) -> Patches<'n, 'a> {
        let mut patches = Patches::default();
        for (number, file) in files.iter().enumerate() {
            let found = file.documents.iter().flat_map(resources);
            for resource in found.filter(|it| text(it, "kind") == ENVOY_FILTER) {
                let selector = Selector::of(resource);
                let nodes =
                    get(resource, "spec").map_or(&[][..], |spec| list(spec, "config_patches"));
                patches.list.extend(nodes.iter().filter_map(|node| {
                    let value = path(node, &["patch", "value"])?;
                    let value = findings.sources.placed(number, value).share();
                    let position = findings.sources.position(number, node.position);
                    Some(Patch::new(&selector, node, position, value))
                }));
            }
        }
        if patches.list.is_empty() {
            return patches;
        }
        for (number, file) in files.iter().enumerate() {
            let is_configuration = |root: &&Node<'_>| {
                resources(root).iter().all(|it| text(it, "kind") != ENVOY_FILTER)
            };
            for document in file.documents.iter().filter(is_configuration) {
                walk(document, &mut |node, place| {
                    if place.is_copy {
                        return;
                    }
                    if get(node, "virtual_hosts").is_some() && patches.name(number, node, findings)
                    {
                        patches.known.push(findings.sources.placed(number, node));
                    }
                    let filters = list(node, "http_filters").iter();
                    patches
                        .filters
                        .extend(filters.map(|it| findings.sources.placed(number, it).share()));
                });
            }
        }
        patches
    }

    /// Whether patches name anything of a route configuration. Marks them as known.
    fn name(&mut self, file: usize, config: &Node<'_>, findings: &mut Findings) -> bool {
        let position = findings.sources.position(file, config.position);
        if !findings.spend(position, self.list.len().saturating_mul(config.size() as usize)) {
            return false;
        }
        let mut is_named = false;
        for patch in &mut self.list {
            if patch.names(config) {
                (is_named, patch.is_known) = (true, true);
            }
        }
        is_named
    }

    /// Returns a connection manager with its routes for each group of proxies and each of these route
    /// configurations: those that patches name, and one that stands for all others.
    pub fn managers(&self, findings: &mut Findings) -> Vec<Node<'a>> {
        let selectors: BTreeSet<&Selector<'_>> = self.list.iter().map(|it| &it.selector).collect();
        let mut contexts: BTreeSet<&str> = self.list.iter().map(|it| it.context).collect();
        if contexts.len() > 1 {
            contexts.remove("");
        }
        let mut managers = Vec::new();
        for selector in selectors {
            for context in &contexts {
                let Some(position) = self.list.first().map(|patch| patch.position) else { break };
                if !findings.spend(position, self.list.len()) {
                    return managers;
                }
                let patches: Vec<&Patch<'_, 'a>> =
                    self.list.iter().filter(|it| it.is_for(selector, context)).collect();
                let own: Vec<Node<'a>> =
                    patches.iter().filter_map(|it| it.filter()).cloned().collect();
                let filters = if own.is_empty() { self.filters.clone() } else { own };
                let others = others(&patches, position, findings);
                for base in self.known.iter().chain(&others) {
                    if !findings.spend(position, filters.len()) {
                        return managers;
                    }
                    let Some(routes) = apply(base, &patches, findings) else { return managers };
                    let fields = vec![
                        (word("http_filters"), Node::list(position, filters.clone())),
                        (word("route_config"), routes),
                    ];
                    managers.push(map(position, fields));
                }
            }
        }
        managers
    }

    /// Adds what the filters of the patches send. Returns whether all of it is known.
    pub fn read(
        &self,
        config: &EnvoyConfig<'_, 'a>,
        managers: &[Node<'a>],
        findings: &mut Findings,
        sent: &mut Vec<Sent>,
    ) -> bool {
        if self.list.is_empty() {
            return true;
        }
        let mut routes = Routes::new(config, findings);
        for manager in managers {
            if let Some(route_config) = get(manager, "route_config") {
                routes.read(manager, route_config, sent);
            }
        }
        let is_complete = routes.finish();
        self.note_unknown(findings);
        is_complete
    }

    /// Notes how many patches are for routes that are not in the files, once for each file.
    fn note_unknown(&self, findings: &mut Findings) {
        let mut unknown: BTreeMap<_, (Position, usize)> = BTreeMap::new();
        for patch in self.list.iter().filter(|it| it.is_merged() && !it.is_known) {
            let Origin { file, position } = findings.origin(patch.position);
            unknown.entry(file).or_insert((position, 0)).1 += 1;
        }
        for (file, (position, count)) in unknown {
            let (line, column) = (position.line().unwrap_or(1), position.column().unwrap_or(1));
            let patches = if count == 1 { "a patch is" } else { "patches are" };
            let number = if count == 1 { String::new() } else { format!("{count} ") };
            findings.notes.push(format!(
                "{file}:{line}:{column}: the routes of {number}{patches} not in these files: only domain and \
                 descriptors are compared, not whether the patch applies"
            ));
        }
    }
}

/// A route configuration that stands for those that are not in the files: its hosts and routes have the names
/// that patches have.
fn others<'a>(
    patches: &[&Patch<'_, 'a>],
    position: Position,
    findings: &mut Findings,
) -> Option<Node<'a>> {
    let unknown: Vec<_> = patches.iter().filter(|it| !it.is_known).collect();
    let hosts: BTreeSet<&str> = unknown.iter().map(|it| it.host).chain([""]).collect();
    let mut nodes = Vec::new();
    for host in hosts {
        if !findings.spend(position, unknown.len()) {
            return None;
        }
        let of_host = unknown.iter().filter(|it| it.host.is_empty() || it.host == host);
        let routes: BTreeSet<&str> = of_host.map(|it| it.route).chain([""]).collect();
        let route = |name: &&str| {
            let fields =
                vec![(word("name"), word(name)), (word("route"), map(position, Vec::new()))];
            map(position, fields)
        };
        let routes = Node::list(position, routes.iter().map(route).collect());
        nodes.push(map(position, vec![(word("name"), word(host)), (word("routes"), routes)]));
    }
    Some(map(position, vec![(word("virtual_hosts"), Node::list(position, nodes))]))
}

impl<'n> Selector<'n> {
    fn of(resource: &'n Node<'_>) -> Selector<'n> {
        let namespace = path(resource, &["metadata", "namespace"]).and_then(Node::text);
        let mut labels = BTreeSet::new();
        let selected = path(resource, &["spec", "workload_selector", "labels"]);
        if let Some(Content::Map(entries)) = selected.map(Node::content) {
            labels.extend(
                entries.iter().filter_map(|(key, value)| Some((key.text()?, value.text()?))),
            );
        }
        let targets = get(resource, "spec").map_or(&[][..], |spec| list(spec, "target_refs"));
        labels.extend(targets.iter().map(|target| (text(target, "kind"), text(target, "name"))));
        Selector { namespace: namespace.unwrap_or_default(), labels }
    }

    /// Whether proxies with all of these labels are selected.
    fn selects(&self, proxies: &Selector<'_>) -> bool {
        let is_near = self.namespace == proxies.namespace
            || [self.namespace, proxies.namespace].contains(&"")
            || self.namespace == ROOT_NAMESPACE;
        is_near && self.labels.is_subset(&proxies.labels)
    }
}

impl<'n, 'a> Patch<'n, 'a> {
    fn new(
        selector: &Selector<'n>,
        node: &'n Node<'a>,
        position: Position,
        value: Node<'a>,
    ) -> Patch<'n, 'a> {
        let named = |fields: &[&str]| path(node, fields).and_then(Node::text).unwrap_or_default();
        let context = named(&["match", "context"]);
        Patch {
            selector: selector.clone(),
            position,
            apply_to: text(node, "apply_to"),
            context: if context == "ANY" { "" } else { context },
            operation: named(&["patch", "operation"]),
            config: named(&["match", "route_configuration", "name"]),
            host: named(&["match", "route_configuration", "vhost", "name"]),
            route: named(&["match", "route_configuration", "vhost", "route", "name"]),
            is_known: false,
            value,
        }
    }

    fn is_for(&self, proxies: &Selector<'_>, context: &str) -> bool {
        self.operation != "REMOVE"
            && self.selector.selects(proxies)
            && (self.context.is_empty() || self.context == context)
    }

    /// The filter that it adds, if it adds one.
    fn filter(&self) -> Option<&Node<'a>> {
        matches!(self.apply_to, "HTTP_FILTER" | "EXTENSION_CONFIG").then_some(&self.value)
    }

    /// Whether its value is a host or a route of its own.
    fn adds(&self) -> bool {
        self.operation.starts_with("INSERT") || matches!(self.operation, "ADD" | "REPLACE")
    }

    /// Whether it changes a route that Istio makes.
    fn is_merged(&self) -> bool {
        matches!(self.apply_to, "ROUTE_CONFIGURATION" | "VIRTUAL_HOST" | "HTTP_ROUTE")
            && !self.adds()
            && self.operation != "REMOVE"
    }

    /// Whether it names a host or a route of a route configuration.
    fn names(&self, config: &Node<'_>) -> bool {
        if self.host.is_empty() && self.route.is_empty() {
            return false;
        }
        let is = |wanted: &str, node: &Node<'_>| wanted.is_empty() || wanted == text(node, "name");
        is(self.config, config)
            && list(config, "virtual_hosts").iter().any(|host| {
                is(self.host, host)
                    && (self.route.is_empty()
                        || list(host, "routes").iter().any(|route| is(self.route, route)))
            })
    }
}
