//! Names of rules in queries.

use axum::http::StatusCode;

use crate::http::operators::error::{ApiError, shortened};
use weir_common::suggest::Suggester;
use weir_rules::{Rule, RuleSet};

/// The longest text of a client in an error.
pub(super) const MAX_CHARS: usize = 100;

/// Checks that there are rules for a domain, and that one of them has this path if one is given.
///
/// # Errors
///
/// The name that no rule has, and the most similar one.
pub(super) fn check(rules: &RuleSet, domain: &str, rule: Option<&str>) -> Result<(), ApiError> {
    let mut suggester = Suggester::default();
    if rules.domain(domain).is_none() {
        let near = rules.nearest_domain(domain, &mut suggester);
        return Err(unknown("domain", domain, near));
    }
    let Some(name) = rule else { return Ok(()) };
    let of_domain = rules.rules().filter(|rule| rule.domain() == domain);
    let paths: Vec<&str> = of_domain.map(Rule::path).collect();
    if paths.contains(&name) {
        return Ok(());
    }
    Err(unknown("rule", name, suggester.nearest(name, paths.into_iter())))
}

fn unknown(what: &str, name: &str, near: Option<&str>) -> ApiError {
    let help = match near {
        Some(near) => format!("did you mean '{}'?", shortened(near, MAX_CHARS)),
        None => "GET /v1/rules lists the rules of all domains".to_owned(),
    };
    let error = format!("unknown {what} '{}'", shortened(name, MAX_CHARS));
    ApiError::new(StatusCode::NOT_FOUND, error, help)
}
