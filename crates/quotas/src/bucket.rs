//! A bucket of one client: its id, what the client was ordered to do, and for how long.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::Equivalent;
use smallvec::SmallVec;
use weir_common::value;
use weir_limit::{Micros, Plan, SECOND};
use weir_limiter::Usage;
use weir_store::Entry;

use crate::account::{Account, REPORT_DELAY};
use crate::options::Fallback;
use crate::size::Demand;
use crate::window::WindowEnd;

/// The most entries of an id.
const MAX_ENTRIES: usize = 16;

/// The most bytes of an id, all keys and values together.
const MAX_ID_BYTES: usize = 4_096;

/// How long an Envoy obeys an order that depends on no window.
pub(crate) const PLAIN_ORDER: Micros = 60 * SECOND;

/// About what a bucket takes in memory without the texts of its id, wherever it is listed.
pub(crate) const BUCKET_BYTES: usize = 600;

/// How long before its end an order is replaced.
pub(crate) const EARLY: Micros = 200_000;

/// How long after a report the next one arrives, at most.
const REPORT_INTERVAL: Micros = 6 * SECOND;

/// How long after its last report a bucket is granted nothing more. Envoys report every bucket that they know.
const SILENT_AFTER: Micros = 60 * SECOND;

/// The number of reports without requests in a row after which a bucket is granted one hit.
const SHRINKS_AFTER: u8 = 3;

/// The id of a bucket: a map of keys to values, sorted by key. Values are [texts](weir_common::value).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(Arc<[(Box<str>, Box<str>)]>);

/// The id of a bucket in a report. It has the hash of its [`BucketId`], which is made only for a new bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReportedId<'a>(SmallVec<[(&'a str, Cow<'a, str>); 4]>);

impl<'a> ReportedId<'a> {
    /// Returns the id of a map, in any order; none if it is empty or too large, or a key is empty or repeated.
    pub fn new(entries: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<ReportedId<'a>> {
        let mut entries: SmallVec<[_; 4]> =
            entries.map(|(key, bytes)| (key, value::encode(bytes))).take(MAX_ENTRIES + 1).collect();
        entries.sort_unstable();
        let is_repeated = entries.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let has_empty = entries.iter().any(|(key, _)| key.is_empty());
        let is_valid = (1..=MAX_ENTRIES).contains(&entries.len()) && !is_repeated && !has_empty;
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        (is_valid && bytes <= MAX_ID_BYTES).then_some(ReportedId(entries))
    }
}

impl Equivalent<BucketId> for ReportedId<'_> {
    fn equivalent(&self, id: &BucketId) -> bool {
        self.0.iter().map(|(key, value)| (*key, &**value)).eq(id.entries())
    }
}

impl From<&ReportedId<'_>> for BucketId {
    fn from(id: &ReportedId<'_>) -> BucketId {
        BucketId(id.0.iter().map(|(key, value)| (Box::from(*key), Box::from(&**value))).collect())
    }
}

impl BucketId {
    /// The bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Returns the entries, sorted by key.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// What a client is ordered to do with the requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Admits all.
    Allow,
    /// Denies all.
    Deny,
    /// Admits this number of requests, at least 1, then denies.
    Admit(u32),
}

/// What is sent about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaAction {
    /// The bucket.
    pub bucket: BucketId,
    /// The order, and its seconds; none if the Envoy may forget the bucket.
    pub order: Option<(Order, u32)>,
}

impl QuotaAction {
    /// Returns the action with an order that lasts whole seconds.
    pub(crate) fn order(bucket: BucketId, order: Order, lasts: Micros) -> QuotaAction {
        let seconds = u32::try_from(lasts / SECOND).unwrap_or(u32::MAX).max(1);
        QuotaAction { bucket, order: Some((order, seconds)) }
    }
}

