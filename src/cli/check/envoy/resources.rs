//! Resources of Kubernetes that are no Envoy configuration, and the commands that give one.

use super::nodes::{get, list, text};
use weir_rules::tree::Node;
use weir_rules::{Position, Problem};

/// What may be named.
pub(super) const HELP: &str = "name an Envoy configuration in YAML or JSON";

/// The kind of Istio's resources that patch the configuration of Envoy.
pub(super) const ENVOY_FILTER: &str = "EnvoyFilter";

/// The kind, the API version and the position of each resource of a document.
pub(super) fn kinds<'n>(root: &'n Node<'_>) -> Vec<(&'n str, &'n str, Position)> {
    let kind = |node: &'n Node<'_>| (text(node, "kind"), text(node, "apiVersion"), node.position);
    resources(root)
        .into_iter()
        .map(kind)
        .filter(|(kind, version, _)| !kind.is_empty() && !version.is_empty())
        .collect()
}

/// The resources of a document: itself, or the items of a list.
pub(super) fn resources<'n, 'a>(root: &'n Node<'a>) -> Vec<&'n Node<'a>> {
    match text(root, "kind").ends_with("List") {
        true => list(root, "items").iter().collect(),
        false => vec![root],
    }
}

/// The error of a file that is no configuration of Envoy.
pub(super) fn not_a_configuration(file: &str, documents: &[Node<'_>]) -> Problem {
    let is_rule_file =
        |root: &Node<'_>| get(root, "domain").is_some() && get(root, "descriptors").is_some();
    if let Some(binds) = documents.iter().find_map(binds) {
        let message = "this is a configuration of agentgateway, not of Envoy";
        let help = "try what the descriptors of `remoteRateLimit` send with `weir explain RULES -d DOMAIN key=value`";
        return Problem { position: Some(binds), ..Problem::of_file(file, message, help) };
    }
    let (position, problem) = match documents.iter().flat_map(kinds).next() {
        _ if documents.iter().any(is_rule_file) => {
            let help = "write it before --envoy, and an Envoy configuration after it";
            let message = "this is a rule file, not an Envoy configuration";
            (Position::in_text(1, 1), Problem::of_file(file, message, help))
        }
        Some((kind, version, position)) => {
            // As they are spoken: an HTTPRoute, a UDPRoute.
            let is_vowel = kind.starts_with(['A', 'E', 'I', 'O', 'U']) && !kind.starts_with("UDP");
            let article = if is_vowel || kind.starts_with("HTTP") { "an" } else { "a" };
            let message = format!("this is {article} {kind}, not an Envoy configuration");
            (position, Problem::of_file(file, message, command(kind, version, file)))
        }
        None => {
            let message = "there is no listener, route or cluster in this file";
            (Position::in_text(1, 1), Problem::of_file(file, message, HELP))
        }
    };
    Problem { position: Some(position), ..problem }
}

/// Returns where a configuration of agentgateway has its ports.
pub(super) fn binds(root: &Node<'_>) -> Option<Position> {
    get(root, "binds").map(|binds| binds.position)
}

/// The command that gives the configuration that comes of a resource.
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
    match kind {
        "ConfigMap" => {
            "write the file of Envoy that it has, such as `kubectl get configmap NAME -o \
                        jsonpath='{.data.envoy\\.yaml}' | weir check RULES --envoy -`"
                .to_owned()
        }
        _ => {
            format!("write the dump of a running Envoy, `curl -s http://ADMIN/config_dump {pipe}`")
        }
    }
}
