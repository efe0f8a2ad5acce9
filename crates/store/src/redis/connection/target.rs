//! The server that a connection goes to.

use std::fmt;

use tokio::time::timeout;

use super::error::ConnectError;
use super::examine::examine;
use super::handshake::connect;
use super::link::Link;
use super::proxy;
use super::sentinel::Sentinel;
use crate::redis::access::Endpoint;
use crate::redis::context::RedisContext;
use crate::redis::options::Clock;

/// The server that a connection goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Target {
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
    ///
    /// # Errors
    ///
    /// No server can be reached, or the server is unusable.
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
            let missing = proxy::examine(&mut connection, &options.prefix).await?;
            shared.log.permissions(&endpoint, &options.prefix, &missing);
            return Ok(connection);
        }
        let server = examine(&mut connection, may_be_replica, &options.prefix).await?;
        shared.log.permissions(&endpoint, &options.prefix, &server.missing);
        if let Some(theirs) = server.time
            && options.clock == Clock::Caller
        {
            shared.log.clock_skew(&endpoint, theirs, options.wall.now());
        }
        if server.evicts() {
            shared.log.eviction_policy(&endpoint, &server.policy);
        }
        Ok::<_, ConnectError>(connection)
    };
    match timeout(limit, handshake).await {
        Ok(connection) => Ok((connection?, endpoint)),
        Err(_) => Err(ConnectError::TimedOut(limit)),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Server(endpoint) | Target::Node(endpoint) => endpoint.fmt(f),
            Target::Master { name, .. } => write!(f, "the master {name:?}"),
        }
    }
}
