//! What all streams share: the limiter, the active rules, the demand of keys, the counts, and the list of all buckets.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::bucket::{Bucket, BucketId, Order};
use crate::keys::Keys;
use crate::options::QuotaOptions;
use weir_common::clock::Monotonic;
use weir_common::entry::OwnedEntry;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource};
use weir_common::throttle::Throttles;
use weir_controls::ActiveRules;
use weir_limit::Micros;
use weir_limiter::{GrantedState, Limiter};
use weir_store::States;

/// The interval of log lines about one rule that cannot be a quota.
const UNSUPPORTED_LOG_INTERVAL: Duration = Duration::from_secs(3_600);

/// Divides limits among the Envoys of all streams.
#[derive(Debug)]
pub struct Quotas<S> {
    pub(crate) limiter: Arc<Limiter<S>>,
    pub(crate) rules: Arc<ActiveRules>,
    pub(crate) options: QuotaOptions,
    pub(crate) keys: Keys,
    pub(crate) counts: QuotaCounts,
    clock: Box<dyn Monotonic>,
    next_stream: AtomicU64,
    unsupported_log: Throttles<String>,
    streams: Mutex<HashMap<u64, Arc<Mutex<StreamBuckets>>>>,
}

#[derive(Debug, Default)]
pub(crate) struct StreamBuckets {
    pub domain: Arc<str>,
    /// The address of the Envoy, or another name of it.
    pub client: String,
    /// Boxed, as a half of a table may be empty.
    pub buckets: HashMap<BucketId, Box<Bucket>>,
}

/// A bucket of one Envoy, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListedBucket {
    /// The domain of the bucket.
    pub domain: String,
    /// The entries of the bucket, by key.
    pub entries: Vec<OwnedEntry>,
    /// The Envoy.
    pub client: String,
    /// What the Envoy is ordered to do: `allow`, `deny` or `admit`; empty before the first order.
    pub order: String,
    /// The hits that the Envoy may use, or has used without a report of it.
    pub outstanding: u64,
    /// Its part of what all Envoys of this replica may use of the bucket, in percent.
    pub share: u64,
    /// The milliseconds until the order ends.
    pub ends_ms: u64,
    /// The requests of the last report; none before the second one.
    pub demand: Option<u64>,
    /// All hits that were granted.
    pub granted: u64,
    /// All requests that the Envoy has reported as admitted.
    pub admitted: u64,
    /// All granted hits that were not used: returned to the store, or granted again.
    pub returned: u64,
}

impl<S: States> Quotas<S> {
    /// Returns quotas without streams. `clock` goes on while the machine is suspended.
    pub fn new(
        limiter: Arc<Limiter<S>>,
        rules: Arc<ActiveRules>,
        clock: impl Monotonic,
        options: QuotaOptions,
    ) -> Quotas<S> {
        Quotas {
            limiter,
            rules,
            options,
            keys: Keys::default(),
            counts: QuotaCounts::default(),
            clock: Box::new(clock),
            next_stream: AtomicU64::new(1),
            unsupported_log: Throttles::new(UNSUPPORTED_LOG_INTERVAL),
            streams: Mutex::default(),
        }
    }

    /// Adds a stream of an Envoy, which `client` names; none if there are too many. Returns its number and its buckets.
    pub(crate) fn register(&self, client: String) -> Option<(u64, Arc<Mutex<StreamBuckets>>)> {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let buckets = Arc::new(Mutex::new(StreamBuckets { client, ..StreamBuckets::default() }));
        let mut streams = self.streams.lock();
        if streams.len() >= self.options.max_streams {
            return None;
        }
        streams.insert(id, buckets.clone());
        Some((id, buckets))
    }

    pub(crate) fn close(&self, id: u64, buckets: usize) {
        self.streams.lock().remove(&id);
        self.counts.buckets.fetch_sub(buckets as u64, Ordering::Relaxed);
    }

    /// Returns up to `most` buckets for which `is_wanted` is true, and the number of all of these.
    pub fn list(
        &self,
        most: usize,
        is_wanted: impl Fn(&str, &BucketId) -> bool,
    ) -> (Vec<ListedBucket>, usize) {
        let now = self.now();
        let streams: Vec<_> = self.streams.lock().values().cloned().collect();
        let (mut listed, mut found) = (Vec::new(), 0);
        for stream in streams {
            let stream = stream.lock();
            for (id, bucket) in &stream.buckets {
                if is_wanted(&stream.domain, id) {
                    found += 1;
                    if listed.len() < most {
                        listed.push((id.clone(), stream.listed(id, bucket, now)));
                    }
                }
            }
        }
        let listed = listed.into_iter().map(|(id, mut bucket): (BucketId, ListedBucket)| {
            let all = self.granted(&bucket.domain, &id).map_or(0, |granted| granted.hits);
            bucket.share = (bucket.outstanding.saturating_mul(100) / all.max(1)).min(100);
            bucket
        });
        (listed.collect(), found)
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.lock().len()
    }

