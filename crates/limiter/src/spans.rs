//! The tracing spans of a decision and of the store's answer to it, for requests that are traced.

use tracing::field::{Empty, debug, display};
use tracing::{Span, info_span};

use crate::decision::{Answered, Decided, RequestDecision, RequestError};
use crate::request::Request;
use weir_common::spans::TARGET;
use weir_limit::Source;
use weir_rules::Rule;
use weir_store::{Answer, Batch};

/// Rules listed by a span; a request may match many.
const MAX_RULES: usize = 16;

pub(super) struct DecisionSpan(Box<Span>);

pub(super) struct ChargeSpan(Box<Span>);

impl DecisionSpan {
    #[cold]
    pub fn start(parent: &Span, request: &Request<'_>) -> DecisionSpan {
        DecisionSpan(Box::new(info_span!(
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
        )))
    }

    #[cold]
    pub fn charge(&self, batch: &Batch<'_>) -> ChargeSpan {
        ChargeSpan(Box::new(info_span!(
            target: TARGET,
            parent: &*self.0,
            "charge",
            otel.name = "rate_limit.charge",
            otel.status_code = Empty,
            otel.status_description = Empty,
            rate_limit.keys = integer(batch.charges.len() as u64),
            rate_limit.together = batch.together,
            rate_limit.answered_by = Empty,
            error.type = Empty,
        )))
    }

    /// Ends the span with the rules that apply, and the outcome.
    #[cold]
    pub fn end(
        self,
        answered: &Answered<'_, '_, '_>,
        decision: Result<&RequestDecision<'_>, &RequestError>,
    ) {
        let rules = || answered.lookup.matched.iter().map(|matched| matched.applies.rule());
        self.0.record("rate_limit.rules", paths(rules().flatten()));
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => return self.fail(error),
        };
        let over = rules().zip(&decision.statuses).filter(|(_, status)| status.over_limit);
        self.0.record("rate_limit.over_limit_rules", paths(over.filter_map(|(rule, _)| rule)));
        let outcome = if decision.over_limit { "over_limit" } else { "ok" };
        self.0.record("rate_limit.outcome", outcome);
        self.record_deciding(answered, decision);
    }

    /// Records the limit of the first descriptor with the code of the whole request.
    fn record_deciding(&self, answered: &Answered<'_, '_, '_>, decision: &RequestDecision<'_>) {
        let mut descriptors = answered.descriptors().zip(&decision.statuses);
        let deciding = descriptors.find(|(_, status)| status.over_limit == decision.over_limit);
        let Some(((_, decided), status)) = deciding else { return };
        let span = &self.0;
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
        if let Decided::Charged(charge, Ok(decision)) = decided {
            let taken = if decision.allowed { charge.op.charged(decision) } else { 0 };
            span.record("rate_limit.used", integer(decision.used_before.saturating_add(taken)));
        }
        if let Some(wait) = status.retry_after {
            span.record("rate_limit.retry_after_ms", integer(wait.div_ceil(1_000)));
        }
    }

    /// Ends the span of a request that gets no decision.
    #[cold]
    pub fn fail(self, error: &RequestError) {
        self.0.record("rate_limit.outcome", "error");
        self.0.record("error.type", error_type(error));
        self.0.record("otel.status_code", "ERROR");
        self.0.record("otel.status_description", display(error));
    }
}

fn paths<'s>(rules: impl Iterator<Item = &'s Rule>) -> String {
    rules.map(Rule::path).take(MAX_RULES).collect::<Vec<_>>().join(", ")
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
    pub fn span(&self) -> &Span {
        &self.0
    }

    #[cold]
    pub fn end(self, answers: &[Answer]) {
        let span = &self.0;
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
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Store => "store",
        Source::DeniedLocally => "denied_locally",
        Source::Leased => "leased",
        Source::Degraded => "failure_policy",
    }
}
