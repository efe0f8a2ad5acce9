//! Reads `lease`, and checks it against what else its rule has.

use super::Reader;
use super::limits::LimitFields;
use crate::syntax::tree::Node;
use weir_limit::{Limit, Plan};

impl Reader<'_> {
    /// Reads the `lease` of a descriptor with these limits: whether their hits may be leased.
    pub(super) fn lease(
        &mut self,
        node: &Node<'_>,
        reserves: bool,
        limits: Option<&LimitFields>,
    ) -> bool {
        let lease = self.bool(node, "lease");
        let Some(LimitFields { limits, .. }) = limits else {
            let help = "write it beside the `rate_limit` or `rate_limits` that it is for";
            let text = node.shown();
            self.error(node.position, "config error, `lease` without a limit", &text, help);
            return lease;
        };
        let causes = if lease { causes(limits, reserves, self.together) } else { Vec::new() };
        for (cause, help) in causes {
            let message = format!("config error, `lease` {cause}");
            let help = format!("write `lease: false` or remove it: {help}");
            self.error(node.position, message, "true", &help);
        }
        lease
    }
}

/// Returns why the hits of a rule cannot be leased, each cause with what to know about it; none if they can.
fn causes(limits: &[Limit], reserves: bool, together: bool) -> Vec<(String, &'static str)> {
    let mut causes = Vec::new();
    for limit in limits.iter().filter(|limit| !is_window(limit)) {
        let name = limit.algorithm.name();
        let help = "only fixed_window, sliding_window and bucketed_window can be leased";
        causes.push((format!("with {name}"), help));
    }
    let of_limits = [
        (
            limits.iter().any(|limit| limit.shadow_mode),
            "with a limit in `shadow_mode`",
            "what such a limit would deny is counted hit by hit",
        ),
        (
            limits.len() > 1 && limits.iter().any(|limit| limit.charge_denied),
            "with `charge_denied` in `rate_limits`",
            "such a limit also counts what the others deny",
        ),
        (reserves, "beside `reserve`", "what is reserved is charged when it is asked for"),
        (together, "under `charge: together`", "all descriptors of a request are charged at once"),
    ];
    let found = of_limits.into_iter().filter(|(applies, ..)| *applies);
    causes.extend(found.map(|(_, cause, help)| (cause.to_owned(), help)));
    causes
}

fn is_window(limit: &Limit) -> bool {
    Plan::new(vec![Limit { shadow_mode: false, ..limit.clone() }]).can_lease()
}
