//! What is returned is never used: accounts of Envoys that lose their streams, restart, and are late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::account::{Account, Granted, REPORT_DELAY};
use weir_limit::{Limit, Micros, Plan, SECOND, Undo, Unit};

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    Arc::new(Plan::new(vec![Limit::fixed_window(1_000, Unit::Minute, 1).unwrap()]))
});

const MINUTE: Micros = 60 * SECOND;

/// All times are multiples of it.
const TICK: Micros = SECOND / 10;

fn granted(hits: u32, window: u64, is_by_store: bool) -> Granted {
    let undo = is_by_store.then_some(Undo { hits, taken: window * MINUTE, limits: 1 });
    Granted { hits, undo, plan: PLAN.clone(), window_end: (window + 1) * MINUTE }
}

/// What happens to an Envoy or its stream. A message is `way` ticks under way. With a stream, the reports that are under
/// way are lost; the Envoy keeps its tokens until it restarts.
#[derive(Clone, Copy, Debug)]
enum Step {
    Grant { hits: u32, way: u64, is_new_window: bool, is_by_store: bool },
    Deny { way: u64 },
    Requests(u32),
    Report { way: u64, keeps_unused: bool },
    LoseStream,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let grant = (1..50_u32, 0..10_u64, weighted(0.1), weighted(0.9));
    prop_oneof![
        8 => grant.prop_map(|(hits, way, is_new_window, is_by_store)| {
            Step::Grant { hits, way, is_new_window, is_by_store }
        }),
        2 => (0..10_u64).prop_map(|way| Step::Deny { way }),
        12 => (1..40_u32).prop_map(Step::Requests),
        12 => (0..=30_u64, any::<bool>())
            .prop_map(|(way, keeps_unused)| Step::Report { way, keeps_unused }),
        1 => Just(Step::LoseStream),
        1 => Just(Step::Restart),
    ]
}

/// A grant, or a denial of 0 hits.
#[derive(Debug)]
struct Sent {
    at: Micros,
    hits: u64,
    /// None if the store has not charged it.
    window: Option<u64>,
    used: u64,
}

/// An Envoy with one bucket, and its stream.
#[derive(Debug, Default)]
struct Envoy {
    account: Account,
    /// What was returned last, until it is granted again.
    unused: Option<Granted>,
    /// All of the stream.
    sent: Vec<Sent>,
    /// What was reported and returned while each window was the newest.
    sums: BTreeMap<u64, (u64, u64)>,
    /// Whether it may use what was granted on an earlier stream.
    has_lost: bool,
    /// Orders under way: when each arrives, which it is (none: of an earlier stream), and its tokens.
    orders: VecDeque<(Micros, Option<usize>, u64)>,
    /// When each arrives, what was admitted, and whether what it shows to be unused waits for a later report.
    reports: VecDeque<(Micros, u64, bool)>,
    order: Option<usize>,
    tokens: u64,
    ends: Micros,
    admitted: u64,
}

impl Envoy {
    fn step(&mut self, now: Micros, window: u64, step: Step) {
        match step {
            Step::Grant { hits, way, is_by_store, .. } => {
                let mut grant = granted(hits, window, is_by_store);
                if let Some(mut unused) = self.unused.take() {
                    let most =
                        if is_by_store && unused.window_end == grant.window_end { 10 } else { 0 };
                    let again = unused.hits.min(most);
                    assert_eq!(grant.take(&mut unused, 10), again);
                    assert_eq!(grant.hits, hits + again);
                }
                let hits = grant.hits;
                self.account.grant(now, grant);
                self.send(now, way, hits.into(), is_by_store.then_some(window));
            }
            Step::Deny { way } => {
                self.account.replace(now);
                self.send(now, way, 0, None);
            }
            Step::Requests(count) => {
                let admitted = if now < self.ends { self.tokens.min(count.into()) } else { 0 };
                self.tokens -= admitted;
                self.admitted += admitted;
                if let Some(order) = self.order {
                    self.sent[order].used += admitted;
                }
            }
            Step::Report { way, keeps_unused } => {
                let before = self.reports.back().map_or(0, |report| report.0);
                let admitted = std::mem::take(&mut self.admitted);
                self.reports.push_back((before.max(now + way * TICK), admitted, keeps_unused));
            }
            Step::LoseStream => {
                (self.account, self.sent, self.sums, self.reports) = Default::default();
                (self.order, self.unused, self.has_lost) = (None, None, true);
                self.orders.iter_mut().for_each(|order| order.1 = None);
            }
            Step::Restart => *self = Envoy::default(),
        }
    }

