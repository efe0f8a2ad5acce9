//! Callers that reserve and settle at the same time.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::charges::{cancel, make, of, reserve, settle, used};
use crate::charge::Key;
use crate::states::{StateKey, States};
use weir_limit::{
    Algorithm, BucketedWindow, FixedWindow, Limit, Micros, Plan, ReservationResult, SlidingWindow,
    Unit,
};

const CALLERS: u64 = 32;
const ROUNDS: u64 = 30;
const N: u32 = 500;

/// The reservations that a caller has open at most.
const OPEN: usize = 3;

/// Plans whose windows do not end while a test runs.
fn plans() -> Vec<(&'static str, Arc<Plan>)> {
    let n = N;
    let year: Micros = Unit::Year.period(1).expect("a period");
    let fixed = |period| of(n, Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }));
    let sliding = SlidingWindow { n, period: year };
    let bucketed = BucketedWindow { n, period: 4 * year, buckets: 4 };
    let plans: [(_, Vec<Limit>); 4] = [
        ("fixed", vec![fixed(year)]),
        ("sliding", vec![of(n, Algorithm::SlidingWindow(sliding))]),
        ("bucketed", vec![of(n, Algorithm::BucketedWindow(bucketed)), fixed(4 * year)]),
        ("both", vec![fixed(year), of(n, Algorithm::SlidingWindow(sliding))]),
    ];
    plans.map(|(name, limits)| (name, Arc::new(Plan::new(limits)))).into()
}

/// Callers that reserve at the same time are never granted more than n hits, and after all have settled, the
/// hits that they used are counted, and no others.
pub fn reserves_at_most_n_of_racing<S: States, F: Future<Output = S>>(
    stores: &(impl Fn() -> F + Sync),
) {
    for (name, plan) in &plans() {
        // Never more than what is counted: it rises after a charge, and falls before.
        let counted = AtomicU64::new(0);
        let sum: u64 = thread::scope(|scope| {
            let call = |caller| {
                let counted = &counted;
                scope.spawn(move || {
                    runtime().block_on(async move {
                        let store = stores().await;
                        Caller { store, name, plan, counted, caller }.run().await
                    })
                })
            };
            let callers: Vec<_> = (0..CALLERS).map(call).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        let read = runtime().block_on(async {
            let key = Key { domain: "reservations", entries: &[("key", name)] };
            used(&stores().await, StateKey { key, plan, together: false, id: None }).await
        });
        assert!(read.iter().all(|used| *used == sum), "{read:?} of {sum}: {plan:?}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Caller<'a, S> {
    store: S,
    name: &'a str,
    plan: &'a Arc<Plan>,
    counted: &'a AtomicU64,
    caller: u64,
}

impl<S: States> Caller<'_, S> {
    /// Returns the hits that the caller has used.
    async fn run(&self) -> u64 {
        let (mut open, mut sum) = (VecDeque::new(), 0);
        for round in 0..ROUNDS {
            let id = format!("{}-{round}", self.caller);
            let op = reserve(1, 1 + (round * 7 + self.caller) as u32 % 20);
            let decision = make(&self.store, self.name, self.plan, op, &id).await;
            if decision.allowed {
                let granted = u64::from(decision.granted);
                assert!(decision.used_before + granted <= N.into(), "{decision:?}");
                let counted = self.counted.fetch_add(granted, Ordering::SeqCst) + granted;
                assert!(counted <= N.into(), "{counted} of {:?}", self.plan);
                open.push_back((round, id, decision.granted));
            }
            if open.len() > OPEN || !decision.allowed {
                sum += self.settle(open.pop_front()).await;
            }
        }
        while !open.is_empty() {
            sum += self.settle(open.pop_front()).await;
        }
        sum
    }

    /// Settles a reservation. Returns the hits that were used.
    async fn settle(&self, open: Option<(u64, String, u32)>) -> u64 {
        let Some((round, id, granted)) = open else { return 0 };
        let windows = |limit: &Limit| {
            !matches!(limit.algorithm, Algorithm::Gcra(_) | Algorithm::TokenBucket(_))
        };
        // More than was reserved; not of buckets, whose debts end somewhere.
        let exceeds = round == ROUNDS / 2 && self.plan.limits().iter().all(windows);
        let (op, used) = match round % 5 {
            _ if exceeds => (settle(granted + 3), granted + 3),
            0 => (cancel(granted), 0),
            1 | 2 => (settle(0), 0),
            3 => (settle(1), 1),
            _ => (settle(granted / 3), granted / 3),
        };
        let back = granted.saturating_sub(used);
        self.counted.fetch_sub(back.into(), Ordering::SeqCst);
        let decision = make(&self.store, self.name, self.plan, op, &id).await;
        let actual = (decision.reservation, decision.reserved);
        assert_eq!(actual, (ReservationResult::Settled, granted));
        used.into()
    }
}