/// Why a bucket is visited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It was reported: the instant after which the report arrived, and whether no order was given before.
    Report { at: Micros, usage: Usage, is_first: bool },
    /// Its order is about to end, or its window has ended.
    Due,
    /// Rules or controls have changed.
    Changed,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub account: Account,
    pub order: Option<Order>,
    /// Until when the client obeys the order.
    pub ends: Micros,
    /// When the order is to be replaced; 0 if it is not.
    pub due: Micros,
    /// The requests of its last report; none before the second one.
    pub demand: Option<u32>,
    pub reported_at: Micros,
    /// Reports that wait because the last one is too recent, summed, and when the first of them arrived.
    pub waiting: Option<Box<(Micros, Usage)>>,
    /// Whether its last report was the first one since its first grant.
    pub follows_first_grant: bool,
    /// The reports without requests in a row.
    pub idle_reports: u8,
    /// Until when a report may have requests that passed by an order to allow all, or by a grant of an earlier stream.
    pub allowed_until: Micros,
    pub window: Option<WindowEnd>,
    /// The limits by which the order was given; none if no limits counted.
    pub plan: Option<Arc<Plan>>,
    /// All hits that were granted, reported as admitted, and returned.
    pub granted: u64,
    pub admitted: u64,
    pub returned: u64,
}

/// The time between two reports of one bucket that are settled separately.
const SETTLE_INTERVAL: Micros = SECOND;

impl Bucket {
    /// Returns when a report that arrives after the last one can be settled.
    pub fn settles_at(&self) -> Micros {
        self.reported_at.saturating_add(SETTLE_INTERVAL)
    }

    /// Returns when the bucket is visited again without a report; 0 if it is not.
    pub fn next_visit(&self) -> Micros {
        match (&self.waiting, self.due) {
            (None, due) => due,
            (Some(_), 0) => self.settles_at(),
            (Some(_), due) => self.settles_at().min(due),
        }
    }

    /// Returns whether it had a request in one of its last two reports, and these are recent.
    pub fn is_active(&self, now: Micros) -> bool {
        self.idle_reports < 2 && !self.is_silent(now)
    }

    /// Returns whether the client reports it no more.
    fn is_silent(&self, now: Micros) -> bool {
        now > self.reported_at.saturating_add(SILENT_AFTER)
    }

    /// Returns whether its grant is to be only one hit.
    pub fn shrinks(&self) -> bool {
        self.idle_reports == SHRINKS_AFTER
    }

    /// Returns whether the client may forget it: not if it could then admit a request that is to be denied.
    pub fn is_abandoned(&self, now: Micros, fallback: Fallback) -> bool {
        let is_denied = self.order == Some(Order::Deny)
            && match self.plan {
                Some(_) => self.window.is_some_and(|window| window.left(now) > 0),
                None => fallback == Fallback::Allow,
            };
        (self.idle_reports > SHRINKS_AFTER || self.is_silent(now)) && !is_denied
    }

    /// Returns whether the client still admits requests by a grant that needs no other one yet.
    pub fn has_grant(&self, now: Micros) -> bool {
        matches!(self.order, Some(Order::Admit(_))) && now < self.due
    }

    /// Returns whether a new grant of `hits` would bring the client nothing until its next report. It must not hold so much
    /// that others should get it.
    pub fn has_enough(&self, hits: u32, now: Micros) -> bool {
        let (has, needed) = (self.account.unreported, self.needed());
        let most = match self.is_doubled(hits) {
            true if self.idle_reports > 0 => u64::MAX,
            _ => needed.max(hits.into()),
        };
        let lasts = self.due > now.saturating_add(REPORT_INTERVAL);
        self.has_grant(now) && lasts && (needed.min(hits.into())..=most).contains(&has)
    }

    /// Returns whether its first grant, for which no demand was known, is so much more than it needs that others may need
    /// that.
    pub fn has_too_much(&self) -> bool {
        self.follows_first_grant && self.account.unreported > 2 * self.needed()
    }

    /// Returns whether a grant has more hits than the client needs, since there is plenty.
    pub fn is_doubled(&self, hits: u32) -> bool {
        u64::from(hits) > self.needed()
    }

    fn needed(&self) -> u64 {
        Demand::needed(self.demand.unwrap_or(0).into())
    }

    /// Sets what the client is ordered to do from now on.
    pub fn order(&mut self, now: Micros, order: Order, lasts: Micros) {
        if self.order == Some(Order::Allow) && order != Order::Allow {
            self.allowed_until = now.saturating_add(2 * REPORT_DELAY);
        }
        if !matches!(order, Order::Admit(_)) {
            self.account.replace(now);
        }
        self.order = Some(order);
        self.ends = now.saturating_add(lasts);
        self.due = self.ends.saturating_sub(EARLY);
    }

    /// Returns whether the client obeys an order for long enough that it need not be repeated now.
    pub fn obeys(&self, now: Micros, order: Order) -> bool {
        self.order == Some(order) && self.ends > now.saturating_add(2 * SECOND)
    }
}
