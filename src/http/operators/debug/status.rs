//! `/status`: version, rules, store, controls, certificates and health, as JSON.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{DebugPages, JSON};
use crate::http::operators::problems::{ProblemSources, problems};
use crate::http::page::Page;
use crate::version::{COMMIT, VERSION};

/// Returns the page.
pub(super) fn page(pages: &Arc<DebugPages>) -> Arc<Page> {
    let pages = pages.clone();
    Page::new(JSON, move || format!("{:#}\n", status(&pages)))
}

/// Adds the state of the process and the store to that of the rules.
fn status(pages: &DebugPages) -> Value {
    let mut status = pages.loader.status();
    let reasons = pages.health.reasons();
    status["version"] = VERSION.into();
    status["commit"] = COMMIT.into();
    status["uptime_seconds"] = pages.started.elapsed().as_secs().into();
    status["not_serving_because"] = reasons.iter().map(ToString::to_string).collect();
    let store = (pages.store)();
    let DebugPages { loader, controls, identities, .. } = pages;
    let sources = ProblemSources { loader, controls, identities, store: &store };
    status["problems"] = json!(problems(&sources));
    status["store"] = store.to_json();
    status["controls"] = json!({
        "share_error": pages.controls.share_error().map(|error| error.to_string()),
        "missing": pages.controls.damaged_files().count(),
    });
    status["tls"] = pages.identities.to_json();
    status["log_level"] = pages.log_levels.as_ref().map(|it| it.get().to_string()).into();
    status
}
