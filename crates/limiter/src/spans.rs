//! The spans of a decision and of the store's answer to it, for requests that are recorded.

use tracing::field::{Empty, debug, display};
use tracing::{Span, info_span};

use super::lookup::Lookup;
use super::{Request, RequestDecision, RequestError};
use weir_common::spans::TARGET;
use weir_limit::Source;
use weir_store::{Answer, Batch};

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
                rate_limit.keys = batch.charges.len(),
                rate_limit.together = batch.together,
                rate_limit.answered_by = Empty,
                error.type = Empty,
            ))
        }))
    }

    /// Ends the span with what was looked up, if it was, and the outcome.
    #[inline]
    pub fn end(
        self,
        lookup: Option<&Lookup<'_, '_>>,
        decision: Result<&RequestDecision<'_>, &RequestError>,
    ) {
        if let Some(span) = self.0 {
            end(&span, lookup, decision);
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
        rate_limit.descriptors = request.descriptors.len() + request.beyond,
        rate_limit.rules = Empty,
        rate_limit.over_limit_rules = Empty,
        rate_limit.outcome = Empty,
        error.type = Empty,
    ))
}

#[cold]
fn end(
    span: &Span,
    lookup: Option<&Lookup<'_, '_>>,
    decision: Result<&RequestDecision<'_>, &RequestError>,
) {
    let rules = || {
        let matched = lookup.into_iter().flat_map(|lookup| &lookup.matched);
        matched.map(|matched| matched.applies.rule().map(|rule| rule.path()))
    };
    let list = |rules: &mut dyn Iterator<Item = &str>| {
        rules.take(MAX_RULES).collect::<Vec<_>>().join(", ")
    };
    span.record("rate_limit.rules", list(&mut rules().flatten()));
    match decision {
        Ok(decision) => {
            let over = rules().zip(&decision.statuses);
            let mut over =
                over.filter(|(_, status)| status.over_limit).filter_map(|(rule, _)| rule);
            span.record("rate_limit.over_limit_rules", list(&mut over));
            let outcome = if decision.over_limit { "over_limit" } else { "ok" };
            span.record("rate_limit.outcome", outcome);
        }
        Err(error) => {
            span.record("rate_limit.outcome", "error");
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", display(error));
        }
    }
}

impl ChargeSpan {
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
        Source::Degraded => "failure_policy",
    }
}
