//! The connections of one thread.

use std::sync::Arc;

use super::batch::PendingCharge;
use super::cluster::Cluster;
use super::connection::{self, Connection, Target};
use super::context::RedisContext;
use super::options::Topology;

/// The connections of one thread: to one server, or to the nodes of a cluster.
#[derive(Debug)]
pub(super) enum ThreadConnections {
    Single(Arc<Connection>),
    Cluster(Arc<Cluster>),
}

impl ThreadConnections {
    /// Starts to connect, on the current runtime.
    pub fn start(shared: Arc<RedisContext>) -> ThreadConnections {
        let target = match &shared.options.topology {
            Topology::Single(endpoint) | Topology::Proxy(endpoint) => {
                Target::Server(endpoint.clone())
            }
            Topology::Sentinel { master, sentinels } => {
                Target::Master { name: master.clone(), sentinels: sentinels.clone() }
            }
            Topology::Cluster(seeds) => {
                return ThreadConnections::Cluster(Cluster::start(seeds.clone(), shared));
            }
        };
        ThreadConnections::Single(connection::start(target, shared, None))
    }

    /// Returns whether every server has answered once.
    pub fn has_answered(&self) -> bool {
        match self {
            ThreadConnections::Single(connection) => connection.has_answered(),
            ThreadConnections::Cluster(cluster) => cluster.has_answered(),
        }
    }

    /// Returns whether the server of a slot has answered, or could not be reached.
    pub fn has_tried(&self, slot: u16) -> bool {
        match self {
            ThreadConnections::Single(connection) => connection.has_tried(),
            ThreadConnections::Cluster(cluster) => cluster.has_tried(slot),
        }
    }

    /// Sends charges; those to one node share a round trip.
    pub fn push(&self, charges: impl IntoIterator<Item = PendingCharge>) {
        match self {
            ThreadConnections::Single(connection) => connection.push(charges),
            ThreadConnections::Cluster(cluster) => cluster.push(charges),
        }
    }

    /// Returns the server to which charges of a slot go, if that is known.
    pub fn target(&self, slot: u16) -> Option<Target> {
        match self {
            ThreadConnections::Single(connection) => Some(match connection.endpoint() {
                Some(endpoint) => Target::Server(endpoint),
                None => connection.target().clone(),
            }),
            ThreadConnections::Cluster(cluster) => cluster.target(slot),
        }
    }

    /// Reads again which server has which slot.
    pub fn refresh_soon(&self) {
        if let ThreadConnections::Cluster(cluster) = self {
            cluster.refresh_soon();
        }
    }

    pub fn all(&self) -> Vec<Arc<Connection>> {
        match self {
            ThreadConnections::Single(connection) => vec![connection.clone()],
            ThreadConnections::Cluster(cluster) => cluster.connections(),
        }
    }

    pub fn close(&self) {
        match self {
            ThreadConnections::Single(connection) => connection.close(),
            ThreadConnections::Cluster(cluster) => cluster.close(),
        }
    }
}
