//! `/v1/rules`: the active rules, as JSON or as a rule file. Also finds the rules that queries name.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::api::{Answer, Api};
use crate::http::operators::debug::{self, JSON, YAML};
use crate::http::operators::error::ApiError;
use crate::http::operators::query::{MAX_SHOWN_BYTES, Query, invalid};
use crate::http::page::{self, Page};
use crate::rls::service::Rules;
use weir_api::messages::AdviceKind;
use weir_common::suggest::Suggester;
use weir_common::threads::run_for_client;
use weir_common::truncate::truncated;
use weir_rules::{Rule, RuleSet};
use weir_top::Redaction;

/// Returns the page of the active rules as JSON. A rule with hidden values (`top.redact`) also has the path that the
/// lists of top keys show for it.
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
        check_domain(&rules, &domain)?;
        rules.domain_to_yaml(&domain).ok_or_else(ApiError::internal)
    };
    let file = run_for_client(write).await.map_err(|_| ApiError::internal())??;
    api.answer_text(YAML, file.into_bytes())
}

/// Checks that there are rules for a domain. The error has the most similar one.
pub(super) fn check_domain(rules: &RuleSet, domain: &str) -> Result<(), ApiError> {
    let mut suggester = Suggester::default();
    if rules.domain(domain).is_none() {
        let near = rules.nearest_domain(domain, &mut suggester);
        return Err(unknown("domain", domain, near));
    }
    Ok(())
}

/// Returns the rule of a domain that has a path, as it is or as lists of keys show it. The error has the most similar
/// name.
pub(super) fn rule<'r>(
    rules: &'r RuleSet,
    domain: &str,
    path: &str,
    redaction: &Redaction,
) -> Result<&'r Rule, ApiError> {
    check_domain(rules, domain)?;
    let of_domain = || rules.rules().filter(|rule| rule.domain() == domain);
    let is_shown = |rule: &&Rule| redaction.rule_path(rule) == path;
    let found = of_domain().find(|rule| rule.path() == path);
    found.or_else(|| of_domain().find(is_shown)).ok_or_else(|| {
        let paths: Vec<&str> = of_domain().map(Rule::path).collect();
        unknown("rule", path, Suggester::default().nearest(path, paths.into_iter()))
    })
}

fn unknown(what: &str, name: &str, near: Option<&str>) -> ApiError {
    let error = format!("unknown {what} '{}'", truncated(name, MAX_SHOWN_BYTES));
    let error = |help| ApiError::new(StatusCode::NOT_FOUND, error, help);
    match near {
        Some(near) => error(format!("did you mean '{}'?", truncated(near, MAX_SHOWN_BYTES))),
        None => error("GET /v1/rules lists the rules of all domains".to_owned())
            .with_kind(AdviceKind::UnknownName),
    }
}
