//! `/v1/rules`: the active rules, as JSON or as a rule file.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;

use super::api::{Answer, Api};
use super::names;
use crate::http::operators::debug::{self, JSON, YAML};
use crate::http::operators::error::ApiError;
use crate::http::operators::query::{Query, invalid};
use crate::http::page::{self, Page};
use crate::rls::service::Rules;
use weir_common::threads::run_for_client;
use weir_rules::Rule;
use weir_top::Redaction;

/// Returns the page of the active rules as JSON, with the paths that lists of keys have in place of those with
/// hidden values.
pub(super) fn page(rules: Rules, redaction: Arc<Redaction>) -> Arc<Page> {
    let redact = move |rule: &Rule| {
        let is_redacted = rule.entries().any(|entry| redaction.hides(entry));
        is_redacted.then(|| redaction.rule_path(rule))
    };
    debug::rules_page(rules, JSON, move |rules| rules.to_json(&redact), debug::NO_RULES)
}

pub(super) async fn list<S>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["format", "domain"])?;
    let is_yaml = match query.get("format") {
        None | Some("json") => false,
        Some("yaml") => true,
        Some(other) => return Err(invalid("format", other, "write json or yaml")),
    };
    match query.get("domain") {
        Some(domain) if is_yaml => rule_file(&api, domain.to_owned()).await,
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

async fn rule_file<S>(api: &Api<S>, domain: String) -> Answer {
    let rules = api.sources.rules.load_full().unwrap_or_default();
    // In the background: many rules take a while to write.
    let write = move || {
        names::check_domain(&rules, &domain)?;
        rules.domain_to_yaml(&domain).ok_or_else(ApiError::internal)
    };
    let file = run_for_client(write).await.map_err(|_| ApiError::internal())??;
    api.answer_text(YAML, file.into_bytes())
}
