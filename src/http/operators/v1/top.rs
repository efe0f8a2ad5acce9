//! The lists of top keys.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::{Answer, Api};
use crate::http::operators::error::{ApiError, shortened};
use crate::http::operators::query::Query;
use weir_common::suggest::nearest;
use weir_common::threads::run_blocking;
use weir_limiter::controls::Control;
use weir_limiter::top::{self, By, Top, TopList, TopRow};
use weir_store::Store;

/// The rows of a list by default.
const DEFAULT_ROWS: usize = 100;

const MAX_ROWS: usize = 10_000;

/// The rows that a control is shown to match.
const MATCHED_ROWS: usize = 20;

/// Returns the list that `by` names.
pub(super) async fn list<S: Store>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["by", "limit"])?;
    let (by, limit) = (by(&query)?, limit(&query)?);
    let Some(top) = api.limiter.top().cloned() else {
        let help = "set top.entries to the number of keys to list, and restart";
        let error = "no keys are listed: top.entries is 0";
        return Err(ApiError::new(StatusCode::NOT_FOUND, error, help));
    };
    let list = in_background(top, move |top| top.list(&top::Query { by, limit, filter: None }));
    api.answer(&list.await?)
}

/// Returns the keys with the most hits among those that a control matches.
pub(super) async fn matched(
    top: Option<Arc<Top>>,
    control: Control,
) -> Result<Vec<TopRow>, ApiError> {
    let Some(top) = top else { return Ok(Vec::new()) };
    let list = in_background(top, move |top| {
        let filter: &top::Filter<'_> = &|domain, entries| control.matches(domain, entries);
        top.list(&top::Query { by: By::Hits, limit: MATCHED_ROWS, filter: Some(filter) })
    });
    Ok(list.await?.rows)
}

/// Reads top keys where that delays no other request: many take a while to sort.
async fn in_background(
    top: Arc<Top>,
    list: impl FnOnce(&Top) -> TopList + Send + 'static,
) -> Result<TopList, ApiError> {
    let list = run_blocking(move || list(&top)).await;
    list.map_err(|_| ApiError::internal())
}

fn by(query: &Query) -> Result<By, ApiError> {
    let Some(name) = query.get("by") else { return Ok(By::Hits) };
    By::named(name).ok_or_else(|| {
        let names = || By::ALL.into_iter().map(By::name);
        let help = match nearest(name, names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("write one of {}", names().collect::<Vec<_>>().join(", ")),
        };
        ApiError::bad_request(format!("the parameter `by` is {:?}", shortened(name, 100)), help)
    })
}

fn limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("limit") else { return Ok(DEFAULT_ROWS) };
    let limit = text.parse().ok().filter(|limit| (1..=MAX_ROWS).contains(limit));
    limit.ok_or_else(|| {
        let error = format!("the parameter `limit` is {:?}", shortened(text, 100));
        ApiError::bad_request(error, format!("write a number from 1 to {MAX_ROWS}"))
    })
}
