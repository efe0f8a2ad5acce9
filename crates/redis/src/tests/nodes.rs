//! Nodes of a cluster: readiness and redirects between them.

use super::servers::cluster::Cluster;
use super::topologies::values;
use super::*;

#[test]
fn a_cluster_has_answered_when_all_its_nodes_have() {
    let cluster = Cluster::start(3, 0);
    cluster.masters[2].stop();
    runtime().block_on(async {
        let topology = Topology::Cluster(endpoints(&cluster.addresses()[..1]));
        let mut options =
            RedisOptions { slow_after: Duration::from_millis(100), ..options(topology) };
        options.access.timeout = Duration::from_millis(500);
        let store = RedisStore::new(options);
        let mut answered = std::pin::pin!(store.answered());
        until("one node to be missed", async || {
            let soon = Duration::from_millis(1);
            assert!(
                tokio::time::timeout(soon, &mut answered).await.is_err(),
                "one node has not answered"
            );
            store.connections_down() == (3, 1)
        })
        .await;
        let soon = Duration::from_millis(50);
        assert!(
            tokio::time::timeout(soon, &mut answered).await.is_err(),
            "one node has not answered"
        );
        cluster.masters[2].go_on();
        tokio::time::timeout(servers::PATIENCE, answered).await.unwrap();
        let plan = plan(5, Unit::Day);
        for (value, _) in values(&cluster, &plan) {
            until("the node to be up", async || try_take(&store, &value, &plan).await.is_ok())
                .await;
        }
    });
}

/// Returns how often a server has replied with an error.
fn errors(server: &Server, code: &str) -> i64 {
    let info = server.command(&["INFO", "errorstats"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// Returns a domain whose keys are on that master where it has `charge: together`.
pub(super) fn domain_on(cluster: &Cluster, master: usize) -> String {
    let mut domains = (0..).map(|i| format!("domain{i}"));
    domains.find(|domain| cluster.master_of(key::slot(domain.as_bytes())) == master).unwrap()
}

/// Neither of two keys exists, and their slot is being moved: neither node can make both.
#[test]
fn a_call_that_the_new_node_cannot_make_yet_is_retried_there() {
    let cluster = Cluster::start(2, 0);
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        store.answered().await;
        let (day, hour) = (plan(5, Unit::Day), plan(5, Unit::Hour));
        until("the node to be up", async || try_take(&store, "up", &day).await.is_ok()).await;
        let domain = domain_on(&cluster, 0);
        cluster.begin_to_move(key::slot(domain.as_bytes()), 1);
        let entries = [("key", "a")];
        let charge_of = |plan| Charge {
            key: Key { domain: &domain, entries: &entries },
            plan,
            op: Op::Take(1),
            hold: None,
            role: Role::Enforced,
        };
        let charges = [charge_of(&day), charge_of(&hour)];
        let mut answers = Answers::new();
        let batch = Batch { together: true, ..Batch::new(&charges, Duration::from_secs(10)) };
        store.charge(&batch, &mut answers).await;
        assert_eq!(&answers[..], [Err(StoreError::Unavailable), Err(StoreError::Unavailable)]);
        let [from, to] = &cluster.masters[..] else { unreachable!() };
        assert_eq!((errors(from, "ASK"), errors(from, "TRYAGAIN")), (1, 0));
        assert_eq!((errors(to, "TRYAGAIN"), errors(to, "MOVED")), (5, 0));
    });
}

#[test]
fn nodes_that_report_no_host_are_on_the_host_that_answered() {
    let cluster = Cluster::start(2, 0);
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"]);
    }
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        store.answered().await;
        let plan = plan(100, Unit::Day);
        let (value, slot) = values(&cluster, &plan)[0].clone();
        let used = async || try_take(&store, &value, &plan).await.unwrap().used_before;
        until("the node to be up", async || try_take(&store, &value, &plan).await.is_ok()).await;
        let start = used().await;
        cluster.begin_to_move(slot, 1);
        cluster.move_keys(slot, 1);
        assert_eq!(used().await, start + 1);
        cluster.end_the_move(slot, 1);
        assert_eq!(used().await, start + 2);
        assert!(errors(&cluster.masters[0], "MOVED") + errors(&cluster.masters[0], "ASK") > 0);
    });
}
