//! Calls that are repeated, and requests that last longer than their reservations.

use std::time::Duration;

use super::super::Findings;
use super::super::filter::EnvoyConfig;
use super::super::nodes::{get, path, text};
use super::{Place, Used};
use weir_common::duration::exact;
use weir_rules::Rule;
use weir_rules::tree::Node;

/// The timeout of a route that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);

/// Reports a retry policy of the calls to weir.
pub(super) fn check_retries(
    used: &Used<'_, '_>,
    config: &EnvoyConfig<'_, '_>,
    findings: &mut Findings,
) {
    let Some(service) = used.grpc_service else { return };
    let own = get(service, "retry_policy").or(path(service, &["envoy_grpc", "retry_policy"]));
    let cluster = get(service, "envoy_grpc").map_or("", |grpc| text(grpc, "cluster_name"));
    let (position, whose) = match own {
        Some(policy) => {
            (policy.position, "`retry_policy`: Envoy repeats its calls to weir".to_owned())
        }
        None if config.retrying_clusters.contains(cluster) => {
            let whose =
                format!("`retry_policy` of the cluster '{cluster}': Envoy repeats calls to weir");
            (service.position, whose)
        }
        None => return,
    };
    let message = format!("{whose}, and each call that has arrived reserves again");
    findings.add(position, message, "", "remove it");
}

/// Reports a route on which a request may last longer than what it reserves can be settled.
pub(super) fn check_timeout(rule: &Rule, place: &Place<'_, '_, '_>, findings: &mut Findings) {
    let Some(reserve) = rule.reserve.as_deref() else { return };
    let settling = Duration::from_secs(reserve.timeout.into());
    let timeout = get(place.action, "timeout");
    let stream = path(place.action, &["max_stream_duration", "max_stream_duration"])
        .or(path(place.manager, &["common_http_protocol_options", "max_stream_duration"]));
    // 0 is none.
    let limit = |node: Option<&Node<'_>>, default| match node.map(duration) {
        Some(limit) => limit.filter(|limit| !limit.is_zero()),
        None => default,
    };
    let limits = [limit(timeout, Some(DEFAULT_TIMEOUT)), limit(stream, None)];
    let message = match limits.into_iter().flatten().min() {
        Some(limit) if limit <= settling => return,
        Some(limit) => format!("requests may last {} here", exact(limit)),
        None => "requests may last as long as they like here".to_owned(),
    };
    let settling = exact(settling);
    let message = format!("{message}, but what they reserve can be settled for {settling}");
    let help = format!(
        "set `timeout` of the route to {settling} or less, or `timeout` of `reserve` of '{}' to more",
        rule.path()
    );
    findings.add(timeout.unwrap_or(place.route).position, message, "", &help);
}

/// The duration of a field; none if it is not understood.
fn duration(node: &Node<'_>) -> Option<Duration> {
    let seconds = node.text()?.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
