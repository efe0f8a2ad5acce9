//! A master, a replica, and sentinels that watch them.

use super::{Config, Server, wait_for};

#[derive(Debug)]
pub struct Sentinels {
    pub master: Server,
    pub replica: Server,
    pub sentinels: Vec<Server>,
}

/// The name of the master.
pub const MASTER: &str = "counters";

impl Sentinels {
    pub fn start() -> Sentinels {
        let master = Server::start();
        let replica = Server::configured(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
        wait_for("the replica follows", || {
            let info = replica.command(&["INFO", "replication"]).text();
            info.contains("master_link_status:up").then_some(())
        });
        let sentinel = || {
            Server::with(Config {
                sentinel: true,
                lines: vec![
                    format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", master.port()),
                    format!("sentinel down-after-milliseconds {MASTER} 1000"),
                    format!("sentinel failover-timeout {MASTER} 5000"),
                ],
                ..Config::default()
            })
        };
        let sentinels: Vec<Server> = (0..3).map(|_| sentinel()).collect();
        for sentinel in &sentinels {
            wait_for("the sentinels know each other", || {
                let reply = sentinel.command(&["SENTINEL", "MASTER", MASTER]);
                let field = |name: &str| {
                    let list = reply.list();
                    let at = list.iter().position(|word| word.text() == name);
                    at.map(|at| list[at + 1].int())
                };
                (field("num-other-sentinels") == Some(2) && field("num-slaves") == Some(1))
                    .then_some(())
            });
        }
        Sentinels { master, replica, sentinels }
    }

    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::addr).collect()
    }

    /// Waits until the sentinels report the replica as the master.
    pub fn wait_for_failover(&self) {
        for sentinel in &self.sentinels {
            wait_for("a failover", || {
                let reply = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
                (reply.list()[1].int() == i64::from(self.replica.port())).then_some(())
            });
        }
    }
}
