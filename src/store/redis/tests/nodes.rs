//! Nodes of a cluster: that all are waited for, and how they send charges on.

use super::servers::cluster::Cluster;
use super::topologies::values;
use super::*;

#[test]
fn a_cluster_has_answered_when_all_its_nodes_have() {
    let cluster = Cluster::start(3, 0);
    cluster.masters[2].stop();
    runtime().block_on(async {
        let topology = Topology::Cluster(endpoints(&cluster.addresses()[..1]));
        let mut options = Options { budget: Duration::from_millis(100), ..options(topology) };
        options.access.timeout = Duration::from_millis(500);
        let store = RedisStore::new(options);
        let mut answered = std::pin::pin!(store.answered());
        until("one node to be missed", async || {
            let soon = Duration::from_millis(1);
            assert!(tokio::time::timeout(soon, &mut answered).await.is_err(), "one is missing");
            store.lanes_down() == (3, 1)
        })
        .await;
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, &mut answered).await.is_err(), "one is missing");
        cluster.masters[2].go_on();
        tokio::time::timeout(servers::PATIENCE, answered).await.unwrap();
        let plan = plan(5, Unit::Day);
        for (value, _) in values(&cluster, &plan) {
            until("it to be up", async || try_take(&store, &value, &plan).await.is_ok()).await;
        }
    });
}
