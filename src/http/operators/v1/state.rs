//! `/v1/state` and `/v1/count`: what one key has counted; `/v1/explain`: what applies to a descriptor.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::api::{Answer, Api, finish};
use crate::http::operators::access::{Caller, OperatorChange};
use crate::http::operators::error::ApiError;
use crate::http::operators::query::{Query, invalid};
use weir_api::messages::{AdviceKind, Counts, Reset};
use weir_common::descriptor::{DescriptorArg, descriptor_text};
use weir_common::duration::read_duration;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::truncate::truncated;
use weir_common::value;
use weir_controls::Snapshot;
use weir_limit::Micros;
use weir_limiter::{Descriptor, DescriptorState, Inspection, ReadState, ResetError};
use weir_quotas::{BucketId, ReportedId};
use weir_rules::Rule;
use weir_store::{States, StoreError};

/// The timeout of the store.
const TIMEOUT: Duration = Duration::from_secs(2);

const MAX_SPANS: usize = 16;

/// The longest text of a client that an error quotes, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

const DESCRIPTOR_HELP: &str = "write its entries: ?descriptor=key=value,key2=value2";

struct KeyArgs {
    domain: String,
    descriptor: DescriptorArg,
}

impl KeyArgs {
    fn read<S>(query: &Query, api: &Api<S>) -> Result<KeyArgs, ApiError> {
        let domain = domain(query, api)?;
        let descriptor = read_descriptor(query.required("descriptor", DESCRIPTOR_HELP)?)?;
        Ok(KeyArgs { domain, descriptor })
    }

    /// Returns the domain and the descriptor as text: `shop user=ann`.
    fn text(&self) -> String {
        format!("{} {}", self.domain, descriptor_text(&self.descriptor.entries()))
    }

    fn not_counted(&self) -> ApiError {
        let error = format!("nothing is counted for {}", truncated(self.text(), MAX_SHOWN_BYTES));
        let help = "no rule with a limit matches it: GET /v1/rules lists the rules";
        ApiError::new(StatusCode::NOT_FOUND, error, help).with_kind(AdviceKind::NotCounted)
    }
}

/// Returns the domain that a query names, or else the only one that has rules.
fn domain<S>(query: &Query, api: &Api<S>) -> Result<String, ApiError> {
    let help = "name the domain: ?domain=shop, or -d shop in a command";
    let rules = api.sources.rules.load_full();
    match rules.as_ref().and_then(|rules| rules.only_domain()) {
        Some(only) => Ok(query.get("domain").unwrap_or(only).to_owned()),
        None => query.required("domain", help).map(str::to_owned),
    }
}

/// Returns every limit of a key: what is used, what remains, when it resets.
pub(super) async fn show<S: States>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let key = KeyArgs::read(&Query::read(&uri, &["domain", "descriptor"])?, &api)?;
    let snapshot = api.snapshot()?;
    let entries = key.descriptor.entries();
    let inspection = api.inspect(&snapshot, &key.domain, &entries, &[]).await?;
    let applied = &inspection.applied;
    if applied.rule.is_none() && applied.effect.is_none() {
        return Err(key.not_counted());
    }
    let mut state = inspection.describe().state;
    api.add_granted(&mut state);
    api.answer(&state)
}

/// Returns the hits of a key over the last spans.
pub(super) async fn count<S: States>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read(&uri, &["domain", "descriptor", "span"])?;
    let (key, spans) = (KeyArgs::read(&query, &api)?, spans(&query)?);
    let snapshot = api.snapshot()?;
    let entries = key.descriptor.entries();
    let inspection = api.inspect(&snapshot, &key.domain, &entries, &spans).await?;
    let Some(Ok(state)) = &inspection.state else { return Err(key.not_counted()) };
    let mut errors = state.counts.iter().filter_map(|count| count.as_ref().err());
    if errors.clone().count() == spans.len()
        && let Some(error) = errors.next()
    {
        let help = "GET /v1/state lists the limits of the key";
        return Err(ApiError::bad_request(error.to_string(), help).with_kind(AdviceKind::NoSpan));
    }
    let ReadState { state, counts, .. } = inspection.describe();
    api.answer(&Counts {
        domain: state.domain,
        entries: state.entries,
        rule: state.rule,
        key: state.key.unwrap_or_default(),
        counts: counts.unwrap_or_default(),
    })
}

