//! Quotas by the rules of a text, with a store in memory and a clock that stands still.

mod account;
mod sharing;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::{
    Fallback, Order, QuotaAction, QuotaOptions, QuotaReport, QuotaStream, Quotas, ReportedId, Usage,
};
use weir_common::clock::ManualClock;
use weir_common::failure::OnStoreFailure;
use weir_controls::ActiveRules;
use weir_limit::{Micros, SECOND};
use weir_limiter::{Descriptor, Holds, Limiter, LimiterOptions, Request};
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};
use weir_store::Entry;
use weir_store::memory::MemoryStore;

/// The start of a minute.
const START: Micros = 1_700_006_400 * SECOND;

const TIMEOUT: Duration = Duration::from_millis(100);

const OPTIONS: QuotaOptions = QuotaOptions {
    unsupported: Fallback::Deny,
    fallback: Fallback::Deny,
    replicas: 1,
    store_timeout: TIMEOUT,
    on_failure: OnStoreFailure::Error,
    max_streams: 100,
    max_stream_buckets: 100,
    max_buckets: 1_000,
};

type Memory = MemoryStore<Arc<ManualClock>>;
type Stream = QuotaStream<Memory>;

struct Bench {
    clock: Arc<ManualClock>,
    rules: Arc<ActiveRules>,
    quotas: Arc<Quotas<Memory>>,
}

impl Bench {
    fn new(rules: &str, options: QuotaOptions) -> Bench {
        let clock = Arc::new(ManualClock::new(START));
        let rules = Arc::new(ActiveRules::of(compiled(rules)));
        let store = MemoryStore::new(clock.clone(), 1_000);
        let limiter = Arc::new(Limiter::new(store, LimiterOptions::default()));
        let quotas = Quotas::new(limiter, rules.clone(), clock.clone(), options);
        Bench { clock, rules, quotas: Arc::new(quotas) }
    }

    fn open(&self) -> Stream {
        self.quotas.open("envoy".to_owned()).expect("room for a stream")
    }

    /// Sends a request as a client of the Rate Limit Service does. Returns the hits that are left.
    fn ask(&self, entries: &[Entry<'_>], hits: u64) -> u32 {
        let descriptors = [Descriptor { entries, hits_addend: Some(hits), ..Default::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let (snapshot, mut holds) = (self.rules.load(), Holds::default());
        let limiter = &self.quotas.limiter;
        let decided = ready(limiter.decide(snapshot.as_deref(), &request, TIMEOUT, &mut holds));
        decided.expect("a decision").statuses[0].remaining
    }
}

fn compiled(rules: &str) -> RuleSet {
    let file = RuleFile { name: "test.yaml".into(), text: rules.into() };
    let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert_eq!(problems, []);
    rules
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers now")
}

/// Returns a message that has just arrived.
fn message<R>(domain: &str, buckets: R) -> QuotaReport<'_, R> {
    QuotaReport { domain, buckets, waited: Duration::ZERO }
}

/// Returns what is to be sent to a client.
fn sent(stream: &mut Stream) -> Vec<QuotaAction> {
    let next = || ready(stream.next());
    std::iter::from_fn(next).flatten().collect()
}

fn try_id<'a>(entries: &'a [Entry<'a>]) -> Option<ReportedId<'a>> {
    ReportedId::new(entries.iter().map(|(key, value)| (*key, value.as_bytes())))
}

fn id<'a>(entries: &'a [Entry<'a>]) -> ReportedId<'a> {
    try_id(entries).expect("a valid id")
}

fn usage(admitted: u64, denied: u64) -> Usage {
    Usage { admitted, denied }
}
