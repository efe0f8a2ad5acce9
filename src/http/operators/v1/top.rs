//! `/v1/top`: the lists of top keys, such as those with the most hits or the most denials.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::api::{Answer, Api, to_json};
use super::rules;
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::query::{Query, invalid};
use weir_common::suggest::nearest;
use weir_common::threads::run_for_client;
use weir_controls::Control;
use weir_store::{Operations, Store};
use weir_top::{By, NotShared, Scope, Top, TopRow, Window};

const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 10_000;

/// The most keys that are listed as those that a control matches.
const MATCHED_ROWS: usize = 20;

pub(super) async fn list<S: Store + Operations>(
    State(api): State<Arc<Api<S>>>,
    uri: Uri,
) -> Answer {
    let query = Query::read(&uri, &["by", "limit", "domain", "rule", "window", "scope"])?;
    let by = one_of(&query, "by", By::Hits, &By::ALL.map(|by| (by.name(), by)))?;
    let windows = Window::ALL.map(|window| (window.name(), window));
    let window = one_of(&query, "window", Window::Hour, &windows)?;
    let scopes = Scope::ALL.map(|scope| (scope.name(), Some(scope)));
    let scope = one_of(&query, "scope", None, &scopes)?;
    let limit = limit(&query)?;
    let [domain, rule] = ["domain", "rule"].map(|name| query.get(name).map(str::to_owned));
    if rule.is_some() {
        query.required("domain", "name the domain of the rule: ?domain=shop&rule=user")?;
    }
    let top = api.sources.top.clone();
    let texts = api.sources.limiter.store().replica_texts();
    let others = match scope {
        Some(Scope::Here) => None,
        Some(Scope::All) => Some(top.others(texts).await.map_err(|error| not_shared(&error))?),
        // What this replica has is better than nothing.
        None => top.others(texts).await.ok(),
    };
    let rules = api.sources.rules.load_full();
    let json = to_json(move || {
        let (domain, path) = (domain.as_deref(), rule.as_deref());
        let known = match (&rules, domain, path) {
            (Some(rules), Some(domain), Some(path)) => {
                let rule = rules::rule(rules, domain, path, top.redaction());
                rule.map(|rule| Some(top.redaction().rule_path(rule)))
            }
            (Some(rules), Some(domain), None) => rules::check_domain(rules, domain).map(|()| None),
            _ => Ok(None),
        };
        // Other replicas list paths as they are shown.
        let shown = known.as_ref().ok().and_then(Option::as_deref);
        let rule = shown.or(path);
        let query = weir_top::TopQuery { by, window, limit, domain, rule, filter: None };
        let of_all = others.map(|others| top.list_all(&query, &others));
        let list = of_all.unwrap_or_else(|| top.list(&query));
        // What has rows is known, even if its rules were removed.
        if list.rows.is_empty() {
            known?;
        }
        Ok(list)
    });
    api.answer_text(JSON, json.await?)
}

fn not_shared(error: &NotShared) -> ApiError {
    let (status, help) = match error {
        NotShared::Off => (
            StatusCode::NOT_FOUND,
            "set top.share = true with store.kind = redis and no proxy before it, and restart",
        ),
        NotShared::Refused => {
            (StatusCode::SERVICE_UNAVAILABLE, "see the log of weir, and docs/redis.md")
        }
        NotShared::NotYet | NotShared::Store(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "try again, or ask with scope=here")
        }
    };
    ApiError::new(status, error.to_string(), help)
}

/// The hits of the last hour that a control matches.
pub(super) struct MatchedHits {
    /// The keys with the most.
    pub rows: Vec<TopRow>,
    /// The hits of all of its keys that are counted, at least.
    pub hits: u64,
    /// The hits of all keys.
    pub all: u64,
}

pub(super) async fn matched(top: Arc<Top>, control: Control) -> Result<MatchedHits, ApiError> {
    // In the background: many keys take a while to sort.
    let list = run_for_client(move || {
        let filter: &weir_top::Filter<'_> = &|domain, entries| control.matches(domain, entries);
        let (filter, window) = (Some(filter), Window::Hour);
        let mut list =
            top.list(&weir_top::TopQuery { filter, window, ..weir_top::TopQuery::new(By::Hits) });
        let hits = list.rows.iter().map(|row| row.count - row.error).sum();
        list.rows.truncate(MATCHED_ROWS);
        MatchedHits { rows: list.rows, hits, all: list.total }
    });
    list.await.map_err(|_| ApiError::internal())
}

/// Returns the value that a parameter names, or the default.
fn one_of<T: Copy>(
    query: &Query,
    parameter: &str,
    default: T,
    all: &[(&str, T)],
) -> Result<T, ApiError> {
    let Some(text) = query.get(parameter) else { return Ok(default) };
    let known = all.iter().find(|(name, _)| *name == text);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let names = || all.iter().map(|(name, _)| *name);
        let help = match nearest(text, names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("write one of {}", names().collect::<Vec<_>>().join(", ")),
        };
        invalid(parameter, text, help)
    })
}

pub(super) fn limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("limit") else { return Ok(DEFAULT_ROWS) };
    let limit = text.parse().ok().filter(|limit| (1..=MAX_ROWS).contains(limit));
    limit.ok_or_else(|| invalid("limit", text, format!("write a number from 1 to {MAX_ROWS}")))
}
