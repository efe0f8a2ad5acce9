//! A cluster of servers.

use super::{Config, Reply, Server, wait_for};

const SLOTS: u16 = 16_384;

/// Masters, each with the same number of replicas.
#[derive(Debug)]
pub struct Cluster {
    pub masters: Vec<Server>,
    /// The replicas of the first master, of the second, …
    pub replicas: Vec<Server>,
}

impl Cluster {
    pub fn start(masters: u16, replicas: u16) -> Cluster {
        let cluster = Cluster {
            masters: (0..masters).map(|_| node()).collect(),
            replicas: (0..masters * replicas).map(|_| node()).collect(),
        };
        let port = cluster.masters[0].port().to_string();
        for (i, server) in cluster.servers().enumerate() {
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
            if i > 0 {
                server.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            }
        }
        for (i, server) in (0..).zip(&cluster.masters) {
            let bound = |i: u16| (u32::from(SLOTS) * u32::from(i) / u32::from(masters)) as u16;
            let (first, next) = (bound(i), bound(i + 1));
            let last = (next - 1).to_string();
            server.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last]);
        }
        let size = cluster.servers().count();
        for (i, replica) in cluster.replicas.iter().enumerate() {
            let master = id(&cluster.masters[i / usize::from(replicas)]);
            wait_for("a replica that knows its master", || {
                match replica.try_command(&["CLUSTER", "REPLICATE", &master]) {
                    Ok(Reply::Error(_)) | Err(_) => None,
                    Ok(_) => Some(()),
                }
            });
        }
        for server in cluster.servers() {
            wait_for("the cluster to form", || {
                let info = server.command(&["CLUSTER", "INFO"]).text();
                let nodes = server.command(&["CLUSTER", "NODES"]).text();
                let whole = info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && nodes.lines().filter(|line| line.contains(" connected")).count() == size
                    && nodes.matches("slave").count() == cluster.replicas.len();
                whole.then_some(())
            });
        }
        for replica in &cluster.replicas {
            wait_for("replicas to follow", || {
                let info = replica.command(&["INFO", "replication"]).text();
                info.contains("master_link_status:up").then_some(())
            });
        }
        cluster
    }

    /// Adds a master without slots. Waits until it serves and all others know it.
    pub fn add_empty_master(&mut self) {
        let new = node();
        new.command(&["CLUSTER", "MEET", "127.0.0.1", &self.masters[0].port().to_string()]);
        self.masters.push(new);
        let size = self.servers().count();
        for server in self.servers() {
            wait_for("all nodes to know the new one", || {
                let nodes = server.command(&["CLUSTER", "NODES"]).text();
                let known = nodes.lines().filter(|line| line.contains(" connected")).count();
                let serves = server.command(&["CLUSTER", "INFO"]).text();
                let serves = serves.contains("cluster_state:ok");
                (serves && known == size && !nodes.contains("handshake")).then_some(())
            });
        }
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    pub fn addresses(&self) -> Vec<String> {
        self.servers().map(Server::addr).collect()
    }

    /// Returns the index of the master of a slot.
    pub fn master_of(&self, slot: u16) -> usize {
        let reply = self.masters[0].command(&["CLUSTER", "SLOTS"]);
        let port = reply.list().iter().find_map(|range| {
            let range = range.list();
            let (first, last) = (range[0].int(), range[1].int());
            (first..=last).contains(&slot.into()).then(|| range[2].list()[1].int())
        });
        let port = port.expect("an owner of the slot");
        self.masters.iter().position(|server| i64::from(server.port()) == port).unwrap()
    }

    /// Starts to move a slot: from now on, requests for keys that have moved are redirected.
    pub fn begin_to_move(&self, slot: u16, to: usize) {
        let from = self.master_of(slot);
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves the existing keys.
    pub fn move_keys(&self, slot: u16, to: usize) {
        let from = &self.masters[self.master_of(slot)];
        let port = self.masters[to].port().to_string();
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        for key in keys.list() {
            from.command(&["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "5000"]);
        }
    }

    /// Completes a move.
    pub fn end_the_move(&self, slot: u16, to: usize) {
        let new = id(&self.masters[to]);
        // The new owner first, as redis-cli does: until it knows, it redirects charges back.
        let others = self.masters.iter().enumerate().filter(|(i, _)| *i != to);
        for server in std::iter::once(&self.masters[to]).chain(others.map(|(_, server)| server)) {
            match server.try_command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &new]) {
                // A master that learns that its last slot has moved becomes a replica.
                Ok(Reply::Error(error)) if error.contains("only with masters") => {}
                Ok(Reply::Text(_)) => {}
                reply => panic!("{reply:?}"),
            }
        }
    }
}

fn node() -> Server {
    Server::with(Config {
        lines: vec![
            "cluster-enabled yes".into(),
            // Long enough for a busy machine, short enough for a test.
            "cluster-node-timeout 1500".into(),
            "cluster-require-full-coverage no".into(),
            "cluster-replica-validity-factor 0".into(),
            "cluster-migration-barrier 100".into(),
        ],
        ..Config::default()
    })
}

fn id(server: &Server) -> String {
    server.command(&["CLUSTER", "MYID"]).text()
}
