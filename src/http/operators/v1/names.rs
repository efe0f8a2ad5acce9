//! Names of rules in queries.

use axum::http::StatusCode;

use crate::http::operators::error::ApiError;
use crate::http::operators::query::MAX_SHOWN_BYTES;
use weir_api::messages::AdviceKind;
use weir_common::suggest::Suggester;
use weir_rules::{Rule, RuleSet, truncated};
use weir_top::Redaction;

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
