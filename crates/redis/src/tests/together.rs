//! Batches that are charged together when one of their keys fails.

use super::nodes::domain_on;
use super::servers::cluster::Cluster;
use super::*;
use weir_store::OnStoreFailure::{self, Allow, Deny, Error, Local};
use weir_store::Role::{Enforced, Quota, Shadow};

async fn together(
    store: &impl Store,
    charges: &[Charge<'_>],
    on_failure: Option<OnStoreFailure>,
) -> Answers {
    let mut answers = Answers::new();
    let timeout = Duration::from_secs(10);
    let batch = Batch { together: true, on_failure, ..Batch::new(charges, timeout) };
    store.charge(&batch, &mut answers).await;
    answers
}

fn take_of<'a>(entries: &'a [weir_store::Entry<'a>], plan: &'a Arc<Plan>) -> Charge<'a> {
    let key = Key { domain: "test", entries };
    Charge { key, plan, op: Op::Take(1), hold: None, role: Enforced }
}

async fn used(store: &impl Store, entries: &[weir_store::Entry<'_>], plan: &Arc<Plan>) -> u64 {
    let look = Charge { op: Op::Take(0), ..take_of(entries, plan) };
    together(store, &[look], None).await.swap_remove(0).unwrap().used_before
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
            server.command(&["RPUSH", &format!("weir:{{test}}|key=type|{shape}"), "x"]);
            server.command(&["SET", &format!("weir:{{test}}|key=text|{shape}"), "no number"]);
        }
        let good = [[("key", "a")], [("key", "b")]];
        let failed = [("type", StoreError::WrongType), ("text", StoreError::Corrupt)];
        for (i, plan) in [(0, &minute), (1, &several)] {
            let mut kept_so_far = 0;
            for (on_failure, role, kept) in KEPT {
                for (value, wanted) in failed {
                    let bad = [("key", value)];
                    let charges = [
                        take_of(&good[i], plan),
                        Charge { role, ..take_of(&bad, plan) },
                        take_of(&good[i], plan),
                    ];
                    let answers = together(&store, &charges, on_failure).await;
                    assert_eq!(answers[1], Err(wanted));
                    kept_so_far += if kept { 2 } else { 0 };
                    let used = used(&store, &good[i], plan).await;
                    assert_eq!(used, kept_so_far, "{on_failure:?} {role:?} {value}");
                }
            }
            // Hits are refunded, whatever fails.
            let (bad, op) = ([("key", "type")], Op::Refund(3));
            let back = Charge { op, ..take_of(&good[i], plan) };
            together(&store, &[back, take_of(&bad, plan)], None).await;
            assert_eq!(used(&store, &good[i], plan).await, kept_so_far - 3);
        }
    });
}

/// All keys of a domain are on one node. Another one may fail.
#[test]
fn one_node_of_a_cluster_serves_a_domain() {
    let mut cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        let (wide, narrow) = (plan(100, Unit::Day), plan(1, Unit::Day));
        let entries: Vec<[_; 1]> =
            ["a", "b", "c", "d", "e", "f"].map(|value| [("key", value)]).into();
        for master in 0..3 {
            let domain = domain_on(&cluster, master);
            let take_of = |i: usize, plan, op| Charge {
                key: Key { domain: &domain, entries: &entries[i] },
                op,
                ..take_of(&entries[i], plan)
            };
            until("the node to be up", async || {
                together(&store, &[take_of(0, &wide, Op::Take(0))], None).await[0].is_ok()
            })
            .await;
            let wide = |i| take_of(i, &wide, Op::Take(1));
            let batch =
                [wide(0), wide(1), wide(2), wide(3), wide(4), take_of(5, &narrow, Op::Take(1))];
            let allowed = async || {
                let answers = together(&store, &batch, None).await;
                answers.into_iter().all(|answer| answer.unwrap().allowed)
            };
            assert!(allowed().await);
            assert!(!allowed().await);
            let looks = batch.map(|charge| Charge { op: Op::Take(0), ..charge });
            for answer in together(&store, &looks, None).await {
                assert_eq!(answer.unwrap().used_before, 1);
            }
            let keys = cluster.masters.iter().map(|server| server.command(&["DBSIZE"]).int());
            assert_eq!(keys.sum::<i64>(), 6 * (master as i64 + 1));
            assert_eq!(cluster.masters[master].command(&["DBSIZE"]).int(), 6);
        }
        let (gone, stays) = (domain_on(&cluster, 0), domain_on(&cluster, 1));
        cluster.masters[0].kill();
        let fails = async |domain: &str| {
            let key = Key { domain, entries: &entries[0] };
            let take = Charge { key, ..take_of(&entries[0], &wide) };
            together(&store, &[take], None).await[0].is_err()
        };
        until("its domain to fail", async || fails(&gone).await).await;
        assert!(!fails(&stays).await);
    });
}