    fn send(&mut self, now: Micros, way: u64, hits: u64, window: Option<u64>) {
        let before = self.orders.back().map_or(0, |order| order.0);
        let arrives = before.max(now + way * TICK);
        self.orders.push_back((arrives, Some(self.sent.len()), hits));
        self.sent.push(Sent { at: now, hits, window, used: 0 });
    }

    /// Delivers what has arrived.
    fn pass(&mut self, now: Micros) {
        while let Some(arrived) = self.orders.pop_front_if(|order| order.0 <= now) {
            // The denial before it drops what was left.
            (self.order, self.tokens) = (arrived.1, arrived.2);
            self.ends = arrived.0 + 8 * SECOND;
        }
        while let Some((arrived, admitted, keeps)) =
            self.reports.pop_front_if(|report| report.0 <= now)
        {
            self.settle(arrived, admitted, keeps);
        }
    }

    /// Settles a report. Expects what the header of the account says, by all that was ever sent.
    fn settle(&mut self, now: Micros, admitted: u64, keeps_unused: bool) {
        let settled = self.account.report(now, admitted);
        assert!(settled.excess == 0 || self.has_lost, "{self:?}");
        let returns = settled
            .unused
            .as_ref()
            .map(|unused| (unused.undo.expect("hits of the store").taken, u64::from(unused.hits)));
        let Some(window) = self.sent.iter().rev().find_map(|sent| sent.window) else {
            return assert_eq!(returns, None);
        };
        let newest = self.sent.iter().rposition(|sent| sent.at + REPORT_DELAY <= now);
        let replaced = self.sent[..newest.unwrap_or(0)].iter();
        let replaced = replaced.filter(|sent| sent.window == Some(window)).map(|sent| sent.hits);
        let (reported, returned) = self.sums.entry(window).or_default();
        *reported += admitted;
        let expected = replaced.sum::<u64>().saturating_sub(*reported + *returned);
        *returned += expected;
        let mut unused = settled.unused;
        if let Some(unused) = unused.as_mut().filter(|_| keeps_unused) {
            self.account.keep_unused(unused);
            *returned -= expected;
        }
        self.unused = unused.filter(|_| !keeps_unused).or(self.unused.take());
        assert_eq!(returns, (expected > 0).then_some((window * MINUTE, expected)), "{self:?}");
    }

