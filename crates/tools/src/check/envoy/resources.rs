//! `weir check --envoy`: reports a file that is no Envoy configuration, with a command that prints one.

use super::nodes::{get, list, text, walk};
use weir_rules::tree::Node;
use weir_rules::{Position, Problem};

pub(super) const HELP: &str = "name an Envoy configuration in YAML or JSON";

/// The kind, API version and position of each Kubernetes resource in a document, which may be a list of them.
fn kinds<'n>(root: &'n Node<'_>) -> Vec<(&'n str, &'n str, Position)> {
    let resources = match text(root, "kind").ends_with("List") {
        true => list(root, "items"),
        false => std::slice::from_ref(root),
    };
    let kind = |node: &'n Node<'_>| (text(node, "kind"), text(node, "apiVersion"), node.position);
    let kinds = resources.iter().map(kind);
    kinds.filter(|(kind, version, _)| !kind.is_empty() && !version.is_empty()).collect()
}

pub(super) fn not_a_configuration(file: &str, documents: &[Node<'_>]) -> Problem {
    let is_rule_file =
        |root: &Node<'_>| get(root, "domain").is_some() && get(root, "descriptors").is_some();
    let (position, message, help) = if let Some(binds) = documents.iter().find_map(binds) {
        let help = "try what the descriptors of `remoteRateLimit` send with `weir explain RULES -d DOMAIN key=value`";
        (binds, "this is a configuration of agentgateway, not of Envoy".to_owned(), help.to_owned())
    } else if documents.iter().any(is_rule_file) {
        let help = "write it before --envoy, and an Envoy configuration after it";
        let message = "this is a rule file, not an Envoy configuration";
        (Position::in_text(1, 1), message.to_owned(), help.to_owned())
    } else if let Some(patches) = documents.iter().find_map(patches) {
        let message = "this is an EnvoyFilter, which changes a configuration that is not here";
        (patches, message.to_owned(), command("EnvoyFilter", "networking.istio.io", file))
    } else if let Some((kind, version, position)) = documents.iter().flat_map(kinds).next() {
        // As they are spoken: an HTTPRoute, a UDPRoute.
        let is_vowel = kind.starts_with(['A', 'E', 'I', 'O', 'U']) && !kind.starts_with("UDP");
        let article = if is_vowel || kind.starts_with("HTTP") { "an" } else { "a" };
        let message = format!("this is {article} {kind}, not an Envoy configuration");
        (position, message, command(kind, version, file))
    } else {
        let message = "there is no listener, route or cluster in this file";
        (Position::in_text(1, 1), message.to_owned(), HELP.to_owned())
    };
    Problem::of_file(file, message, help).at(position)
}

/// Returns where Istio's EnvoyFilter has its patches.
pub(super) fn patches(root: &Node<'_>) -> Option<Position> {
    let mut found = None;
    walk(root, &mut |node, _| {
        found = found.or(get(node, "config_patches").map(|patches| patches.position));
    });
    found
}

/// Returns where a configuration of agentgateway has its ports.
pub(super) fn binds(root: &Node<'_>) -> Option<Position> {
    get(root, "binds").map(|binds| binds.position)
}

/// Returns the command that prints the Envoy configuration of a resource.
fn command(kind: &str, version: &str, file: &str) -> String {
    let group = version.split('/').next().unwrap_or_default();
    let pipe = "| weir check RULES --envoy -";
    if group.ends_with("istio.io") {
        return format!("write `istioctl proxy-config all POD -n NAMESPACE -o json {pipe}`");
    }
    if group == "gateway.envoyproxy.io" || group == "gateway.networking.k8s.io" {
        return format!(
            "for Envoy Gateway, write `egctl x translate --from gateway-api --to xds -o json -f {file} {pipe}`, \
             with the Gateway and its routes in the file; or `egctl config envoy-proxy all -A -o json {pipe}`"
        );
    }
    if kind == "ConfigMap" {
        return format!(
            "write the file of Envoy that it has, such as `kubectl get configmap NAME -o \
             jsonpath='{{.data.envoy\\.yaml}}' {pipe}`"
        );
    }
    format!("write the dump of a running Envoy, `curl -s http://ADMIN/config_dump {pipe}`")
}
