//! `/v1/status`: what is counted now and what has changed. The operators' web page asks once a second.
//!
//! A status is made twice a second at most, for all clients. Its entity tag ignores its times: a client with
//! `If-None-Match` gets 304 until something else has changed.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::api::{Answer, Api, json};
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::problems::{Problem, problems};
use crate::http::operators::query::Query;
use crate::http::operators::sources::Sources;
use crate::http::operators::store_state::StoreState;
use crate::{COMMIT, VERSION};
use weir_common::threads::run_for_client;
use weir_controls::time_text;
use weir_rules::{RuleSet, RuleTotals, totals};
use weir_store::{Operations, Store};
use weir_top::{By, Others, Top, Window};

/// How long a status is not made again.
const SHARED_FOR: Duration = Duration::from_millis(500);

const MAX_TOP_ROWS: usize = 20;

const MAX_RULE_ROWS: usize = 50;

#[derive(Default)]
pub(super) struct LastStatus(Mutex<Option<Made>>);

/// A status, and what the next one needs of it.
struct Made {
    at: Instant,
    json: Arc<RawValue>,
    /// A hash of it without its times.
    hash: String,
    traffic: Traffic,
}

#[derive(Serialize)]
struct StatusAnswer<'a> {
    status: &'a RawValue,
    /// The number of the newest change.
    newest: u64,
    changes: Vec<&'a RawValue>,
}

/// Answers with the status, and with the changes after the one whose number is given.
pub(super) async fn show<S: Store + Operations + 'static>(
    State((api, last)): State<(Arc<Api<S>>, Arc<LastStatus>)>,
    headers: HeaderMap,
    uri: Uri,
) -> Answer {
    let query = Query::read(&uri, &["after"])?;
    let after = query.get("after").map(|after| {
        let help = "write the member `newest` of an answer";
        let error = "the parameter `after` is not a number";
        after.parse::<u64>().map_err(|_| ApiError::bad_request(error, help))
    });
    let after = after.transpose()?;
    let (status, hash) = last.get(&api.sources).await?;
    let (newest, changes) = api.sources.log.after(after.unwrap_or(u64::MAX));
    let tag = format!("W/\"{hash}-{newest}\"");
    if headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response());
    }
    let changes = changes.iter().filter_map(|change| serde_json::from_str(change).ok()).collect();
    let body = json(&StatusAnswer { status: &status, newest, changes })?;
    let mut answer = api.answer_text(JSON, body)?;
    let tag = HeaderValue::try_from(tag).map_err(|_| ApiError::internal())?;
    answer.headers_mut().insert(ETAG, tag);
    Ok(answer)
}

impl LastStatus {
    /// Returns the last status and its hash, or makes another one if it is old.
    async fn get<S: Store + Operations + 'static>(
        &self,
        sources: &Arc<Sources<S>>,
    ) -> Result<(Arc<RawValue>, String), ApiError> {
        // Held meanwhile: others wait for the same one.
        let mut last = self.0.lock().await;
        let is_recent = |made: &Made| made.at.elapsed() < SHARED_FOR;
        if !last.as_ref().is_some_and(is_recent) {
            let others = others(sources).await;
            let traffic = last.take().map(|made| made.traffic).unwrap_or_default();
            let sources = sources.clone();
            // In the background: many rules and top keys take a while to sort.
            let made = run_for_client(move || made(&sources, traffic, others.as_deref()));
            *last = made.await.ok().flatten();
        }
        let made = last.as_ref().ok_or_else(ApiError::internal)?;
        Ok((made.json.clone(), made.hash.clone()))
    }
}

/// Returns the top keys of other replicas, if they are shared and can be read.
async fn others<S: Store + Operations>(sources: &Sources<S>) -> Option<Arc<Others>> {
    let store = sources.limiter.store();
    // Else each status would wait for it.
    let texts = store.replica_texts().filter(|_| store.is_connected());
    sources.top.others(texts).await.ok()
}

fn made<S: Store + Operations>(
    sources: &Sources<S>,
    mut traffic: Traffic,
    others: Option<&Others>,
) -> Option<Made> {
    let mut status = status(sources, &mut traffic, others);
    let hash = hash_of(status.clone());
    let uptime = sources.started.elapsed().as_millis();
    status["uptime_ms"] = u64::try_from(uptime).unwrap_or(u64::MAX).into();
    status["at"] = time_text(sources.controls.now()).into();
    let json = RawValue::from_string(status.to_string()).ok()?.into();
    Some(Made { at: Instant::now(), json, hash, traffic })
}

