//! Envoy's Rate Limit Quota Service (`envoy.service.rate_limit_quota.v3`): reads what Envoys report, and writes what they
//! are ordered. All streams are served on one thread, so that no other request waits for them.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::net::ConnectionMemory;
use crate::proto::envoy::service::rate_limit_quota::v3 as pb;
use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use crate::proto::weir::budget::v1::Entry;
use pb::rate_limit_quota_response::BucketAction;
use pb::rate_limit_quota_response::bucket_action::{self, AbandonAction, QuotaAssignmentAction};
use pb::rate_limit_quota_service_server::RateLimitQuotaService;
use weir_common::threads;
use weir_common::value;
use weir_quotas::{Order, QuotaAction, QuotaReport, QuotaStream, Quotas, ReportedId, Usage};
use weir_store::States;

/// The largest report.
pub const MAX_QUOTA_MESSAGE_BYTES: usize = 4 << 20;

/// The memory that is held for buckets at a time.
const HELD_AT_ONCE: usize = 16 << 10;

/// How often each stream looks at rules and controls.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// How long an Envoy may report nothing.
const MAX_SILENCE: Duration = Duration::from_secs(300);

/// How long a client may not read what it is sent.
const MAX_SENDING: Duration = Duration::from_millis(500);

/// Envoy adds tokens only after this time, which no grant lasts.
const NEVER_FILLED: i64 = 365 * 24 * 3_600;

/// The streams that wait for the thread that serves them.
const MAX_STARTING: usize = 64;

/// What a stream needs to know of its connection.
#[derive(Clone, Debug)]
pub struct QuotaCall {
    pub client: Option<SocketAddr>,
    pub memory: Arc<ConnectionMemory>,
    /// Becomes true when the stream is to end: the connection is to be closed.
    pub leaving: watch::Receiver<bool>,
    /// The bytes that have arrived since the last message that was read.
    pub unread: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub struct QuotaService<S> {
    quotas: Arc<Quotas<S>>,
    streams: mpsc::Sender<BoxFuture<'static, ()>>,
    /// The timeout of a client that does not read.
    timeout: Duration,
}

impl<S: States> QuotaService<S> {
    /// Starts the thread that serves the streams.
    ///
    /// # Errors
    ///
    /// The system starts no thread.
    pub fn start(quotas: Arc<Quotas<S>>, timeout: Duration) -> std::io::Result<QuotaService<S>> {
        let (streams, mut started) = mpsc::channel(MAX_STARTING);
        threads::start("weir-rlqs", || async move {
            while let Some(stream) = started.recv().await {
                tokio::spawn(stream);
            }
        })?;
        Ok(QuotaService { quotas, streams, timeout })
    }
}

#[tonic::async_trait]
impl<S: States> RateLimitQuotaService for QuotaService<S> {
    type StreamRateLimitQuotasStream = ReceiverStream<Result<pb::RateLimitQuotaResponse, Status>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<pb::RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Self::StreamRateLimitQuotasStream>, Status> {
        let call = request.extensions().get::<QuotaCall>().cloned();
        let call = call.ok_or_else(|| Status::internal("a call without a connection"))?;
        let client = call.client.map(|client| client.to_string()).unwrap_or_default();
        let stream = self.quotas.open(client).ok_or_else(|| {
            Status::resource_exhausted("there are too many streams (setting rlqs.max_streams)")
        })?;
        let (responses, received) = mpsc::channel(1);
        let served = Served { stream, call, responses, timeout: self.timeout };
        let serving = served.run(request.into_inner()).boxed();
        self.streams.send(serving).await.map_err(|_| Status::unavailable("weir stops"))?;
        Ok(Response::new(ReceiverStream::new(received)))
    }
}

struct Served<S: States> {
    stream: QuotaStream<S>,
    call: QuotaCall,
    responses: mpsc::Sender<Result<pb::RateLimitQuotaResponse, Status>>,
    timeout: Duration,
}

impl<S: States> Served<S> {
    /// Serves the stream until the Envoy or the connection ends it, or a report is invalid.
    async fn run(mut self, mut reports: Streaming<pb::RateLimitQuotaUsageReports>) {
        let mut leaving = self.call.leaving.clone();
        let mut leaving = pin!(async move { drop(leaving.wait_for(|leaving| *leaving).await) });
        let mut memory = self.call.memory.reservation();
        let mut follow = interval(FOLLOW_INTERVAL);
        follow.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut silent_at = Instant::now() + MAX_SILENCE;
        // When it was last known that no report waits.
        let mut free_at = Instant::now();
        loop {
            while let Some(actions) = self.stream.next().await {
                if !self.send(&actions).await {
                    return;
                }
                if actions.iter().any(|action| action.order.is_none()) {
                    memory.resize(self.stream.bytes().next_multiple_of(HELD_AT_ONCE));
                }
            }
            // A report that is here already arrived while the buckets were visited, or their orders sent.
            let (report, waited) = match reports.message().now_or_never() {
                Some(report) => (report, free_at.elapsed()),
                None => {
                    free_at = Instant::now();
                    let due = free_at + self.stream.until_due().unwrap_or(MAX_SILENCE);
                    tokio::select! {
                        () = &mut leaving => return,
                        () = self.responses.closed() => return,
                        report = reports.message() => (report, Duration::ZERO),
                        () = sleep_until(due) => {
                            self.stream.due();
                            continue;
                        }
                        _ = follow.tick() => {
                            self.stream.follow();
                            continue;
                        }
                        () = sleep_until(silent_at) => {
                            let silent = "the client has reported nothing for 5 minutes";
                            return self.end(Status::deadline_exceeded(silent)).await;
                        }
                    }
                }
            };
            let report = match report {
                Ok(Some(report)) => report,
                Ok(None) => return,
                // A message that cannot be read.
                Err(status) if status.code() == Code::Internal => {
                    return self.end(Status::invalid_argument(status.message())).await;
                }
                Err(status) => return self.end(status).await,
            };
            silent_at = Instant::now() + MAX_SILENCE;
            let buckets = report.bucket_quota_usages.iter().map(usage);
            let recorded = QuotaReport { domain: &report.domain, buckets, waited };
            let hold = |bytes: usize| memory.resize(bytes.next_multiple_of(HELD_AT_ONCE));
            if let Err(error) = self.stream.report(recorded, hold) {
                return self.end(Status::invalid_argument(error.to_string())).await;
            }
            self.call.unread.store(0, Ordering::Relaxed);
        }
    }

