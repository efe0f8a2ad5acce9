//! `/v1/controls`: the blocks, allows and limits that operators set at run time; and `/v1/audit`: changes by operators.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};

use super::api::{Answer, Api, finish};
use super::top::{self, MatchedHits};
use crate::http::buffer_memory;
use crate::http::operators::access::{Caller, OperatorChange};
use crate::http::operators::control_changes::redacted;
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::query::Query;
use crate::http::page::{self, Page};
use crate::net::ConnectionHandle;
use weir_api::messages::{
    AdviceKind, AuditList, ChangedControl, ControlList, OneControl, ShownControl, WrittenControl,
};
use weir_common::truncate::truncated;
use weir_controls::{Control, ControlError, Controls, Draft, ErrorKind, PutOptions, Written};
use weir_store::{Operations, Store};

const MAX_BODY_BYTES: usize = 128 << 10;

type Id = Result<Path<String>, PathRejection>;

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> ApiError {
        let (status, kind) = match error.kind {
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, AdviceKind::Other),
            ErrorKind::NeedsForce => (StatusCode::CONFLICT, AdviceKind::NeedsForce),
            ErrorKind::TooMany => (StatusCode::CONFLICT, AdviceKind::Other),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, AdviceKind::NoControl),
        };
        let names = error.names;
        ApiError { names, ..ApiError::new(status, error.error, error.help).with_kind(kind) }
    }
}

/// Returns the page with all controls, those that end first before others.
pub(super) fn page(controls: Arc<Controls>) -> Arc<Page> {
    let changes = controls.subscribe();
    Page::versioned(
        JSON,
        move || *changes.borrow(),
        move || {
            let now = controls.now();
            let shown = |control: Arc<Control>| ShownControl::new((*control).clone(), now);
            let list = ControlList {
                controls: controls.list().into_iter().map(shown).collect(),
                share_error: controls.share_error().map(|error| error.to_string()),
            };
            // Texts and numbers are always valid.
            serde_json::to_string(&list).unwrap_or_default() + "\n"
        },
    )
}

pub(super) async fn list<S>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    Query::read(&uri, &[])?;
    Ok(page::answer(State(api.controls_page.clone())).await)
}

pub(super) async fn show<S>(State(api): State<Arc<Api<S>>>, id: Id, uri: Uri) -> Answer {
    Query::read(&uri, &[])?;
    let Path(id) = read_id(id)?;
    let control = api.sources.controls.get(&id).ok_or_else(|| {
        let error = format!("there is no control {:?}", truncated(id.as_str(), 200));
        let help = "GET /v1/controls lists the controls; it may have ended";
        ApiError::new(StatusCode::NOT_FOUND, error, help).with_kind(AdviceKind::NoControl)
    })?;
    let control = ShownControl::new((*control).clone(), api.sources.controls.now());
    api.answer(&OneControl { control })
}

/// Makes a control, or replaces the one of this id; without an id, the one that does the same. `dry_run`
/// changes nothing, and `force` accepts a control that matches everything.
pub(super) async fn write<S: Store + Operations>(
    State(api): State<Arc<Api<S>>>,
    Extension(caller): Extension<Caller>,
    id: Result<Option<Path<String>>, PathRejection>,
    request: Request,
) -> Answer {
    let (head, body) = request.into_parts();
    let query = Query::read(&head.uri, &["dry_run", "force"])?;
    let options = PutOptions { dry_run: query.switch("dry_run")?, force: query.switch("force")? };
    let id = read_id(id)?.map(|Path(id)| id);
    let body = read_body(&api, body).await?;
    let rules = api.sources.rules.load_full();
    let draft = Draft::read(&body, rules.as_ref().and_then(|rules| rules.only_domain()))?;
    if let Some(connection) = head.extensions.get::<Arc<ConnectionHandle>>() {
        // The client is no longer waited for.
        connection.set_busy(true);
    }
    finish(async move {
        let by = draft.by.clone();
        let written = api.sources.controls.put(id.as_deref(), draft, options).await?;
        if !options.dry_run {
            api.audit(caller, &by, "put control", &written.control);
        }
        let MatchedHits { rows: matched, hits: matched_hits, all: all_hits } =
            top::matched(api.sources.top.clone(), written.control.clone()).await?;
        let (rules, warnings) = (written.rules.clone(), written.warnings.clone());
        let change = api.change(written);
        api.answer(&WrittenControl { change, rules, warnings, matched, matched_hits, all_hits })
    })
    .await
}

pub(super) async fn delete<S: Store + Operations>(
    State(api): State<Arc<Api<S>>>,
    Extension(caller): Extension<Caller>,
    id: Id,
    uri: Uri,
) -> Answer {
    let query = Query::read(&uri, &["by"])?;
    let Path(id) = read_id(id)?;
    finish(async move {
        let by = query.get("by").unwrap_or_default();
        // Before it is: the change may be seen while it is being shared.
        api.sources.log.add_writer(&id, &caller.who(by));
        let deleted = api.sources.controls.delete(&id).await;
        let deleted = deleted.inspect_err(|_| _ = api.sources.log.writer(&id))?;
        api.audit(caller, by, "delete control", &deleted.control);
        api.answer(&api.change(deleted))
    })
    .await
}

pub(super) async fn list_audit<S>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    Query::read(&uri, &[])?;
    api.answer(&AuditList { records: api.sources.log.audit() })
}

impl<S: Store + Operations> Api<S> {
    fn change(&self, written: Written) -> ChangedControl {
        let Written { control, shared, kept, not_kept_because, .. } = written;
        let store_is_shared = self.sources.limiter.store().shared_table().is_some();
        let control = ShownControl::new(control, self.sources.controls.now());
        ChangedControl { control, shared, store_is_shared, kept, not_kept_because }
    }

    fn audit(&self, caller: Caller, by: &str, action: &str, control: &Control) {
        let subject = |control: &Control| {
            format!("{}: {} {}", control.id, control.action, control.match_text())
        };
        let shown = redacted(control, self.sources.limiter.denials().redaction());
        let (subject, shown) = (&subject(control), &subject(&shown));
        caller.audit(&self.sources.log, &OperatorChange { by, action, subject, shown });
    }
}

fn read_id<P>(id: Result<P, PathRejection>) -> Result<P, ApiError> {
    id.map_err(|_| ApiError::bad_request("the id is not UTF-8", "write letters and digits"))
}

async fn read_body<S>(api: &Api<S>, body: Body) -> Result<Vec<u8>, ApiError> {
    let mut permit = api.buffers.permit();
    let read = buffer_memory::read(body, MAX_BODY_BYTES, api.timeout, &mut permit);
    read.await.map_err(|status| match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let error = format!("the body is larger than {MAX_BODY_BYTES} bytes, or incomplete");
            ApiError::new(status, error, "send one control")
        }
        StatusCode::REQUEST_TIMEOUT => {
            let error = "the body was not received within clients.timeout";
            ApiError::new(status, error, "send it at once")
        }
        _ => ApiError::new(status, "too many large requests", "try again"),
    })
}
