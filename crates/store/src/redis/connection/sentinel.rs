//! What a sentinel says about a master.

use std::collections::HashMap;

use redis::{Pipeline, RedisResult, Value, from_redis_value};
use tokio::time::timeout;

use super::error::ConnectError;
use super::handshake::connect;
use super::link::Link;
use crate::redis::access::{Access, Endpoint};

/// A master, as a sentinel names it.
#[derive(Clone, Debug)]
pub(in super::super) struct NamedMaster {
    pub endpoint: Endpoint,
    /// The number of the failover that made it the master: the highest one holds. 0 where the sentinel does not
    /// permit `SENTINEL MASTER`.
    pub epoch: u64,
}

/// A sentinel, and the connection to it.
#[derive(Debug)]
pub(in super::super) struct Sentinel {
    endpoint: Endpoint,
    link: Option<Link>,
}

impl Sentinel {
    /// Does not connect yet.
    pub fn new(endpoint: Endpoint) -> Sentinel {
        Sentinel { endpoint, link: None }
    }

    /// Returns the master of that name; none if the sentinel does not know it. Connects first where there is no
    /// connection, or the last question failed.
    ///
    /// # Errors
    ///
    /// The sentinel cannot be reached, or its reply is invalid.
    pub async fn ask(
        &mut self,
        access: &Access,
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
        match timeout(access.timeout, asked).await {
            Ok(named) => named,
            Err(_) => Err(ConnectError::TimedOut(access.timeout)),
        }
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
