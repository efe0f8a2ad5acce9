//! Clients that do what Envoys do, and check each message: ten of them need less than one Envoy.

use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use weir::proto::envoy::service::rate_limit_quota::v3 as pb;
use weir::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use weir::proto::weir::budget::v1::Entry;

use pb::rate_limit_quota_response::bucket_action::{
    BucketAction as Ordered, QuotaAssignmentAction,
};
use pb::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use pb::rate_limit_quota_usage_reports::BucketQuotaUsage;

use super::*;
use crate::support::api::channel;

/// A quota stream.
pub struct Stream {
    pub reports: mpsc::Sender<pb::RateLimitQuotaUsageReports>,
    pub actions: Streaming<pb::RateLimitQuotaResponse>,
}

impl Stream {
    /// Opens a stream on a connection of its own.
    pub async fn open(to: SocketAddr) -> Result<Stream, Status> {
        let (reports, outgoing) = mpsc::channel(4);
        let mut client = RateLimitQuotaServiceClient::new(channel(to).await);
        let actions = client.stream_rate_limit_quotas(ReceiverStream::new(outgoing)).await?;
        Ok(Stream { reports, actions: actions.into_inner() })
    }
}

/// Returns a message of a stream.
pub fn report(domain: &str, usages: Vec<BucketQuotaUsage>) -> pb::RateLimitQuotaUsageReports {
    pb::RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: usages }
}

/// The bucket of a user, and the requests that it has admitted and denied.
pub fn usage(user: &str, admitted: u64, denied: u64) -> BucketQuotaUsage {
    let entry = Entry { key: "user".to_owned(), value: user.as_bytes().to_vec() };
    BucketQuotaUsage {
        bucket_id: Some(pb::BucketId { bucket: vec![entry] }),
        num_requests_allowed: admitted,
        num_requests_denied: denied,
    }
}

/// What a client does with requests.
#[derive(Clone, Copy)]
enum Order {
    Allow,
    Deny,
    Tokens(u32),
}

/// The one bucket of a client, from its first request until it is abandoned.
struct Bucket {
    /// None before the first assignment.
    order: Option<(Order, Instant)>,
    admitted: u64,
    denied: u64,
}

/// What a client has seen.
#[derive(Default)]
struct Recorded {
    bucket: Option<Bucket>,
    admissions: Vec<Admission>,
    grants: u64,
    abandons: u64,
    /// Messages that no Envoy may be sent.
    wrong: Vec<String>,
}

impl Recorded {
    /// Decides a request. Returns whether the bucket is new, and so to be reported at once.
    fn request(&mut self) -> bool {
        let at = now();
        let is_new = self.bucket.is_none();
        let bucket = self.bucket.get_or_insert(Bucket { order: None, admitted: 0, denied: 0 });
        let admits = match &mut bucket.order {
            Some((_, end)) if *end <= Instant::now() => false,
            Some((Order::Allow, _)) => true,
            Some((Order::Tokens(left), _)) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if admits {
            bucket.admitted += 1;
            self.admissions.push(Admission { earliest: at, latest: at });
        } else {
            bucket.denied += 1;
        }
        is_new
    }

    /// Returns what the bucket has admitted and denied since the last report.
    fn report(&mut self) -> Option<BucketQuotaUsage> {
        let Bucket { admitted, denied, .. } = self.bucket.as_mut()?;
        Some(usage("one", std::mem::take(admitted), std::mem::take(denied)))
    }

    /// Obeys a message.
    fn obey(&mut self, message: &pb::RateLimitQuotaResponse) {
        let (mut is_denied, mut assigned, mut abandoned) = (false, false, false);
        for action in &message.bucket_action {
            if action.bucket_id != usage("one", 0, 0).bucket_id {
                self.wrong.push(format!("another bucket: {message:?}"));
            }
            match &action.bucket_action {
                Some(Ordered::AbandonAction(_)) => {
                    (abandoned, self.bucket) = (true, None);
                    self.abandons += 1;
                }
                Some(Ordered::QuotaAssignmentAction(assignment)) => {
                    assigned = true;
                    let order = order(assignment, is_denied);
                    is_denied = matches!(order, Some((Order::Deny, _)));
                    match (&mut self.bucket, order) {
                        (Some(bucket), Some(_)) => bucket.order = order,
                        (_, None) => self.wrong.push(format!("{message:?}")),
                        (None, _) => {}
                    }
                    self.grants += u64::from(matches!(order, Some((Order::Tokens(_), _))));
                }
                None => self.wrong.push(format!("no action: {message:?}")),
            }
        }
        if assigned && abandoned {
            self.wrong.push(format!("abandoned and assigned: {message:?}"));
        }
    }
}

/// Returns the order of an assignment and its end; none if an Envoy would not obey it as it is meant. `is_denied`: the
/// assignment before it denies, or tokens would be those that are left of earlier ones.
fn order(assignment: &QuotaAssignmentAction, is_denied: bool) -> Option<(Order, Instant)> {
    let is_whole = |time: prost_types::Duration| time.seconds >= 1 && time.nanos == 0;
    let time = assignment.assignment_time_to_live.filter(|time| is_whole(*time))?;
    let order = match assignment.rate_limit_strategy?.strategy? {
        Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::DenyAll) => Order::Deny,
        Strategy::BlanketRule(_) => Order::Allow,
        Strategy::TokenBucket(tokens) => {
            let fills = tokens.tokens_per_fill? >= 1 && is_whole(tokens.fill_interval?);
            let is_right = is_denied && fills && tokens.max_tokens >= 1;
            is_right.then_some(Order::Tokens(tokens.max_tokens))?
        }
    };
    Some((order, Instant::now() + Duration::from_secs(time.seconds.unsigned_abs())))
}

