//! `/v1/rules`: the active rules, as JSON or as a rule file.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::{Answer, Api, ApiError, Query};
use crate::http::operators::debug::YAML;
use crate::http::operators::error::shortened;
use crate::http::page;
use weir_common::threads::run_blocking;

/// The longest text of a client in an error.
const MAX_CHARS: usize = 100;

pub(super) async fn list<S>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["format", "domain"])?;
    let is_yaml = match query.get("format") {
        None | Some("json") => false,
        Some("yaml") => true,
        Some(other) => {
            let error = format!("the parameter `format` is {:?}", shortened(other, MAX_CHARS));
            return Err(ApiError::bad_request(error, "write json or yaml"));
        }
    };
    match query.get("domain") {
        Some(domain) if is_yaml => one_domain(&api, domain.to_owned()).await,
        Some(_) => {
            let error = "the parameter `domain` selects a rule file";
            Err(ApiError::bad_request(error, "add `format=yaml`"))
        }
        None => {
            let rules = if is_yaml { &api.yaml_page } else { &api.rules_page };
            Ok(page::answer(State(rules.clone())).await)
        }
    }
}

/// Returns the rule file of one domain.
async fn one_domain<S>(api: &Api<S>, domain: String) -> Answer {
    let rules = api.rules.load_full();
    let name = domain.clone();
    // In the background: many rules take a while to write.
    let file = run_blocking(move || rules.and_then(|rules| rules.domain_to_yaml(&name))).await;
    let file = file.map_err(|_| ApiError::internal())?.ok_or_else(|| {
        let error = format!("there is no domain {:?}", shortened(&domain, MAX_CHARS));
        ApiError::new(StatusCode::NOT_FOUND, error, "GET /v1/rules lists the rules of all domains")
    })?;
    api.answer_text(YAML, file.into_bytes())
}
