//! The API methods that clients call over HTTP: their paths, their messages, and the metrics of their latencies.

use std::time::Duration;

use crate::proto::weir::budget::v1 as pb;
use crate::rls::service::BudgetRequest;
use weir_api::json::RATE_LIMIT_REQUEST;
use weir_common::metric_families;
use weir_common::metrics::{Histogram, MetricSink, MetricSource, SampleValue};
use weir_common::spans::TraceIds;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    ShouldRateLimit,
    Reserve,
    Settle,
    Cancel,
}

impl Method {
    pub const BUDGET: [Method; 3] = [Method::Reserve, Method::Settle, Method::Cancel];

    pub fn path(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => "/json",
            Method::Reserve => "/v1/budget/reserve",
            Method::Settle => "/v1/budget/settle",
            Method::Cancel => "/v1/budget/cancel",
        }
    }

    /// The full name of the message that it receives.
    pub fn request(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => RATE_LIMIT_REQUEST,
            Method::Reserve => pb::ReserveRequest::NAME,
            Method::Settle => pb::SettleRequest::NAME,
            Method::Cancel => pb::CancelRequest::NAME,
        }
    }
}

/// The latencies of each method, in the order of `Method`.
#[derive(Debug, Default)]
pub struct JsonStats([Histogram; 1 + Method::BUDGET.len()]);

metric_families! {
    REQUESTS: counter("json_requests", &[]) = "Requests to /json that were answered";
    DURATION: histogram("json_request_duration_seconds", &[])
        = "Time from receiving the head of a request to /json to its response";
    BUDGET_DURATION: histogram("budget_request_duration_seconds", &["path"])
        = "Time from receiving the head of a request to /v1/budget to its response, by path";
}

impl JsonStats {
    /// The latencies of the methods that decide: `ShouldRateLimit` and `Reserve`.
    pub fn decisions(&self) -> [&Histogram; 2] {
        let [decide, reserve, ..] = &self.0;
        [decide, reserve]
    }

    pub(super) fn record(&self, method: Method, duration: Duration, ids: Option<TraceIds>) {
        let durations = &self.0[method as usize];
        let micros = duration.as_micros() as u64;
        durations.record(micros);
        if let Some(ids) = ids {
            durations.set_exemplar(micros, ids);
        }
    }
}

impl MetricSource for JsonStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let [decisions, budget @ ..] = &self.0;
        let decisions = decisions.snapshot();
        sink.counter(REQUESTS, decisions.count());
        sink.histogram(DURATION, &decisions);
        sink.family(BUDGET_DURATION);
        for (method, durations) in Method::BUDGET.iter().zip(budget) {
            let labels = [("path", method.path())];
            sink.sample(&labels, SampleValue::Histogram(&durations.snapshot()));
        }
    }
}