/// Sends requests of the user `one` at this distance, and reports, until a time.
async fn run(to: SocketAddr, gap: Duration, report_every: Duration, until: Instant) -> Recorded {
    let mut stream = Stream::open(to).await.expect("a stream");
    let mut recorded = Recorded::default();
    let (mut requests, mut reports) = (interval(gap), interval(report_every));
    // Only the first report names it.
    let mut domain = "shop";
    loop {
        let is_due = tokio::select! {
            () = sleep_until(until) => return recorded,
            _ = requests.tick() => recorded.request(),
            _ = reports.tick() => true,
            message = stream.actions.message() => {
                let message = message.expect("no error").expect("the stream goes on");
                recorded.obey(&message);
                false
            }
        };
        if is_due && let Some(usage) = recorded.report() {
            stream.reports.send(report(domain, vec![usage])).await.expect("the stream goes on");
            domain = "";
        }
    }
}

/// One client has nearly all requests: the others send one a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_all_of_the_load_gets_nearly_all_of_the_limit() {
    let numbers = Numbers::for_this_run();
    let redis = Server::start();
    let weirs = [(); 2].map(|()| replica(numbers, &redis, "127.0.0.1:0"));
    // Idle buckets are abandoned after four reports: in a short run these come faster.
    let (clients, report_every, lasts) = match is_long() {
        true => (10, Duration::from_secs(5), Duration::from_secs(60 * 8)),
        false => (3, Duration::from_millis(500), Duration::from_secs(12)),
    };
    let (started, until) = (now(), Instant::now() + lasts);
    let running: Vec<_> = (0..clients)
        .map(|client| {
            let gap = Duration::from_millis(if client == 0 { 12 } else { 60_000 });
            tokio::spawn(run(weirs[client % 2].grpc, gap, report_every, until))
        })
        .collect();
    let mut all = Recorded::default();
    for client in running {
        let mut recorded = client.await.expect("the client ran to its end");
        all.admissions.append(&mut recorded.admissions);
        all.wrong.append(&mut recorded.wrong);
        all.grants += recorded.grants;
        all.abandons += recorded.abandons;
    }
    let Recorded { admissions, wrong, grants, abandons, .. } = all;
    println!("{clients} clients: {grants} grants, {abandons} abandons");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(grants > 0 && abandons > 0, "{grants} grants, {abandons} abandons");
    let windows = count(&admissions, started..now(), numbers.window());
    for window in &windows {
        window.print(numbers.n);
        assert!(window.sure <= numbers.n, "{window:?}");
    }
    assert!(!is_long() || used(&windows, numbers.n) >= 0.9);
    assert_no_excess(&weirs);
}
