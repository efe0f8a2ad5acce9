//! What was counted in the last hour, and what has changed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;

use super::api::{Answer, Api, to_json};
use super::names;
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::history::StepLength;
use crate::http::operators::query::{Query, invalid};
use weir_limiter::rule_id;
use weir_store::Store;

pub(super) async fn show<S: Store>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["step", "domain", "rule"])?;
    let step = step(&query)?;
    let name = name(&query)?;
    let (history, log) = (api.history.clone(), api.sources.log.clone());
    let (rules, now) =
        (api.sources.rules.load_full().unwrap_or_default(), api.sources.controls.now());
    let redaction = api.sources.limiter.denials().redaction().clone();
    let json = to_json(move || {
        let rule = name.map(|(domain, path)| names::rule(&rules, &domain, &path, &redaction));
        let rule = rule.transpose()?;
        let name = rule.map(|rule| (rule.domain(), rule.path()));
        let mut answer = history.read(now, step, name);
        answer.events = log.changes();
        answer.denials = log.denials(name.map(|(domain, path)| rule_id(domain, path)));
        Ok(answer)
    });
    api.answer_text(JSON, json.await?)
}

fn step(query: &Query) -> Result<StepLength, ApiError> {
    match query.get("step") {
        Some("1s") => Ok(StepLength::Second),
        None | Some("10s") => Ok(StepLength::TenSeconds),
        Some(other) => Err(invalid("step", other, "write 1s or 10s")),
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
