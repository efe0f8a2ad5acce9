//! Moves the connections to the master that Redis Sentinel names, for as long as the store runs.
//!
//! After a planned failover the old master goes on as one until the sentinels demote it, some ten seconds later: what
//! is counted there is lost. So all sentinels are asked all the time, and the answer with the highest epoch holds, as
//! among the sentinels themselves. Connections to any other server move, without a failed charge, once the new master
//! was reached.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::connection::target::{NamedMaster, Sentinel, Target};
use super::options::{Endpoint, Topology};
use super::store::RedisStore;

/// The time between two questions.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long a sentinel that does not answer delays the others.
const MAX_WAIT: Duration = Duration::from_millis(500);

impl RedisStore {
    /// Moves connections to the master that the sentinels name. Never ends.
    pub(super) async fn follow_master(&self) {
        let Topology::Sentinel { master, sentinels } = &self.shared.options.topology else {
            return pending().await;
        };
        let access = &self.shared.options.sentinel_access;
        let mut sentinels: Vec<Sentinel> = sentinels.iter().cloned().map(Sentinel::new).collect();
        loop {
            let asked = sentinels.iter_mut();
            let asked = asked.map(|sentinel| timeout(MAX_WAIT, sentinel.ask(access, master)));
            let named = join_all(asked).await.into_iter().flatten().flatten().flatten();
            self.move_to_master(&named.collect::<Vec<_>>()).await;
            sleep(INTERVAL).await;
        }
    }

    async fn move_to_master(&self, named: &[NamedMaster]) {
        let newest = named.iter().map(|master| master.epoch).max();
        // Sentinels may name one server differently.
        let masters = named.iter().filter(|master| Some(master.epoch) == newest);
        let masters: Vec<&Endpoint> = masters.map(|master| &master.endpoint).collect();
        let is_elsewhere = |connection: &Arc<Connection>| {
            connection.endpoint().is_some_and(|endpoint| !masters.contains(&&endpoint))
        };
        let elsewhere: Vec<_> = self.all_connections().filter(is_elsewhere).collect();
        let (Some(&master), false) = (masters.first(), elsewhere.is_empty()) else { return };
        match Target::Server(master.clone()).connect(&self.shared).await {
            Ok(_) => {
                self.shared.log.master_moved(master);
                elsewhere.iter().for_each(|connection| connection.move_to(master.clone()));
            }
            Err(error) => self.shared.log.master_unreachable(master, &error),
        }
    }
}
