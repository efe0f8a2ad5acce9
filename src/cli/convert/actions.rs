//! Envoy's side of converted rules: a configuration whose routes send the descriptors.

use std::fmt::Write;

use serde_json::{Value, json};

use super::yaml::{flow, node};
use weir_rules::tree::Node;

/// An item of `rate_limits`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub actions: Vec<Node<'static>>,
    /// Whether the item releases a hit when the response ends.
    pub is_end: bool,
}

/// A route, and what it sends.
#[derive(Debug)]
pub(super) struct Route {
    /// The name of its virtual host. Routes of one host follow each other.
    pub host: String,
    pub domains: Vec<String>,
    /// `match` of the route.
    pub matches: Node<'static>,
    pub items: Vec<Item>,
}

impl Item {
    pub fn new(actions: impl IntoIterator<Item = Value>) -> Item {
        Item { actions: actions.into_iter().map(|action| node(&action)).collect(), is_end: false }
    }
}

/// Returns what is said of limits at these places, if there are several, whose file does not name their routes.
pub fn without_routes(places: Vec<String>) -> Vec<String> {
    let text = "the file does not say which requests this limits: its action is on the route of all, with those of the \
                others; move it to its own";
    let several = if places.len() > 1 { places } else { Vec::new() };
    several.into_iter().map(|place| format!("{place}: {text}")).collect()
}

impl Route {
    /// All requests of all hosts.
    pub fn all(items: Vec<Item>) -> Route {
        Route {
            host: "all".to_owned(),
            domains: vec!["*".to_owned()],
            matches: node(&json!({ "prefix": "/" })),
            items,
        }
    }
}

/// An action with a fixed entry.
pub(super) fn fixed(key: &str, value: &str) -> Value {
    json!({ "generic_key": { "descriptor_key": key, "descriptor_value": value } })
}

/// An action with the value of a header.
pub(super) fn header(key: &str, name: &str) -> Value {
    json!({ "request_headers": { "header_name": name, "descriptor_key": key } })
}

pub(super) fn remote_address() -> Value {
    json!({ "remote_address": {} })
}

/// An action with the value of an expression (CEL).
pub(super) fn expression(key: &str, text: &str) -> Value {
    json!({ "extension": {
        "name": "envoy.rate_limit_descriptors.expr",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor",
            "descriptor_key": key,
            "text": text,
        },
    } })
}

const HEAD: &str = "\
# What Envoy sends to weir for rules.yaml. Copy the filter, the cluster weir and the settings of the routes into your
# configuration; listener, routes and the cluster backend are examples.
static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 0.0.0.0, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                use_remote_address: true
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: DOMAIN
                      timeout: 0.02s
                      failure_mode_deny: false
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: { envoy_grpc: { cluster_name: weir } }
                  - name: envoy.filters.http.router
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  name: local_route
                  virtual_hosts:
";

const TAIL: &str = "  clusters:
    - name: weir
      type: STRICT_DNS
      connect_timeout: 1s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: weir
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8081 } } }
    - name: backend
      type: STRICT_DNS
      connect_timeout: 1s
      load_assignment:
        cluster_name: backend
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 10002 } } }
";

/// Returns the configuration; none if no route sends anything.
pub(super) fn write(domain: &str, routes: &[Route]) -> Option<String> {
    routes.iter().find(|route| !route.items.is_empty())?;
    let quoted = |text: &str| flow(&node(&json!(text)));
    let mut out = HEAD.replace("DOMAIN", &quoted(domain));
    let mut host = None;
    for route in routes {
        if host != Some(&route.host) {
            host = Some(&route.host);
            let (name, domains) = (quoted(&route.host), flow(&node(&json!(route.domains))));
            line(&mut out, 20, &format!("- name: {name}"));
            line(&mut out, 22, &format!("domains: {domains}"));
            line(&mut out, 22, "routes:");
        }
        line(&mut out, 24, &format!("- match: {}", flow(&route.matches)));
        line(&mut out, 26, "route: { cluster: backend }");
        if route.items.is_empty() {
            continue;
        }
        line(&mut out, 26, "typed_per_filter_config:");
        line(&mut out, 28, "envoy.filters.http.ratelimit:");
        let kind =
            "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
        line(&mut out, 30, &format!("\"@type\": {kind}"));
        line(&mut out, 30, "rate_limits:");
        for item in &route.items {
            line(&mut out, 32, "- actions:");
            item.actions.iter().for_each(|it| line(&mut out, 36, &format!("- {}", flow(it))));
            if item.is_end {
                line(&mut out, 34, "apply_on_stream_done: true");
                line(&mut out, 34, "hits_addend: { number: 1, is_negative_hits: true }");
            }
        }
    }
    Some(out + TAIL)
}

fn line(out: &mut String, indent: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:indent$}{text}", "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::nodes::{get, list};
    use weir_rules::yaml;

    #[test]
    fn a_configuration_has_a_listener_and_both_clusters() {
        let item = Item::new([fixed("a", "b: c"), remote_address()]);
        let routes =
            [Route::all(vec![item.clone(), Item { is_end: true, ..item }]), Route::all(Vec::new())];
        let text = write("a: b", &routes).unwrap();
        let root = yaml::parse(&text).unwrap().unwrap();
        let resources = get(&root, "static_resources").unwrap();
        assert_eq!((list(resources, "listeners").len(), list(resources, "clusters").len()), (1, 2));
        let releases = "apply_on_stream_done: true";
        assert_eq!((text.matches("- match: ").count(), text.matches(releases).count()), (2, 1));
        assert_eq!(write("a", &[Route::all(Vec::new())]), None);
    }
}
