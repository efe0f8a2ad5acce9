//! The event `status`: totals, the rules with the most traffic, top keys, the keys with secret values and the
//! store.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::traffic::Traffic;
use super::{EventSources, Problem};
use crate::http::operators::store_state::StoreState;
use crate::version::{COMMIT, VERSION};
use weir_limiter::LimiterCounts;
use weir_limiter::top::{By, Others, Query, Top, Window};
use weir_store::{Operations, Store};

/// The most rows of each list of top keys.
const MAX_TOP_ROWS: usize = 20;

/// Returns the status without its time.
pub(super) fn status<S: Store + Operations>(
    sources: &EventSources<S>,
    store: &StoreState,
    problems: &[Problem],
    traffic: &mut Traffic,
    others: Option<&Others>,
) -> Value {
    let reasons = sources.health.reasons();
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let mut store_json = store.to_json();
    store_json["connected"] = store.is_connected.into();
    let uptime = sources.started.elapsed().as_millis();
    json!({
        "uptime_ms": u64::try_from(uptime).unwrap_or(u64::MAX),
        "version": VERSION,
        "commit": COMMIT,
        "serving": reasons.is_empty(),
        "not_serving_because": reasons,
        "problems": problems,
        "redacted_keys": sources.limiter.denials().redaction().keys(),
        "requests": requests(sources.limiter.counts()),
        "controlled": controlled(sources.limiter.counts()),
        "rules": traffic.rank(sources.rules.load_full()),
        "top": sources.limiter.top().map(|top| top_keys(top, others)),
        "store": store_json,
        "controls": {
            "count": sources.controls.list().len(),
            "share_error": sources.controls.share_error().map(|error| error.to_string()),
        },
    })
}

/// Returns the requests by outcome. Those that the global shadow mode let pass are ok, too.
fn requests(counts: &LimiterCounts) -> Value {
    json!({
        "ok": counts.ok.load(Ordering::Relaxed),
        "over_limit": counts.over_limit.load(Ordering::Relaxed),
        "invalid": counts.invalid.load(Ordering::Relaxed),
        "store_error": counts.store_error.load(Ordering::Relaxed),
        "global_shadow_mode": counts.global_shadow_mode.load(Ordering::Relaxed),
        "rule_shadow_mode": counts.rule_shadow_mode.load(Ordering::Relaxed),
    })
}

/// Returns the descriptors that controls decided, by action.
fn controlled(counts: &LimiterCounts) -> Value {
    let [block, allow, limit] = &counts.controlled;
    let [block, allow, limit] = [block, allow, limit].map(|count| count.load(Ordering::Relaxed));
    json!({ "block": block, "allow": allow, "limit": limit })
}

fn top_keys(top: &Top, others: Option<&Others>) -> Value {
    let (limit, window) = (MAX_TOP_ROWS, Window::Hour);
    let list = |by| {
        let query = Query { limit, window, ..Query::new(by) };
        others.map_or_else(|| top.list(&query), |others| top.list_all(&query, others))
    };
    json!({
        "denied": list(By::Denied),
        "would_be_denied": list(By::WouldBeDenied),
        "near": list(By::Near),
        "hits": list(By::Hits),
    })
}