pub(super) async fn reset<S: States + 'static>(
    State(api): State<Arc<Api<S>>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let query = Query::read(&uri, &["domain", "descriptor", "by"])?;
    let key = KeyArgs::read(&query, &api)?;
    let snapshot = api.snapshot()?;
    finish(async move {
        let entries = key.descriptor.entries();
        let descriptor = Descriptor { entries: &entries, ..Descriptor::default() };
        let applied =
            api.sources.limiter.reset(&*snapshot, &key.domain, &descriptor, TIMEOUT).await;
        let applied = applied.map_err(|error| match error {
            ResetError::Store(error) => store_failed(error),
            ResetError::BadDescriptor(why) => ApiError::bad_request(why, "change the descriptor"),
        })?;
        let Some(counted) = applied.key else { return Err(key.not_counted()) };
        let by = query.get("by").unwrap_or_default();
        let redaction = api.sources.limiter.denials().redaction();
        let shown: Vec<_> =
            entries.iter().map(|entry| (entry.0, redaction.value(*entry, 0))).collect();
        let shown: Vec<Entry<'_>> = shown.iter().map(|(key, value)| (*key, &**value)).collect();
        let shown = format!("{} {}", key.domain, descriptor_text(&shown));
        let (action, subject, shown) = ("reset state", &key.text(), &shown);
        caller.audit(&api.sources.log, &OperatorChange { by, action, subject, shown });
        api.answer(&Reset {
            entries: OwnedEntry::copied(entries),
            rule: applied.rule.map(Rule::describe),
            control: applied.effect.map(|effect| effect.control().clone()),
            key: counted,
            reset: true,
            domain: key.domain,
        })
    })
    .await
}

impl<S: States> Api<S> {
    async fn inspect<'s>(
        &self,
        snapshot: &'s Snapshot,
        domain: &str,
        entries: &[Entry<'_>],
        spans: &[Micros],
    ) -> Result<Inspection<'s>, ApiError> {
        let descriptor = Descriptor { entries, ..Descriptor::default() };
        let inspected =
            self.sources.limiter.inspect(snapshot, domain, &descriptor, spans, TIMEOUT).await;
        let inspection =
            inspected.map_err(|why| ApiError::bad_request(why, "change the descriptor"))?;
        match inspection.state {
            Some(Err(error)) => Err(store_failed(error)),
            _ => Ok(inspection),
        }
    }

    /// Adds to the state of a key what Envoys were granted of it.
    fn add_granted(&self, state: &mut DescriptorState) {
        let Some(quotas) = &self.sources.quotas else { return };
        let entries = state.entries.iter().map(|entry| (&*entry.key, value::decode(&entry.value)));
        let entries: Vec<_> = entries.collect();
        let id = ReportedId::new(entries.iter().map(|(key, value)| (*key, &**value)));
        state.granted = id.and_then(|id| quotas.granted(&state.domain, &BucketId::from(&id)));
    }
}

fn store_failed(error: StoreError) -> ApiError {
    let help = "try again; /status shows the state of the store";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), help)
}

pub(super) fn read_descriptor(text: &str) -> Result<DescriptorArg, ApiError> {
    text.parse().map_err(|error: String| {
        ApiError::bad_request(format!("the parameter `descriptor`: {error}"), DESCRIPTOR_HELP)
    })
}

/// Reads the spans of a count: `5m,1h`.
fn spans(query: &Query) -> Result<Vec<Micros>, ApiError> {
    let help = "write one or more durations: ?span=5m,1h";
    let text = query.required("span", help)?;
    let span = |text: &str| {
        let micros = read_duration(text)?.as_micros();
        Some(Micros::try_from(micros).unwrap_or(Micros::MAX))
    };
    let spans: Option<Vec<_>> = text.split(',').map(span).collect();
    let spans = spans.ok_or_else(|| invalid("span", text, help))?;
    if spans.len() > MAX_SPANS {
        let error = format!("the parameter `span` has {} durations", spans.len());
        return Err(ApiError::bad_request(error, format!("write up to {MAX_SPANS}")));
    }
    Ok(spans)
}

/// Explains a request with one or more descriptors, with what their keys have counted.
pub(super) async fn explain<S: States>(State(api): State<Arc<Api<S>>>, uri: Uri) -> Answer {
    let query = Query::read_with_list(&uri, &["domain", "descriptor", "near"], "descriptor")?;
    let (domain, near) = (domain(&query, &api)?, query.switch("near")?);
    let descriptors: Vec<_> =
        query.list("descriptor").map(read_descriptor).collect::<Result<_, _>>()?;
    let entries: Vec<_> = descriptors.iter().map(|descriptor| descriptor.entries()).collect();
    let snapshot = api.snapshot()?;
    let explained =
        api.sources.limiter.explain(&*snapshot, (&domain, &entries), near, TIMEOUT).await;
    let help = "write ?domain=shop&descriptor=key=value,key2=value2&descriptor=…";
    let mut explained = explained.map_err(|error| ApiError::bad_request(error, help))?;
    let states = explained.descriptors.iter_mut().filter_map(|found| found.state.as_mut());
    states.for_each(|read| api.add_granted(&mut read.state));
    api.answer(&explained)
}
