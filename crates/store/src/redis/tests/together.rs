//! Batches that are charged together when one of their keys fails.

use super::servers::cluster::Cluster;
use super::servers::proxy::Proxy;
use super::*;
use crate::OnStoreFailure::{self, Allow, Deny, Error, Local};
use crate::Operations;
use crate::Role::{Enforced, Quota, Shadow};
use crate::per_second::PerSecond;

async fn together(
    store: &impl Store,
    charges: &[Charge<'_>],
    on_failure: Option<OnStoreFailure>,
) -> Answers {
    let mut answers = Answers::new();
    let budget = Duration::from_secs(10);
    let batch = Batch { together: true, on_failure, ..Batch::new(charges, budget) };
    store.charge(batch, &mut answers).await;
    answers
}

fn of<'a>(entries: &'a [crate::Entry<'a>], plan: &'a Arc<Plan>) -> Charge<'a> {
    let key = Key { domain: "test", entries };
    Charge { key, plan, op: Op::Take(1), hold: None, role: Enforced }
}

/// Whether the other keys of a batch stay charged: where the failed key does not deny the request.
const KEPT: [(Option<OnStoreFailure>, Role, bool); 9] = [
    (None, Enforced, false),
    (Some(Error), Enforced, false),
    (Some(Error), Shadow, false),
    (Some(Error), Quota, false),
    (Some(Deny), Enforced, false),
    (Some(Deny), Quota, false),
    (Some(Deny), Shadow, true),
    (Some(Allow), Enforced, true),
    (Some(Local), Quota, true),
];

#[test]
fn a_failed_key_denies_its_batch_by_policy() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let minute = plan(50, Unit::Minute);
        let limit = |unit| Limit::fixed_window(50, unit, 1).unwrap();
        let several = Arc::new(Plan::new(vec![limit(Unit::Minute), limit(Unit::Hour)]));
        for shape in ["f60", "f60+f3600"] {
            server.command(&["RPUSH", &format!("weir:{{test|key=type}}{shape}"), "x"]);
            server.command(&["SET", &format!("weir:{{test|key=text}}{shape}"), "no number"]);
        }
        let good = [[("key", "a")], [("key", "b")]];
        let failed = [("type", StoreError::WrongType), ("text", StoreError::Corrupt)];
        for (i, plan) in [(0, &minute), (1, &several)] {
            let mut kept_so_far = 0;
            for (on_failure, role, kept) in KEPT {
                for (value, wanted) in failed {
                    let bad = [("key", value)];
                    let charges =
                        [of(&good[i], plan), Charge { role, ..of(&bad, plan) }, of(&good[i], plan)];
                    let answers = together(&store, &charges, on_failure).await;
                    assert_eq!(answers[1], Err(wanted));
                    kept_so_far += if kept { 2 } else { 0 };
                    let used = take(&store, "test", good[i][0].1, plan, 0).await.used_before;
                    assert_eq!(used, kept_so_far, "{on_failure:?} {role:?} {value}");
                }
            }
            // Hits are refunded, whatever fails.
            let (bad, op) = ([("key", "type")], Op::Refund(3));
            let back = Charge { op, ..of(&good[i], plan) };
            together(&store, &[back, of(&bad, plan)], None).await;
            let used = take(&store, "test", good[i][0].1, plan, 0).await.used_before;
            assert_eq!(used, kept_so_far - 3);
        }
    });
}

#[test]
fn a_failed_key_denies_its_batch_across_nodes() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        let plan = plan(100, Unit::Day);
        let values = topologies::values(&cluster, &plan);
        for (value, _) in &values {
            let up = async || try_take(&store, value, &plan).await.is_ok();
            until("the store to be up", up).await;
        }
        let entries: Vec<_> = values.iter().map(|(value, _)| [("key", value.as_str())]).collect();
        let charges: Vec<_> = entries.iter().map(|entries| of(entries, &plan)).collect();
        let master = &cluster.masters[cluster.master_of(values[1].1)];
        let key = crate::key_text::write("weir:", &charges[1].key, &plan);
        master.command(&["SET", std::str::from_utf8(&key).unwrap(), "no number"]);
        let used = async |i: usize| take(&store, "test", &values[i].0, &plan, 0).await.used_before;
        let before = [used(0).await, used(2).await];
        for on_failure in [None, Some(Deny)] {
            let answers = together(&store, &charges, on_failure).await;
            assert_eq!(answers[1], Err(StoreError::Corrupt));
            for (i, before) in [(0, before[0]), (2, before[1])] {
                until("it to be refunded", async || used(i).await == before).await;
            }
        }
        together(&store, &charges, Some(Allow)).await;
        assert_eq!([used(0).await, used(2).await], before.map(|before| before + 1));
    });
}

#[test]
fn a_failed_key_denies_its_batch_across_servers_and_undo_stays_in_its_window() {
    let (main, other) = (Server::start(), Server::start());
    let proxy = Proxy::start(other.port());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let through = local(proxy.port());
        let store = PerSecond::new(manual(single(&main), &clock), Some(manual(through, &clock)));
        store.connect().await;
        let (second, minute) = (plan(5, Unit::Second), plan(5, Unit::Minute));
        let entries = [("key", "a")];
        let used = async |store: &RedisStore, plan: &Arc<Plan>, hits| {
            take(store, "test", "a", plan, hits).await.used_before
        };
        other.command(&["SET", "weir:{test|key=a}f1", "no number"]);
        let both = [of(&entries, &minute), of(&entries, &second)];
        let answers = together(&store, &both, None).await;
        assert_eq!(answers[1], Err(StoreError::Corrupt));
        let none = async || used(store.main(), &minute, 0).await == 0;
        until("it to be refunded", none).await;

        // The next window starts while one answer is delayed.
        proxy.stall();
        let asking = together(&store, &both, None);
        let turning = async {
            until("the other to count", async || used(store.main(), &minute, 0).await == 1).await;
            clock.advance(60 * SECOND);
            assert_eq!(used(store.main(), &minute, 2).await, 0);
            proxy.resume();
        };
        tokio::join!(asking, turning);
        // Everything sent before is made by then.
        for _ in 0..3 {
            assert_eq!(used(store.main(), &minute, 0).await, 2);
        }
    });
}
