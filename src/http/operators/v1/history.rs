//! What was counted and what has happened in the last hour.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::{Answer, Api};
use crate::http::operators::error::{ApiError, shortened};
use crate::http::operators::history::Step;
use crate::http::operators::query::Query;
use weir_common::suggest::Suggester;
use weir_common::threads::run_blocking;
use weir_rules::RuleSet;

/// The longest text of a client in an error.
const MAX_CHARS: usize = 100;

/// Returns the history of all rules or of one.
pub(super) async fn show<S>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["step", "domain", "rule"])?;
    let step = step(&query)?;
    let name = name(&query)?;
    let Some(history) = api.history.clone() else {
        let help = "set history.enabled to true, and restart";
        let error = "there is no history: history.enabled is false";
        return Err(ApiError::new(StatusCode::NOT_FOUND, error, help));
    };
    let (rules, now) = (api.rules.load_full().unwrap_or_default(), api.controls.now());
    // In the background: there may be many rules to compare, and many events.
    let read = move || {
        let name = name.as_ref().map(|(domain, rule)| (domain.as_str(), rule.as_str()));
        if let Some((domain, rule)) = name {
            check(&rules, domain, rule)?;
        }
        Ok(history.read(now, step, name))
    };
    api.answer(&run_blocking(read).await.unwrap_or_else(|_| Err(ApiError::internal()))?)
}

fn step(query: &Query) -> Result<Step, ApiError> {
    match query.get("step") {
        Some("1s") => Ok(Step::Second),
        None | Some("10s") => Ok(Step::TenSeconds),
        Some(other) => {
            let error = format!("the parameter `step` is {:?}", shortened(other, MAX_CHARS));
            Err(ApiError::bad_request(error, "write 1s or 10s"))
        }
    }
}

/// Returns the domain and the path of the rule that is asked for, if one is.
fn name(query: &Query) -> Result<Option<(String, String)>, ApiError> {
    let help = "write both, ?domain=shop&rule=user, or neither for all rules";
    match (query.get("domain"), query.get("rule")) {
        (None, None) => Ok(None),
        _ => Ok(Some((
            query.required("domain", help)?.to_owned(),
            query.required("rule", help)?.to_owned(),
        ))),
    }
}

/// Checks that there is such a rule.
fn check(rules: &RuleSet, domain: &str, rule: &str) -> Result<(), ApiError> {
    let in_domain = || rules.rules().filter(|known| known.domain() == domain);
    if in_domain().any(|known| known.path() == rule) {
        return Ok(());
    }
    let mut suggester = Suggester::default();
    let (what, name, near) = if rules.domain(domain).is_none() {
        ("domain", domain, rules.nearest_domain(domain, &mut suggester))
    } else {
        let paths: Vec<&str> = in_domain().map(|known| known.path()).collect();
        ("rule", rule, suggester.nearest(rule, paths.into_iter()))
    };
    let error = format!("unknown {what} {:?}", shortened(name, MAX_CHARS));
    let help = match near {
        Some(near) => format!("did you mean {:?}?", shortened(near, MAX_CHARS)),
        None => "GET /v1/rules lists all rules".to_owned(),
    };
    Err(ApiError::new(StatusCode::NOT_FOUND, error, help))
}
