//! Reads the nodes of a Redis Cluster and their slots from one node (`CLUSTER SLOTS`, `NODES`), and parses redirects.

use std::collections::HashSet;

use redis::{FromRedisValue, Value};

use crate::connection::error::ConnectError;
use crate::options::Endpoint;
use crate::round_trip::Link;

#[derive(Debug, Default)]
pub(super) struct ClusterView {
    /// Ranges of slots, first and last, and the master that serves each.
    pub slots: Vec<(u16, u16, Endpoint)>,
    pub nodes: Nodes,
    /// The error of `CLUSTER NODES`, without which only nodes with slots are known.
    pub nodes_error: Option<redis::RedisError>,
}

/// The nodes of a cluster, with and without slots.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    all: HashSet<Endpoint>,
    ports: HashSet<u16>,
    /// Masters that have not failed.
    pub masters: HashSet<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedirectTarget {
    pub endpoint: Endpoint,
    /// The redirect names no host: the endpoint has the host of the node that sent it.
    pub same_host: bool,
}

impl RedirectTarget {
    /// Parses `slot host:port`, the details of a redirect by the node at `from`.
    pub fn parse(details: &str, from: &Endpoint) -> Option<RedirectTarget> {
        let (host, port) = details.split(' ').nth(1)?.rsplit_once(':')?;
        let (host, same_host) = match (host, from) {
            // The node does not know its own host; the other one is on the same.
            ("", Endpoint::Tcp(host, _)) => (host.as_str(), true),
            _ => (host, false),
        };
        Some(RedirectTarget {
            endpoint: Endpoint::Tcp(host.to_owned(), port.parse().ok()?),
            same_host,
        })
    }
}

impl Nodes {
    /// Returns whether a redirect leads to a node of the cluster.
    pub fn include(&self, target: &RedirectTarget) -> bool {
        match target.endpoint {
            Endpoint::Tcp(_, port) if target.same_host => self.ports.contains(&port),
            _ => self.all.contains(&target.endpoint),
        }
    }

    fn add(&mut self, endpoint: Endpoint) {
        if let Endpoint::Tcp(_, port) = endpoint {
            self.ports.insert(port);
        }
        self.all.insert(endpoint);
    }

    /// Adds the nodes of a reply to `CLUSTER NODES`: lines of `id ip:port@bus-port[,hostname] flags …`.
    fn add_lines(&mut self, lines: &str, node: &Endpoint) {
        for line in lines.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(address), Some(flags)) = (fields.next(), fields.next()) else { continue };
            let has_flag = |flag| flags.split(',').any(|other| other == flag);
            // Not in the cluster yet, or not any more.
            if has_flag("handshake") || has_flag("noaddr") {
                continue;
            }
            let mut parts = address.split(',');
            let address = parts.next().unwrap_or_default().split('@').next().unwrap_or_default();
            let Some((ip, port)) = address.rsplit_once(':') else { continue };
            let Ok(port) = port.parse() else { continue };
            let hostname = parts.next().filter(|part| !part.contains('='));
            let hosts = [Some(ip), hostname].into_iter().flatten().filter(|host| !host.is_empty());
            let mut endpoints: Vec<_> =
                hosts.map(|host| Endpoint::Tcp(host.to_owned(), port)).collect();
            if endpoints.is_empty() {
                // A node that does not know its own address is the one that answered.
                endpoints.extend(on_host_of(node, port));
            }
            for endpoint in endpoints {
                if has_flag("master") && !has_flag("fail") {
                    self.masters.insert(endpoint.clone());
                }
                self.add(endpoint);
            }
        }
    }
}

