//! An inspection as JSON. Times are in milliseconds, rounded up.

use serde_json::{Value, json};

use super::Inspection;
use weir_limit::{CountError, HoldLevels, Limit, LimitReading, Micros, SpanCount};
use weir_rules::Rule;

impl Inspection<'_> {
    /// Returns all of it as JSON. What could not be read is null, and `error` says why.
    pub fn to_json(&self) -> Value {
        let limits = self.applied.plan.iter().flat_map(|plan| plan.limits()).enumerate();
        let state = self.state.as_ref().and_then(|state| state.as_ref().ok());
        let failed = self.state.as_ref().and_then(|state| state.as_ref().err());
        let entries = self.entries.iter().map(|(key, value)| json!({ "key": key, "value": value }));
        let reading = |i: usize| state.and_then(|state| state.limits.get(i));
        json!({
            "domain": self.domain,
            "entries": entries.collect::<Vec<_>>(),
            "rule": self.applied.rule.map(Rule::to_json),
            "control": self.applied.effect.map(|effect| effect.control()),
            "key": self.applied.key,
            "limits": limits.map(|(i, it)| limit_json(it, reading(i))).collect::<Vec<_>>(),
            "holds": state.and_then(|state| state.holds.as_ref()).map(holds_json),
            "log_len": state.and_then(|state| state.log_len),
            "counts": state.map(|_| self.counts_json()),
            "error": failed.map(ToString::to_string),
        })
    }

    /// Returns the counts as JSON, one for each span: a count, or why there is none.
    pub fn counts_json(&self) -> Vec<Value> {
        let state = self.state.as_ref().and_then(|state| state.as_ref().ok());
        let counts = state.map_or(&[][..], |state| &state.counts);
        self.spans.iter().zip(counts).map(|(span, count)| self.count_json(*span, count)).collect()
    }

    fn count_json(&self, span: Micros, count: &Result<SpanCount, CountError>) -> Value {
        let count = match count {
            Ok(count) => count,
            Err(error) => return json!({ "span_ms": millis(span), "error": error.to_string() }),
        };
        let mut limits = self.applied.plan.iter().flat_map(|plan| plan.limits());
        let limit = limits.nth(count.limit.into());
        json!({
            "span_ms": millis(span),
            "count": count.count,
            "resolution_ms": millis(count.resolution),
            "max_late_ms": millis(count.max_late),
            "is_minimum": count.is_minimum,
            "limit": count.limit,
            "algorithm": limit.map(|limit| limit.algorithm.name()),
        })
    }
}

fn limit_json(limit: &Limit, reading: Option<&LimitReading>) -> Value {
    json!({
        "name": limit.name,
        "algorithm": limit.algorithm.name(),
        "n": limit.requests_per_unit,
        "text": limit.to_string(),
        "shadow_mode": limit.shadow_mode,
        "used": reading.map(|it| it.used),
        "remaining": reading.map(|it| it.remaining),
        "reset_ms": reading.map(|it| millis(it.reset_after)),
        "retry_ms": reading.and_then(|it| it.retry_after).map(millis),
    })
}

fn holds_json(holds: &HoldLevels) -> Value {
    json!({
        "ids": holds.ids,
        "hits": holds.hits,
        "expires_ms": millis(holds.expires_after),
    })
}

/// Rounds up: after so long it has happened.
fn millis(time: Micros) -> u64 {
    time.div_ceil(1_000)
}
