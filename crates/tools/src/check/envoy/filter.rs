//! The types of `weir check --envoy`: a rate-limit filter of Envoy, what it refers to, and a descriptor that it sends.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::actions::SentEntry;
use super::nodes::text;
use super::service::Clusters;
use weir_rules::tree::Node;
use weir_rules::{Origin, Position, RuleSet};

#[derive(Debug)]
pub(super) struct Sent {
    pub domain: String,
    pub entries: Vec<SentEntry>,
    /// Whether Envoy sends a limit with it, which needs no rule.
    pub has_limit: bool,
    /// Whether all filters of a stage send it: it comes from `rate_limits` of a route or a virtual host.
    pub is_shared: bool,
    /// Whether the entries are those of a quota bucket, which have no order.
    pub is_quota: bool,
    pub origin: Origin,
}

impl Sent {
    /// A descriptor without a limit that one filter sends, with its entries in order.
    pub fn new(domain: &str, entries: Vec<SentEntry>, origin: Origin) -> Sent {
        let domain = domain.to_owned();
        Sent { domain, entries, has_limit: false, is_shared: false, is_quota: false, origin }
    }
}

pub(super) const FILTER_TYPE: &str = "filters.http.ratelimit.v3.RateLimit";

pub(super) struct Filter<'n, 'a> {
    /// The key of its configuration in `typed_per_filter_config`.
    pub name: &'n str,
    pub config: &'n Node<'a>,
    pub domain: &'n str,
    pub domain_position: Position,
    pub stage: &'n str,
    pub rate_limits: &'n [Node<'a>],
    /// Whether the filter is off unless a route enables it.
    pub is_disabled: bool,
    /// Whether `filter_enabled` is 0 percent.
    pub is_off: bool,
}

/// What all files of the configuration have, and the rules.
pub(super) struct EnvoyConfig<'n, 'a> {
    /// Route configurations by name, for connection managers that get them over RDS; each with the dump that it is in.
    pub route_configs: HashMap<&'n str, Vec<(usize, &'n Node<'a>)>>,
    pub clusters: Clusters<'n>,
    /// The configurations of filters that are kept separately (ECDS), by name.
    pub extensions: HashMap<&'n str, &'n Node<'a>>,
    /// The keys of the static runtime layers that are 0.
    pub runtime_zeros: HashSet<String>,
    pub quota_domains: BTreeSet<&'n str>,
    pub rules: &'n RuleSet,
    pub reserving_domains: HashSet<&'n str>,
}

pub(super) fn stage<'n>(node: &'n Node<'_>) -> &'n str {
    match text(node, "stage") {
        "" => "0",
        stage => stage,
    }
}