    /// Asserts that what was used of each window's hits, and can be, is still charged. As it holds for each stream, it
    /// holds for all of a key together.
    fn is_within_its_charges(&self) {
        for (window, (_, returned)) in &self.sums {
            let (mut charged, mut used) = (0, 0);
            for (at, sent) in self.sent.iter().enumerate() {
                if sent.window == Some(*window) {
                    let is_under_way = self.orders.iter().any(|order| order.1 == Some(at));
                    let tokens = if self.order == Some(at) { self.tokens } else { 0 };
                    charged += sent.hits;
                    used += sent.used + if is_under_way { sent.hits } else { tokens };
                }
            }
            assert!(used + returned <= charged, "{window}: {self:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_used_stays_charged(steps in vec((0..25_u64, 0..3_usize, step()), 1..200)) {
        let mut envoys: [Envoy; 3] = Default::default();
        let (mut now, mut window) = (0, 1);
        for (ticks, which, step) in steps {
            now += ticks * TICK;
            envoys.iter_mut().for_each(|envoy| envoy.pass(now));
            window += u64::from(matches!(step, Step::Grant { is_new_window: true, .. }));
            envoys[which].step(now, window, step);
            // An order or a report may take no time.
            envoys[which].pass(now);
            envoys.iter().for_each(Envoy::is_within_its_charges);
        }
        envoys.iter_mut().for_each(|envoy| envoy.pass(now + MINUTE));
        envoys.iter().for_each(Envoy::is_within_its_charges);
    }
}

/// Returns an account with grants: the second in which each is sent, its hits, its window, and whether it is the store's.
fn account(grants: &[(u64, u32, u64, bool)]) -> Account {
    let mut account = Account::default();
    for (second, hits, window, is_by_store) in grants {
        account.grant(second * SECOND, granted(*hits, *window, *is_by_store));
    }
    account
}

/// Reports hits of an account. Returns what it returns.
fn report(account: &mut Account, now: Micros, admitted: u64) -> u32 {
    account.report(now, admitted).unused.map_or(0, |unused| unused.hits)
}

#[test]
fn without_late_messages_unused_hits_return_exactly_one_report_late() {
    let mut account = account(&[(0, 10, 1, true)]);
    let returned = [5, 10, 15, 20].map(|second| {
        let returned = report(&mut account, second * SECOND, 4);
        account.grant(second * SECOND, granted(10, 1, true));
        returned
    });
    // The first report shows nothing yet, and the second one's hits may be of the next grant.
    assert_eq!(returned, [0, 2, 6, 6]);
    // Without hits it is clear: 6 of each of four grants.
    assert_eq!(report(&mut account, 25 * SECOND, 0), 10);
    assert_eq!((report(&mut account, 30 * SECOND, 0), account.unreported), (0, 10));
}

#[test]
fn a_report_counts_as_made_with_a_grant_that_was_sent_4_seconds_before() {
    let mut account = account(&[(0, 10, 1, true), (1, 5, 1, true)]);
    let at = SECOND + REPORT_DELAY;
    assert_eq!((report(&mut account, at - 1, 0), account.unreported), (0, 15));
    assert_eq!((report(&mut account, at, 0), account.unreported), (10, 5));
}

#[test]
fn each_window_has_its_own_sums() {
    let mut account = account(&[(0, 10, 1, true), (5, 20, 2, true)]);
    // The unused hits of the first window end with it.
    assert_eq!(report(&mut account, 10 * SECOND, 0), 0);
    account.grant(10 * SECOND, granted(30, 2, true));
    let unused = account.report(15 * SECOND, 3).unused.unwrap();
    assert_eq!((unused.hits, unused.window_end), (17, 3 * MINUTE));
    assert_eq!(unused.undo.unwrap().taken, 2 * MINUTE);
}

#[test]
fn a_denial_is_a_grant_of_no_hits() {
    let mut account = account(&[(0, 10, 1, true)]);
    account.replace(5 * SECOND);
    account.replace(6 * SECOND);
    assert_eq!((report(&mut account, 10 * SECOND, 3), account.unreported), (7, 0));
    assert_eq!(report(&mut account, 15 * SECOND, 0), 0);
}

#[test]
fn more_than_was_granted_is_excess() {
    let mut account = account(&[(0, 10, 1, true)]);
    assert_eq!([4, 9, 7].map(|admitted| account.report(SECOND, admitted).excess), [0, 3, 7]);
    for now in [3 * SECOND, Micros::MAX] {
        account.grant(now, granted(u32::MAX, 1, true));
        let settled = account.report(now, u64::MAX);
        assert_eq!(settled.excess, u64::MAX - u64::from(u32::MAX));
        assert!(settled.unused.is_none());
    }
}
