//! Which server a connection to Redis goes to, and Redis Sentinel, which names it if that is configured.

use std::collections::HashMap;
use std::fmt;

use redis::{Pipeline, RedisResult, Value, from_redis_value};
use tokio::time::timeout;

use super::error::ConnectError;
use super::examine::{examine, examine_proxy};
use super::handshake::connect;
use crate::context::RedisContext;
use crate::options::{ClockSource, Endpoint, RedisAccess};
use crate::round_trip::Link;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Endpoint),
    /// A master by its name, at the address that the sentinels know.
    Master {
        name: String,
        sentinels: Vec<Endpoint>,
    },
    /// A node of a cluster, master or replica: it redirects what it does not serve.
    Node(Endpoint),
}

impl Target {
    /// Connects to the server and checks that it is usable; returns its address too.
    pub async fn connect(&self, shared: &RedisContext) -> Result<(Link, Endpoint), ConnectError> {
        let (name, sentinels) = match self {
            Target::Server(endpoint) => return connect_to(endpoint.clone(), false, shared).await,
            Target::Node(endpoint) => return connect_to(endpoint.clone(), true, shared).await,
            Target::Master { name, sentinels } => (name, sentinels),
        };
        let access = &shared.options.sentinel_access;
        let mut last = ConnectError::NoMaster(name.clone());
        let mut tried = Vec::new();
        for sentinel in sentinels {
            match Sentinel::new(sentinel.clone()).ask(access, name).await {
                // A sentinel that is out of date may name a replica, or a server that is gone.
                Ok(Some(named)) if !tried.contains(&named.endpoint) => {
                    tried.push(named.endpoint.clone());
                    match connect_to(named.endpoint, false, shared).await {
                        Err(error) => last = error,
                        connected => return connected,
                    }
                }
                Ok(_) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn connect_to(
    endpoint: Endpoint,
    may_be_replica: bool,
    shared: &RedisContext,
) -> Result<(Link, Endpoint), ConnectError> {
    let options = &shared.options;
    let limit = options.access.timeout;
    let handshake = async {
        let mut connection = connect(&options.access, &endpoint).await?;
        if shared.is_proxy {
            let missing = examine_proxy(&mut connection, &options.prefix).await?;
            shared.log.permissions(&endpoint, &options.prefix, &missing);
            return Ok(connection);
        }
        let server = examine(&mut connection, may_be_replica, &options.prefix).await?;
        shared.log.permissions(&endpoint, &options.prefix, &server.missing);
        if let (Some(error), ClockSource::Server) = (server.no_time, options.clock) {
            return Err(ConnectError::NoTime(error));
        }
        if let Some(theirs) = server.time
            && matches!(options.clock, ClockSource::Caller)
        {
            shared.log.clock_skew(&endpoint, theirs, options.wall.now());
        }
        // It may drop states before they expire.
        if server.max_memory > 0 && server.policy != "noeviction" {
            shared.log.eviction_policy(&endpoint, &server.policy);
        }
        Ok::<_, ConnectError>(connection)
    };
    let connected = timeout(limit, handshake).await.unwrap_or(Err(ConnectError::TimedOut(limit)));
    Ok((connected?, endpoint))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Server(endpoint) | Target::Node(endpoint) => endpoint.fmt(f),
            Target::Master { name, .. } => write!(f, "the master {name:?}"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NamedMaster {
    pub endpoint: Endpoint,
    /// The number of the failover that made it the master: the highest holds. 0 without the right to `SENTINEL MASTER`.
    pub epoch: u64,
}

#[derive(Debug)]
pub(crate) struct Sentinel {
    endpoint: Endpoint,
    link: Option<Link>,
}

impl Sentinel {
    pub fn new(endpoint: Endpoint) -> Sentinel {
        Sentinel { endpoint, link: None }
    }

    /// Returns the master of that name; none if the sentinel does not know it. Connects first where it has to.
    pub async fn ask(
        &mut self,
        access: &RedisAccess,
        master: &str,
    ) -> Result<Option<NamedMaster>, ConnectError> {
        let asked = async {
            let mut link = match self.link.take() {
                Some(link) => link,
                None => connect(access, &self.endpoint).await?,
            };
            let mut commands = Pipeline::with_capacity(2);
            // While it fails over, this names the new master before `SENTINEL MASTER` and `+switch-master` do.
            commands.cmd("SENTINEL").arg("get-master-addr-by-name").arg(master);
            commands.cmd("SENTINEL").arg("master").arg(master);
            let replies = link.send_all(&commands).await?;
            let named = read(replies)?;
            self.link = Some(link);
            Ok(named)
        };
        timeout(access.timeout, asked).await.unwrap_or(Err(ConnectError::TimedOut(access.timeout)))
    }
}

/// Reads the replies to both commands. The second may be an error.
fn read(replies: Vec<Value>) -> RedisResult<Option<NamedMaster>> {
    let mut replies = replies.into_iter();
    let address = replies.next().unwrap_or(Value::Nil).extract_error()?;
    let Some((host, port)) = from_redis_value::<Option<(String, u16)>>(address)? else {
        return Ok(None);
    };
    let master = replies.next().and_then(|reply| from_redis_value(reply).ok());
    let master: HashMap<String, String> = master.unwrap_or_default();
    let epoch = master.get("config-epoch").and_then(|epoch| epoch.parse().ok());
    Ok(Some(NamedMaster { endpoint: Endpoint::Tcp(host, port), epoch: epoch.unwrap_or(0) }))
}
