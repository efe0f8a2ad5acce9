//! `/v1/quotas`: the buckets of Envoys that are granted hits ahead of time.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::api::{Answer, Api, to_json};
use super::state::read_descriptor;
use super::top;
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::query::Query;
use weir_api::messages::QuotaList;
use weir_common::glob::Glob;
use weir_store::States;

/// Returns buckets of a domain, or of all, that have some entries, alone or with others.
pub(super) async fn list<S: States>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["domain", "descriptor", "limit"])?;
    let (limit, domain) = (top::limit(&query)?, query.get("domain").map(str::to_owned));
    let descriptor = query.get("descriptor").map(read_descriptor).transpose()?.unwrap_or_default();
    let quotas = api.sources.quotas.clone().ok_or_else(|| {
        let help = "set rlqs.enabled = true, and restart";
        ApiError::new(StatusCode::NOT_FOUND, "no hits are granted to Envoys", help)
    })?;
    let redaction = api.sources.limiter.denials().redaction().clone();
    let json = to_json(move || {
        let wanted: Vec<(String, Glob)> =
            descriptor.0.into_iter().map(|(key, value)| (key, Glob::new(&value))).collect();
        let (mut buckets, found) = quotas.list(limit, |of_bucket, id| {
            let has = |(key, glob): &(String, Glob)| {
                id.entries().any(|entry| entry.0 == key && glob.matches(entry.1))
            };
            domain.as_ref().is_none_or(|domain| domain == of_bucket) && wanted.iter().all(has)
        });
        buckets.sort_unstable();
        for entry in buckets.iter_mut().flat_map(|bucket| &mut bucket.entries) {
            entry.value = redaction.value((&entry.key, &entry.value), 0);
        }
        Ok(QuotaList { buckets, found, streams: quotas.streams() })
    });
    api.answer_text(JSON, json.await?)
}
