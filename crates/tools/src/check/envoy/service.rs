//! `weir check --envoy`: checks that Envoy's filters can reach weir, and turn away requests that weir denies.

use std::collections::HashMap;

use super::findings::Findings;
use super::nodes::{get, has_type, list, path, text};
use weir_rules::tree::{Content, Node};

/// Whether each cluster, by its name, uses HTTP/2.
#[derive(Default)]
pub(super) struct Clusters<'n>(HashMap<&'n str, bool>);

impl<'n> Clusters<'n> {
    /// Adds the clusters of a node: those of a list, or itself.
    pub fn add(&mut self, node: &'n Node<'_>) {
        let is_cluster = has_type(node, "config.cluster.v3.Cluster");
        // The `clusters` of a route are weighted, and name clusters that are defined elsewhere.
        let listed = list(node, "clusters").iter().filter(|item| get(item, "weight").is_none());
        for cluster in listed.chain(is_cluster.then_some(node)) {
            *self.0.entry(text(cluster, "name")).or_default() |= uses_http2(cluster);
        }
    }

    /// Reports a filter whose cluster is known and does not use HTTP/2.
    pub fn check(&self, filter: &Node<'_>, findings: &mut Findings) {
        let fields = ["rate_limit_service", "grpc_service", "envoy_grpc", "cluster_name"];
        let Some(name) = path(filter, &fields) else { return };
        if name.text().and_then(|name| self.0.get(name)) == Some(&false) {
            let message = format!(
                "the cluster '{}' does not use HTTP/2, which gRPC needs: Envoy gets no answer from weir, and limits \
                 nothing",
                name.shown()
            );
            let help = "give the cluster `typed_extension_protocol_options` with `explicit_http_config: { \
                        http2_protocol_options: {} }`, as in docs/envoy.md";
            findings.add_error(name.position, message, help);
        }
    }
}

/// Whether calls to weir are in HTTP/2. With `use_downstream_protocol_config` they are in HTTP/1, whatever clients speak.
fn uses_http2(cluster: &Node<'_>) -> bool {
    let is_http2 = |options: &Node<'_>| {
        let explicit = |field| path(options, &["explicit_http_config", field]).is_some();
        // TLS negotiates that of `auto_config`.
        get(options, "auto_config").is_some()
            || explicit("http2_protocol_options")
            || explicit("http3_protocol_options")
    };
    let typed = get(cluster, "typed_extension_protocol_options").map(Node::content);
    get(cluster, "http2_protocol_options").is_some()
        || matches!(typed, Some(Content::Map(all)) if all.iter().any(|(_, options)| is_http2(options)))
}

/// The names of statuses below 400.
const BELOW_400: &str = "\
    Continue OK Created Accepted NonAuthoritativeInformation NoContent ResetContent PartialContent MultiStatus \
    AlreadyReported IMUsed MultipleChoices MovedPermanently Found SeeOther NotModified UseProxy TemporaryRedirect \
    PermanentRedirect";

/// Reports statuses of an HTTP filter with which nothing is denied, and a field that another one replaces.
pub(super) fn check_denials(filter: &Node<'_>, findings: &mut Findings) {
    let below_400 = |field| {
        let code = path(filter, &[field, "code"])?;
        let is_below = |code: &str| match code.parse() {
            Ok(code) => (1..400_u16).contains(&code),
            Err(_) => BELOW_400.split(' ').any(|name| name == code),
        };
        code.text().is_some_and(is_below).then_some(code)
    };
    let (share, deny) =
        (get(filter, "failure_mode_deny_percent"), get(filter, "failure_mode_deny"));
    if let Some(deny) = deny.filter(|_| share.is_some()) {
        let message = "Envoy ignores `failure_mode_deny` beside `failure_mode_deny_percent`";
        let help = "remove it; 100 percent deny all requests without an answer";
        findings.add(deny.position, message.to_owned(), "", help);
    }
    let denies = share.is_some() || text(filter, "failure_mode_deny") == "true";
    if let Some(code) = below_400("status_on_error").filter(|_| denies) {
        let message =
            format!("requests that are denied without an answer get the status {}", code.shown());
        let help = "write a status from 400 on: Envoy sends it as it is";
        findings.add(code.position, message, "", help);
    }
    if let Some(code) = below_400("rate_limited_status") {
        let message = format!("Envoy sends 429 instead of the status {}", code.shown());
        let help = "write a status from 400 on: Envoy ignores others";
        findings.add(code.position, message, "", help);
    }
}
