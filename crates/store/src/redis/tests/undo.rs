//! Batches that are charged together on several nodes of a cluster, or on two servers, and denied.

use super::servers::cluster::Cluster;
use super::*;
use crate::conformance::try_read;
use crate::per_second::PerSecond;
use crate::{Operations, States};
use weir_common::clock::Clock as _;
use weir_limit::{
    Algorithm, BucketedWindow, Concurrency, FixedWindow, Gcra, KeyState, SlidingLog, SlidingWindow,
    TokenBucket,
};

const MINUTE: Micros = 60 * SECOND;

fn limit(n: u32, algorithm: Algorithm) -> Limit {
    let window = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
    Limit { algorithm, charge_denied: false, ..window }
}

fn fixed(n: u32) -> Limit {
    limit(n, Algorithm::FixedWindow(FixedWindow { n, period: MINUTE, calendar: None }))
}

fn concurrency(n: u32, hold_id: Option<&str>) -> Limit {
    let hold_id = hold_id.map(Into::into);
    limit(n, Algorithm::Concurrency(Concurrency { n, timeout: MINUTE, hold_id }))
}

/// One limit of each algorithm.
fn limits(n: u32) -> [Limit; 6] {
    let bucket =
        TokenBucket { capacity: n, amount: 1, interval: MINUTE, strict: false, max_debt: 0 };
    [
        Algorithm::FixedWindow(FixedWindow { n, period: MINUTE, calendar: None }),
        Algorithm::SlidingWindow(SlidingWindow { n, period: MINUTE }),
        Algorithm::SlidingLog(SlidingLog { n, period: MINUTE }),
        Algorithm::BucketedWindow(BucketedWindow { n, period: MINUTE, buckets: 6 }),
        Algorithm::TokenBucket(bucket),
        Algorithm::Gcra(Gcra::new(n, MINUTE, n, 0).unwrap()),
    ]
    .map(|algorithm| limit(n, algorithm))
}

/// A store, and the values of two keys such that charging both, the second per second, needs two servers.
struct Spread<S> {
    store: S,
    clock: Arc<ManualClock>,
    values: [String; 2],
}

impl<S: Store + States> Spread<S> {
    /// Charges the first key alone.
    async fn take(&self, plan: &Arc<Plan>, hits: u64, hold: Option<&str>) -> Decision {
        let entries = [("key", self.values[0].as_str())];
        let key = Key { domain: "test", entries: &entries };
        let role = Role::Enforced;
        let one = Charge { key, plan, op: Op::Take(hits), hold, role };
        charge(&self.store, &[one], false).await.swap_remove(0)
    }

    /// Charges both keys; the second denies.
    async fn take_denied(&self, plan: &Arc<Plan>, hits: u64, hold: Option<&str>) {
        let entries = self.values.each_ref().map(|value| [("key", value.as_str())]);
        let [key, other] = entries.each_ref().map(|entries| Key { domain: "test", entries });
        let (op, role) = (Op::Take(hits), Role::Enforced);
        let none = super::plan(0, Unit::Second);
        let one = Charge { key, plan, op, hold, role };
        let denied = Charge { key: other, plan: &none, op, hold: None, role };
        let decisions = charge(&self.store, &[one, denied], true).await;
        assert!(!decisions[1].allowed);
    }

    /// Reads the first key, after all that was sent before.
    async fn read(&self, plan: &Arc<Plan>) -> KeyState {
        self.take(plan, 0, plan.hold_id()).await;
        let entries = [("key", self.values[0].as_str())];
        let key = Key { domain: "test", entries: &entries };
        try_read(&self.store, key, plan, &[]).await.unwrap()
    }

    async fn used(&self, plan: &Arc<Plan>) -> Vec<u64> {
        self.read(plan).await.limits.iter().map(|limit| limit.used).collect()
    }

    async fn undoes_what_was_charged(&self) {
        // Beside a concurrency limit, with and without ids.
        for id in [None, Some("id")] {
            for other in limits(5) {
                let plan = Arc::new(Plan::new(vec![concurrency(5, id), other]));
                for request in ["1", "2", "3", "4", "5", "6", "7"] {
                    self.take_denied(&plan, 1, id.map(|_| request)).await;
                }
                assert_eq!(self.used(&plan).await, [0, 0], "{}", plan.shape());
                assert!(self.take(&plan, 5, id.map(|_| "8")).await.allowed, "{}", plan.shape());
            }
        }
    }

    async fn keeps_a_hold_whose_retry_is_denied(&self) {
        let plan = Arc::new(Plan::new(vec![concurrency(9, Some("id"))]));
        assert!(self.take(&plan, 2, Some("a")).await.allowed);
        let before = self.read(&plan).await;
        self.clock.advance(SECOND);
        self.take_denied(&plan, 1, Some("a")).await;
        self.clock.set(self.clock.now() - SECOND);
        assert_eq!(self.read(&plan).await, before);
        for id in ["b", "c", "d", "e", "f", "g", "h"] {
            assert!(self.take(&plan, 1, Some(id)).await.allowed);
        }
        assert!(!self.take(&plan, 1, Some("i")).await.allowed, "the tenth");
    }

    async fn keeps_what_a_limit_in_shadow_mode_has_counted(&self) {
        for (watch, beside) in limits(2).into_iter().zip(limits(6)) {
            let watch = Limit { shadow_mode: true, ..watch };
            let plan = Arc::new(Plan::new(vec![beside, watch]));
            for _ in 0..3 {
                assert!(self.take(&plan, 1, None).await.allowed);
            }
            let before = self.used(&plan).await;
            self.take_denied(&plan, 1, None).await;
            assert_eq!(self.used(&plan).await, before, "{}", plan.shape());
        }
    }

    async fn restores(&self) {
        self.undoes_what_was_charged().await;
        self.keeps_a_hold_whose_retry_is_denied().await;
        self.keeps_what_a_limit_in_shadow_mode_has_counted().await;
    }
}

#[test]
fn a_denied_batch_across_nodes_leaves_all_as_it_was() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = manual(Topology::Cluster(endpoints(&cluster.addresses())), &clock);
        let values = topologies::values(&cluster, &fixed_plan());
        for (value, _) in &values {
            let up = async || try_take(&store, value, &fixed_plan()).await.is_ok();
            until("the store to be up", up).await;
        }
        let values = [values[0].0.clone(), values[1].0.clone()];
        Spread { store, clock, values }.restores().await;
    });
}

fn fixed_plan() -> Arc<Plan> {
    Arc::new(Plan::new(vec![fixed(1_000)]))
}

#[test]
fn a_denied_batch_across_servers_leaves_all_as_it_was() {
    let (main, other) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = |server| manual(single(server), &clock);
        let store = PerSecond::new(store(&main), Some(store(&other)));
        store.connect().await;
        let values = ["a".to_owned(), "a".to_owned()];
        Spread { store, clock: clock.clone(), values }.restores().await;
    });
}