    /// Sends actions. Returns false if the client does not read: what it was granted may end before it is applied.
    async fn send(&self, actions: &[QuotaAction]) -> bool {
        if actions.is_empty() {
            return true;
        }
        let bucket_action = actions.iter().map(encode).collect();
        let response = Ok(pb::RateLimitQuotaResponse { bucket_action });
        matches!(timeout(MAX_SENDING, self.responses.send(response)).await, Ok(Ok(())))
    }

    async fn end(&self, status: Status) {
        let _ = timeout(self.timeout, self.responses.send(Err(status))).await;
    }
}

/// Returns the bucket of a report, if its id is valid, and what was reported.
fn usage(
    usage: &pb::rate_limit_quota_usage_reports::BucketQuotaUsage,
) -> (Option<ReportedId<'_>>, Usage) {
    let entries = usage.bucket_id.iter().flat_map(|id| &id.bucket);
    let bucket = ReportedId::new(entries.map(|entry| (&*entry.key, &*entry.value)));
    let (admitted, denied) = (usage.num_requests_allowed, usage.num_requests_denied);
    (bucket, Usage { admitted, denied })
}

fn encode(action: &QuotaAction) -> BucketAction {
    let entries = action.bucket.entries().map(|(key, text)| {
        let (key, value) = (key.to_owned(), value::decode(text).into_owned());
        Entry { key, value }
    });
    let bucket_action = match action.order {
        None => bucket_action::BucketAction::AbandonAction(AbandonAction {}),
        Some((order, seconds)) => {
            let strategy = match order {
                Order::Allow => Strategy::BlanketRule(BlanketRule::AllowAll.into()),
                Order::Deny => Strategy::BlanketRule(BlanketRule::DenyAll.into()),
                Order::Admit(max_tokens) => Strategy::TokenBucket(TokenBucket {
                    max_tokens,
                    tokens_per_fill: Some(1),
                    fill_interval: Some(whole_seconds(NEVER_FILLED)),
                }),
            };
            bucket_action::BucketAction::QuotaAssignmentAction(QuotaAssignmentAction {
                assignment_time_to_live: Some(whole_seconds(seconds.into())),
                rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
            })
        }
    };
    BucketAction {
        bucket_id: Some(pb::BucketId { bucket: entries.collect() }),
        bucket_action: Some(bucket_action),
    }
}

fn whole_seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}
