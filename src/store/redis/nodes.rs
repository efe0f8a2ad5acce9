//! A cluster as one of its nodes describes it: who serves which slot, and which nodes there are.

use std::collections::HashSet;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value};

use super::connect::{ConnectError, Endpoint};

/// Ranges of slots, first and last, and the master that serves each.
pub(super) type Slots = Vec<(u16, u16, Endpoint)>;

/// What a node says of its cluster.
#[derive(Debug, Default)]
pub(super) struct View {
    pub slots: Slots,
    pub nodes: Nodes,
    /// Why the nodes are those of the slots only.
    pub no_nodes: Option<redis::RedisError>,
}

/// The nodes of a cluster, those without slots too.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    all: HashSet<Endpoint>,
    ports: HashSet<u16>,
    /// Masters that have not failed.
    masters: HashSet<Endpoint>,
}

/// Where a redirection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub endpoint: Endpoint,
    /// The redirection names no host: the endpoint has that of the node that sent it.
    pub same_host: bool,
}

impl Target {
    /// Reads `slot host:port`, as the node at `from` says it.
    pub fn read(told: &str, from: &Endpoint) -> Option<Target> {
        let (host, port) = told.split(' ').nth(1)?.rsplit_once(':')?;
        let (host, same_host) = match (host, from) {
            // The node does not know its name; the other one is on the same host.
            ("", Endpoint::Tcp(host, _)) => (host.as_str(), true),
            _ => (host, false),
        };
        Some(Target { endpoint: Endpoint::Tcp(host.to_owned(), port.parse().ok()?), same_host })
    }
}

impl Nodes {
    /// Returns whether a redirection leads to a node of the cluster.
    pub fn include(&self, target: &Target) -> bool {
        match target.endpoint {
            Endpoint::Tcp(_, port) if target.same_host => self.ports.contains(&port),
            _ => self.all.contains(&target.endpoint),
        }
    }

    pub fn include_master(&self, endpoint: &Endpoint) -> bool {
        self.masters.contains(endpoint)
    }

    fn add(&mut self, endpoint: Endpoint) {
        if let Endpoint::Tcp(_, port) = endpoint {
            self.ports.insert(port);
        }
        self.all.insert(endpoint);
    }

    /// Adds the nodes of a reply to `CLUSTER NODES`: lines of
    /// `id ip:port@bus-port[,hostname] flags …`.
    fn add_lines(&mut self, lines: &str, asked: &Endpoint) {
        for line in lines.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(address), Some(flags)) = (fields.next(), fields.next()) else { continue };
            let has_flag = |flag| flags.split(',').any(|other| other == flag);
            // Neither is one of the cluster yet, or any more.
            if has_flag("handshake") || has_flag("noaddr") {
                continue;
            }
            let mut parts = address.split(',');
            let Some((ip, port)) = parts
                .next()
                .and_then(|address| address.split('@').next().unwrap_or(address).rsplit_once(':'))
            else {
                continue;
            };
            let Ok(port) = port.parse() else { continue };
            let hostname = parts.next().filter(|part| !part.contains('='));
            let hosts = [Some(ip), hostname].into_iter().flatten().filter(|host| !host.is_empty());
            let mut endpoints: Vec<_> =
                hosts.map(|host| Endpoint::Tcp(host.to_owned(), port)).collect();
            if endpoints.is_empty() {
                // A node that does not know its own address: it is the one we reached.
                endpoints.extend(on_host_of(asked, port));
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

/// Asks one node, at `asked`.
pub(super) async fn ask(
    connection: &mut MultiplexedConnection,
    asked: &Endpoint,
) -> Result<View, ConnectError> {
    let told: Value = redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
    let mut view = View::default();
    view.add_slots(&told, asked).ok_or(ConnectError::NoSlots)?;
    // It does not list masters without slots.
    match redis::cmd("CLUSTER").arg("NODES").query_async::<String>(connection).await {
        Ok(lines) => view.nodes.add_lines(&lines, asked),
        Err(error) if error.is_unrecoverable_error() => return Err(error.into()),
        // An access list may forbid it.
        Err(error) => view.no_nodes = Some(error),
    }
    Ok(view)
}

impl View {
    /// Adds a reply to `CLUSTER SLOTS`; none where it has no slots.
    fn add_slots(&mut self, told: &Value, asked: &Endpoint) -> Option<()> {
        let Value::Array(ranges) = told else { return None };
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [first, last, servers @ ..] = &parts[..] else { continue };
            let mut servers = servers.iter().map(|server| endpoint(server, asked));
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

/// A server of a range of slots.
fn endpoint(server: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = server else { return None };
    let port = int(parts.get(1)?)?;
    match parts.first()? {
        Value::BulkString(host) if !host.is_empty() => {
            Some(Endpoint::Tcp(String::from_utf8(host.clone()).ok()?, port))
        }
        // A node that does not know its own address: it is on the host that we reached.
        _ => on_host_of(asked, port),
    }
}

fn on_host_of(asked: &Endpoint, port: u16) -> Option<Endpoint> {
    match asked {
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

    fn target(told: &str) -> Target {
        Target::read(told, &tcp("h", 1)).unwrap()
    }

    #[test]
    fn redirections_name_a_host_and_a_port() {
        let named = |endpoint| Target { endpoint, same_host: false };
        assert_eq!(target("1 10.0.0.1:7"), named(tcp("10.0.0.1", 7)));
        assert_eq!(target("1 ::1:7"), named(tcp("::1", 7)));
        assert_eq!(target("1 :7"), Target { endpoint: tcp("h", 7), same_host: true });
        for bad in ["", "1", "1 h", "1 h:", "1 h:x", "1 h:70000"] {
            assert_eq!(Target::read(bad, &tcp("h", 1)), None, "{bad}");
        }
    }

    #[test]
    fn nodes_are_listed_with_their_names_and_whether_they_have_slots_or_not() {
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
        for told in ["10.0.0.1:1", "10.0.0.2:2", "name:2", "10.0.0.3:3", "::1:4", "asked:5"] {
            assert!(nodes.include(&target(&format!("0 {told}"))), "{told}");
        }
        assert!(nodes.include(&target("0 :3")), "a port of one of the nodes");
        for told in ["10.0.0.1:2", "10.0.0.6:6", "shard-id=d:4", "other:1", ":6", ":0", ":9"] {
            assert!(!nodes.include(&target(&format!("0 {told}"))), "{told}");
        }
        let masters = [("10.0.0.1", 1), ("10.0.0.2", 2), ("asked", 5), ("10.0.0.8", 8)];
        for (host, port) in masters {
            assert!(nodes.include_master(&tcp(host, port)), "{host}");
        }
        for (host, port) in [("10.0.0.3", 3), ("::1", 4)] {
            assert!(!nodes.include_master(&tcp(host, port)), "{host}");
        }
    }
}