pub(super) async fn read_view(
    connection: &mut Link,
    node: &Endpoint,
) -> Result<ClusterView, ConnectError> {
    let slots: Value = connection.query(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let mut view = ClusterView::default();
    view.add_slots(&slots, node).ok_or(ConnectError::NoSlots)?;
    // CLUSTER SLOTS does not list masters without slots.
    match connection.query::<String>(redis::cmd("CLUSTER").arg("NODES")).await {
        Ok(lines) => view.nodes.add_lines(&lines, node),
        Err(error) if error.is_unrecoverable_error() => return Err(error.into()),
        // An access list may forbid it.
        Err(error) => view.nodes_error = Some(error),
    }
    Ok(view)
}

impl ClusterView {
    /// Adds a reply to `CLUSTER SLOTS`; none where it lists no slots.
    fn add_slots(&mut self, reply: &Value, node: &Endpoint) -> Option<()> {
        let Value::Array(ranges) = reply else { return None };
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [first, last, servers @ ..] = &parts[..] else { continue };
            let mut servers = servers.iter().map(|server| endpoint(server, node));
            let (Some(first), Some(last), Some(Some(master))) =
                (int(first), int(last), servers.next())
            else {
                continue;
            };
            self.nodes.add(master.clone());
            servers.flatten().for_each(|replica| self.nodes.add(replica));
            self.slots.push((first, last, master));
        }
        (!self.slots.is_empty()).then_some(())
    }
}

fn endpoint(server: &Value, node: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = server else { return None };
    let port = int(parts.get(1)?)?;
    match parts.first()? {
        Value::BulkString(host) if !host.is_empty() => {
            Some(Endpoint::Tcp(String::from_utf8(host.clone()).ok()?, port))
        }
        // A node that does not know its own address is on the host that answered.
        _ => on_host_of(node, port),
    }
}

fn on_host_of(node: &Endpoint, port: u16) -> Option<Endpoint> {
    match node {
        Endpoint::Tcp(host, _) => Some(Endpoint::Tcp(host.clone(), port)),
        Endpoint::Unix(_) => None,
    }
}

fn int(value: &Value) -> Option<u16> {
    u16::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.into(), port)
    }

    fn target(details: &str) -> RedirectTarget {
        RedirectTarget::parse(details, &tcp("h", 1)).unwrap()
    }

    #[test]
    fn redirects_name_a_host_and_a_port() {
        let named = |endpoint| RedirectTarget { endpoint, same_host: false };
        assert_eq!(target("1 10.0.0.1:7"), named(tcp("10.0.0.1", 7)));
        assert_eq!(target("1 ::1:7"), named(tcp("::1", 7)));
        assert_eq!(target("1 :7"), RedirectTarget { endpoint: tcp("h", 7), same_host: true });
        for bad in ["", "1", "1 h", "1 h:", "1 h:x", "1 h:70000"] {
            assert_eq!(RedirectTarget::parse(bad, &tcp("h", 1)), None, "{bad}");
        }
    }

    #[test]
    fn lists_nodes_by_address_and_name_with_or_without_slots() {
        let mut nodes = Nodes::default();
        let lines = "a 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-100\n\
                     b 10.0.0.2:2@12,name,shard-id=b master - 0 0 2 connected\n\
                     c 10.0.0.3:3@13,,shard-id=c slave a 0 0 1 connected\n\
                     d ::1:4@14,shard-id=d master,fail - 0 0 3 disconnected\n\
                     e :5@15 master - 0 0 4 connected\n\
                     f 10.0.0.6:6@16 handshake - 0 0 0 connected\n\
                     g :0@0 master,noaddr - 0 0 5 disconnected\n\
                     h 10.0.0.8:8 master - 0 0 6 connected\n\
                     nonsense\n";
        nodes.add_lines(lines, &tcp("asked", 5));
        for address in ["10.0.0.1:1", "10.0.0.2:2", "name:2", "10.0.0.3:3", "::1:4", "asked:5"] {
            assert!(nodes.include(&target(&format!("0 {address}"))), "{address}");
        }
        assert!(nodes.include(&target("0 :3")), "a port of one of the nodes");
        for address in ["10.0.0.1:2", "10.0.0.6:6", "shard-id=d:4", "other:1", ":6", ":0", ":9"] {
            assert!(!nodes.include(&target(&format!("0 {address}"))), "{address}");
        }
        let masters = [("10.0.0.1", 1), ("10.0.0.2", 2), ("asked", 5), ("10.0.0.8", 8)];
        for (host, port) in masters {
            assert!(nodes.masters.contains(&tcp(host, port)), "{host}");
        }
        for (host, port) in [("10.0.0.3", 3), ("::1", 4)] {
            assert!(!nodes.masters.contains(&tcp(host, port)), "{host}");
        }
    }
}