    /// Returns what the Envoys were granted of a bucket, and have not reported yet; none if that is nothing.
    pub fn granted(&self, domain: &str, id: &BucketId) -> Option<GrantedState> {
        let streams: Vec<_> = self.streams.lock().values().cloned().collect();
        let granted = streams.iter().filter_map(|stream| {
            let stream = stream.lock();
            let bucket = stream.buckets.get(id).filter(|_| *stream.domain == *domain)?;
            Some(bucket.account.unreported).filter(|hits| *hits > 0)
        });
        let none = GrantedState { hits: 0, streams: 0 };
        let sum = granted.fold(none, |sum, hits| GrantedState {
            hits: sum.hits.saturating_add(hits),
            streams: sum.streams + 1,
        });
        Some(sum).filter(|sum| sum.streams > 0)
    }

    /// Counts a bucket that cannot be divided, and logs one of each rule an hour.
    #[cold]
    pub(crate) fn unsupported(&self, domain: &str, rule: &str, why: &'static str) {
        add(&self.counts.unsupported, 1);
        if let Some(suppressed) = self.unsupported_log.pass(format!("{domain} {rule}")) {
            let orders = self.options.unsupported.name();
            tracing::warn!(domain, rule, why, orders, suppressed, "rule cannot be a quota");
        }
    }

    pub(crate) fn now(&self) -> Micros {
        self.clock.monotonic()
    }
}

impl StreamBuckets {
    fn listed(&self, id: &BucketId, bucket: &Bucket, now: Micros) -> ListedBucket {
        ListedBucket {
            domain: self.domain.to_string(),
            entries: OwnedEntry::copied(id.entries()),
            client: self.client.clone(),
            order: match bucket.order {
                None => "",
                Some(Order::Allow) => "allow",
                Some(Order::Deny) => "deny",
                Some(Order::Admit(_)) => "admit",
            }
            .to_owned(),
            outstanding: bucket.account.unreported,
            // By all streams: see `list`.
            share: 0,
            ends_ms: bucket.ends.saturating_sub(now) / 1_000,
            demand: bucket.demand.map(u64::from),
            granted: bucket.granted,
            admitted: bucket.admitted,
            returned: bucket.returned,
        }
    }
}

metric_families! {
    STREAMS: gauge("rlqs_streams", &[]) = "Open streams of Envoys that are granted hits ahead of time";
    BUCKETS: gauge("rlqs_buckets", &[]) = "Buckets of these streams";
    GRANTED: counter("rlqs_granted_hits", &[]) = "Hits granted to Envoys ahead of time";
    REPORTED: counter("rlqs_reported_hits", &["result"]) = "Requests that Envoys have reported, by result";
    RETURNED: counter("rlqs_returned_hits", &[]) = "Granted hits that Envoys did not use: returned, or granted again";
    EXCESS: counter("rlqs_excess_hits", &[]) = "Hits that Envoys have admitted beyond what they were granted";
    UNSUPPORTED: counter("rlqs_unsupported_reports", &[])
        = "Reports of buckets whose rules cannot be divided among Envoys";
}

/// Counts since the start, and the buckets now.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounts {
    pub buckets: AtomicU64,
    pub granted: AtomicU64,
    pub admitted: AtomicU64,
    pub denied: AtomicU64,
    pub returned: AtomicU64,
    pub excess: AtomicU64,
    pub unsupported: AtomicU64,
}

/// Adds to a count, of which the sum stays far from its end.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl<S: States + Debug> MetricSource for Quotas<S> {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        sink.gauge(STREAMS, self.streams() as f64);
        sink.gauge(BUCKETS, get(&self.counts.buckets) as f64);
        sink.counter(GRANTED, get(&self.counts.granted));
        let (admitted, denied) = (get(&self.counts.admitted), get(&self.counts.denied));
        sink.counters(REPORTED, [("admitted", admitted), ("denied", denied)]);
        sink.counter(RETURNED, get(&self.counts.returned));
        sink.counter(EXCESS, get(&self.counts.excess));
        sink.counter(UNSUPPORTED, get(&self.counts.unsupported));
    }
}
