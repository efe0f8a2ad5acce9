//! `/v1/history`: what was counted in the last hour, what has changed, and denials.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;

use super::api::{Answer, Api, to_json};
use super::rules;
use crate::http::operators::debug::JSON;
use crate::http::operators::history::StepLength;
use crate::http::operators::query::{Query, invalid};
use weir_limiter::rule_id;
use weir_store::Store;

pub(super) async fn show<S: Store>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["step", "domain", "rule"])?;
    let step = match query.get("step") {
        Some("1s") => StepLength::Second,
        None | Some("10s") => StepLength::TenSeconds,
        Some(other) => return Err(invalid("step", other, "write 1s or 10s")),
    };
    let help = "write both, ?domain=shop&rule=user, or neither for all rules";
    let name = match (query.get("domain"), query.get("rule")) {
        (None, None) => None,
        _ => {
            let domain = query.required("domain", help)?.to_owned();
            Some((domain, query.required("rule", help)?.to_owned()))
        }
    };
    let (history, log) = (api.history.clone(), api.sources.log.clone());
    let (rules, now) =
        (api.sources.rules.load_full().unwrap_or_default(), api.sources.controls.now());
    let redaction = api.sources.limiter.denials().redaction().clone();
    let json = to_json(move || {
        let rule = name.map(|(domain, path)| rules::rule(&rules, &domain, &path, &redaction));
        let rule = rule.transpose()?;
        let name = rule.map(|rule| (rule.domain(), rule.path()));
        let mut answer = history.read(now, step, name);
        answer.events = log.changes();
        answer.denials = log.denials(name.map(|(domain, path)| rule_id(domain, path)));
        Ok(answer)
    });
    api.answer_text(JSON, json.await?)
}
