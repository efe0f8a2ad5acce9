//! A master, its replicas, and sentinels that watch them.

use super::{Config, Reply, Server, wait_for};

#[derive(Debug)]
pub struct Sentinels {
    pub master: Server,
    /// The one that becomes the master.
    pub replica: Server,
    pub more_replicas: Vec<Server>,
    pub sentinels: Vec<Server>,
}

/// The name of the master.
pub const MASTER: &str = "counters";

impl Sentinels {
    /// Starts them with one replica.
    pub fn start() -> Sentinels {
        Sentinels::with_replicas(1, &[])
    }

    /// Starts them with some replicas, and lines in the configuration files of all of them and the master.
    pub fn with_replicas(replicas: usize, lines: &[&str]) -> Sentinels {
        let master = Server::configured(lines);
        let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
        let replica = |priority| Server::configured(&[lines, &[&replica_of, priority]].concat());
        let first = replica("replica-priority 1");
        let more_replicas: Vec<Server> =
            (1..replicas).map(|_| replica("replica-priority 100")).collect();
        for replica in more_replicas.iter().chain([&first]) {
            wait_for("the replica follows", || {
                let info = replica.command(&["INFO", "replication"]).text();
                info.contains("master_link_status:up").then_some(())
            });
        }
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
        // Servers before Redis 7 keep to their defaults.
        let set = |sentinel: &Server, name: &str, millis: &str| {
            sentinel.try_command(&["SENTINEL", "DEBUG", name, millis]).expect("a reply");
        };
        for sentinel in &sentinels {
            // Else they notice after up to a second that the master is gone.
            set(sentinel, "ping-period", "200");
            set(sentinel, "publish-period", "200");
        }
        for sentinel in &sentinels {
            wait_for("the sentinels know each other", || {
                let reply = sentinel.command(&["SENTINEL", "MASTER", MASTER]);
                let field = |name: &str| {
                    let list = reply.list();
                    let at = list.iter().position(|word| word.text() == name);
                    at.map(|at| list[at + 1].int())
                };
                let found = (field("num-other-sentinels"), field("num-slaves"));
                // `master-link-status` of each.
                let known = sentinel.command(&["SENTINEL", "REPLICAS", MASTER]);
                let is_linked =
                    |replica: &&Reply| replica.list().iter().any(|word| word.text() == "ok");
                let linked = known.list().iter().filter(is_linked).count();
                (found == (Some(2), Some(replicas as i64)) && linked == replicas).then_some(())
            });
        }
        for sentinel in &sentinels {
            // They demote a master that failed over after four of these periods.
            set(sentinel, "publish-period", "2000");
        }
        Sentinels { master, replica: first, more_replicas, sentinels }
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