/// Returns a hash of a status without what time alone changes.
fn hash_of(mut status: Value) -> String {
    let lists = status["top"].as_object_mut().into_iter().flat_map(|top| top.values_mut());
    // The page shows whole minutes.
    lists.for_each(|list| {
        list["seconds"] = list["seconds"].as_u64().map(|seconds| seconds / 60).into()
    });
    for backend in status["store"]["backends"].as_array_mut().into_iter().flatten() {
        backend["sync_age_seconds"] = Value::Null;
    }
    blake3::hash(status.to_string().as_bytes()).to_hex()[..16].to_owned()
}

/// Returns the status without its times.
fn status<S: Store + Operations>(
    sources: &Sources<S>,
    traffic: &mut Traffic,
    others: Option<&Others>,
) -> Value {
    let store = StoreState::read(sources.limiter.store());
    let reasons = sources.health.reasons();
    let reasons: Vec<&str> = reasons.iter().map(|reason| reason.text()).collect();
    let problems = problems(sources, &store);
    let mut store_json = store.to_json(problems.iter().any(Problem::is_of_store));
    store_json["connected"] = store.is_connected.into();
    let counts = sources.limiter.counts();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let [block, allow, limit] = counts.controlled.each_ref().map(load);
    json!({
        "version": VERSION,
        "commit": COMMIT,
        "replica": sources.replica,
        "grpc_port": sources.grpc_port,
        "serving": reasons.is_empty(),
        "not_serving_because": reasons,
        "problems": problems,
        "redacted_keys": sources.limiter.denials().redaction().keys(),
        // By outcome. Those that the global shadow mode let pass are ok, too.
        "requests": {
            "ok": load(&counts.ok),
            "over_limit": load(&counts.over_limit),
            "invalid": load(&counts.invalid),
            "store_error": load(&counts.store_error),
            "global_shadow_mode": load(&counts.global_shadow_mode),
            "rule_shadow_mode": load(&counts.rule_shadow_mode),
        },
        // The descriptors that controls decided, by action.
        "controlled": { "block": block, "allow": allow, "limit": limit },
        "rules": traffic.rank(sources.rules.load_full()),
        "top": top_keys(&sources.top, others),
        "store": store_json,
        "controls": {
            "count": sources.controls.list().len(),
            "version": *sources.controls.subscribe().borrow(),
            "share_error": sources.controls.share_error().map(|error| error.to_string()),
        },
    })
}

fn top_keys(top: &Top, others: Option<&Others>) -> Value {
    let (limit, window) = (MAX_TOP_ROWS, Window::Minute);
    let list = |by| {
        let query = weir_top::TopQuery { limit, window, ..weir_top::TopQuery::new(by) };
        others.map_or_else(|| top.list(&query), |others| top.list_all(&query, others))
    };
    json!({
        "denied": list(By::Denied),
        "would_be_denied": list(By::WouldBeDenied),
        "near": list(By::Near),
        "banned": list(By::Banned),
        "hits": list(By::Hits),
    })
}

/// Ranks rules by their hits since they were ranked last.
#[derive(Debug, Default)]
struct Traffic {
    /// The rules that were ranked last, which it does not keep in memory, and the hits of each.
    rules: Weak<RuleSet>,
    hits: Vec<u64>,
}

impl Traffic {
    /// Returns the totals of the rules with the most hits since the last call, how many rules are left
    /// out, and the totals of series that belong to no known rule.
    fn rank(&mut self, rules: Option<Arc<RuleSet>>) -> Value {
        let rules = rules.unwrap_or_default();
        let (all, other) = totals(&rules);
        if !std::ptr::eq(self.rules.as_ptr(), Arc::as_ptr(&rules)) {
            // Other rules: once by all of their hits.
            (self.rules, self.hits) = (Arc::downgrade(&rules), Vec::new());
        }
        // Only domains whose requests bring limits have a row for them.
        let listed = all.iter().enumerate();
        let listed = listed.filter(|(_, row)| row.rule.is_some() || row.totals.hits > 0);
        let mut ranks: Vec<_> = listed
            .map(|(at, row)| {
                let hits = row.totals.hits;
                let recent = hits - self.hits.get(at).copied().unwrap_or(0).min(hits);
                (Reverse(recent), Reverse(hits), at)
            })
            .collect();
        let omitted = ranks.len().saturating_sub(MAX_RULE_ROWS);
        if omitted > 0 {
            ranks.select_nth_unstable(MAX_RULE_ROWS);
            ranks.truncate(MAX_RULE_ROWS);
        }
        ranks.sort_unstable();
        self.hits = all.iter().map(|row| row.totals.hits).collect();
        let rows: Vec<&RuleTotals<'_>> =
            ranks.iter().filter_map(|(_, _, at)| all.get(*at)).collect();
        json!({ "rows": rows, "omitted": omitted, "other": other })
    }
}
