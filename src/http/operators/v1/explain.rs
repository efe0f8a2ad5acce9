//! What applies to the descriptors of a request, and why.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;

use super::state::{BUDGET, read_descriptor};
use super::{Answer, Api};
use crate::http::operators::error::ApiError;
use crate::http::operators::query::Query;
use weir_store::States;

/// Explains a request with one or more descriptors, with what their keys have counted.
pub(super) async fn show<S: States>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read_with_list(&uri, &["domain", "descriptor"], "descriptor")?;
    let domain = query.required("domain", "name the domain: ?domain=shop")?;
    let descriptors: Vec<_> =
        query.list("descriptor").map(read_descriptor).collect::<Result<_, _>>()?;
    let entries: Vec<_> = descriptors.iter().map(|descriptor| descriptor.entries()).collect();
    let snapshot = api.snapshot()?;
    let explained = api.limiter.explain(&*snapshot, domain, &entries, BUDGET).await;
    let help = "write ?domain=shop&descriptor=key=value,key2=value2&descriptor=…";
    api.answer(&explained.map_err(|error| ApiError::bad_request(error, help))?)
}
