//! The spans of a decision and of the store's answer to it, for requests that are recorded.

use tracing::field::{Empty, debug, display};
use tracing::{Span, info_span};

use super::lookup::Lookup;
use super::{Request, RequestDecision, RequestError};
use weir_common::spans::TARGET;
use weir_limit::{Micros, Source};
use weir_rules::Rule;
use weir_store::{Answer, Batch};

/// Microseconds in a millisecond.
const MILLISECOND: Micros = 1_000;

/// Rules listed by a span; a request may match many.
const MAX_RULES: usize = 16;

/// The span of a decision; none if its request is not recorded.
pub(super) struct DecisionSpan(Option<Box<Span>>);

/// The span of charging a batch; none if its request is not recorded.
pub(super) struct ChargeSpan(Option<Box<Span>>);

impl DecisionSpan {
    #[inline]
    pub fn start(request: &Request<'_>) -> DecisionSpan {
        DecisionSpan(request.span.map(|parent| start(parent, request)))
    }

    /// Starts the span of charging a batch.
    #[inline]
    pub fn charge(&self, batch: &Batch<'_>) -> ChargeSpan {
        ChargeSpan(self.0.as_deref().map(|parent| {
            Box::new(info_span!(
                target: TARGET,
                parent: parent,
                "charge",
                otel.name = "rate_limit.charge",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rate_limit.keys = integer(batch.charges.len() as u64),
                rate_limit.together = batch.together,
                rate_limit.answered_by = Empty,
                error.type = Empty,
            ))
        }))
    }

    /// Ends the span with what was looked up and charged, and the outcome.
    #[inline]
    pub fn end(
        self,
        lookup: &Lookup<'_, '_>,
        answers: &[Answer],
        decision: Result<&RequestDecision<'_>, &RequestError>,
    ) {
        if let Some(span) = self.0 {
            end(&span, lookup, answers, decision);
        }
    }

    /// Ends the span of an invalid request.
    #[inline]
    pub fn fail(self, error: &RequestError) {
        if let Some(span) = self.0 {
            fail(&span, error);
        }
    }
}

#[cold]
fn start(parent: &Span, request: &Request<'_>) -> Box<Span> {
    Box::new(info_span!(
        target: TARGET,
        parent: parent,
        "decide",
        otel.name = "rate_limit.decide",
        otel.status_code = Empty,
        otel.status_description = Empty,
        domain = request.domain,
        rate_limit.descriptors = integer((request.descriptors.len() + request.beyond) as u64),
        rate_limit.rules = Empty,
        rate_limit.over_limit_rules = Empty,
        rate_limit.outcome = Empty,
        rate_limit.rule = Empty,
        rate_limit.limit.name = Empty,
        rate_limit.limit.requests = Empty,
        rate_limit.used = Empty,
        rate_limit.remaining = Empty,
        rate_limit.retry_after_ms = Empty,
        error.type = Empty,
    ))
}

#[cold]
fn end(
    span: &Span,
    lookup: &Lookup<'_, '_>,
    answers: &[Answer],
    decision: Result<&RequestDecision<'_>, &RequestError>,
) {
    let rules = || lookup.matched.iter().map(|matched| matched.applies.rule().map(Rule::path));
    let list = |rules: &mut dyn Iterator<Item = &str>| {
        rules.take(MAX_RULES).collect::<Vec<_>>().join(", ")
    };
    span.record("rate_limit.rules", list(&mut rules().flatten()));
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return fail(span, error),
    };
    let over = rules().zip(&decision.statuses);
    let mut over = over.filter(|(_, status)| status.over_limit).filter_map(|(rule, _)| rule);
    span.record("rate_limit.over_limit_rules", list(&mut over));
    let outcome = if decision.over_limit { "over_limit" } else { "ok" };
    span.record("rate_limit.outcome", outcome);
    record_deciding(span, lookup, answers, decision);
}

/// Records the limit of the first descriptor with the code of the whole request.
fn record_deciding(
    span: &Span,
    lookup: &Lookup<'_, '_>,
    answers: &[Answer],
    decision: &RequestDecision<'_>,
) {
    let mut answers = answers.iter();
    let mut descriptors =
        lookup.matched.iter().zip(&decision.statuses).map(|(matched, status)| {
            (matched, matched.plan().and_then(|_| answers.next()), status)
        });
    let Some((matched, answer, status)) =
        descriptors.find(|(_, _, status)| status.over_limit == decision.over_limit)
    else {
        return;
    };
    if let Some(rule) = status.rule {
        span.record("rate_limit.rule", rule.path());
    }
    if let Some(limit) = &status.limit {
        if !limit.name.is_empty() {
            span.record("rate_limit.limit.name", limit.name);
        }
        span.record("rate_limit.limit.requests", i64::from(limit.requests_per_unit));
        span.record("rate_limit.remaining", i64::from(status.remaining));
    }
    if let Some(Ok(decided)) = answer {
        let taken = if decided.allowed { matched.op.charged(decided) } else { 0 };
        span.record("rate_limit.used", integer(decided.used_before.saturating_add(taken)));
    }
    if let Some(wait) = status.retry_after {
        span.record("rate_limit.retry_after_ms", integer(wait.div_ceil(MILLISECOND)));
    }
}

#[cold]
fn fail(span: &Span, error: &RequestError) {
    span.record("rate_limit.outcome", "error");
    span.record("error.type", error_type(error));
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", display(error));
}

/// Returns the kind of an error, without its details.
fn error_type(error: &RequestError) -> String {
    match error {
        RequestError::Store(error) => format!("{error:?}"),
        RequestError::EmptyDomain
        | RequestError::NoDescriptors
        | RequestError::TooManyDescriptors(..)
        | RequestError::BadDescriptor(..)
        | RequestError::BadReservation(_) => "invalid_request".to_owned(),
        RequestError::NoRules => "no_rules".to_owned(),
    }
}

/// Returns a count as the integers of OpenTelemetry are.
fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl ChargeSpan {
    /// The span, as a parent.
    #[inline]
    pub fn span(&self) -> Option<&Span> {
        self.0.as_deref()
    }

    /// Ends the span with the answers of the store.
    #[inline]
    pub fn end(self, answers: &[Answer]) {
        if let Some(span) = self.0 {
            end_charge(&span, answers);
        }
    }
}

#[cold]
fn end_charge(span: &Span, answers: &[Answer]) {
    let mut by: Vec<&str> =
        answers.iter().flatten().map(|decision| source(decision.source)).collect();
    by.sort_unstable();
    by.dedup();
    span.record("rate_limit.answered_by", by.join(", "));
    if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
        span.record("error.type", debug(error));
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", display(error));
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Store => "store",
        Source::DeniedLocally => "denied_locally",
        Source::Leased => "leased",
        Source::Degraded => "failure_policy",
    }
}
