//! The handshake: connects, logs in, and checks that the server is usable.

use redis::{ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError};

use super::error::ConnectError;
use super::link::Link;
use super::replies::{ADMIN_BYTES, SHORT_BYTES};
use super::socket;
use crate::redis::access::{Access, Endpoint, Login};
use weir_limit::{Micros, SECOND};

/// The oldest version: with `SET … KEEPTTL`, and scripts that may read the time before they write.
const MIN_REDIS_VERSION: (u32, u32) = (6, 0);

/// Connects to a server and logs in. If the server refuses the password and its file has another one by now,
/// logs in with that.
///
/// # Errors
///
/// The server cannot be reached, or refuses the credentials.
pub(in super::super) async fn connect(
    access: &Access,
    endpoint: &Endpoint,
) -> Result<Link, ConnectError> {
    let password = read_password(&access.login)?;
    match log_in(access, endpoint, password.as_deref()).await {
        Err(ConnectError::Redis(error)) if needs_login(&error) => {
            let newer = read_password(&access.login)?;
            if newer == password {
                return Err(error.into());
            }
            log_in(access, endpoint, newer.as_deref()).await
        }
        connected => connected,
    }
}

async fn log_in(
    access: &Access,
    endpoint: &Endpoint,
    password: Option<&str>,
) -> Result<Link, ConnectError> {
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_lib_name("weir", env!("CARGO_PKG_VERSION"))
        .set_db(access.db);
    if let Some(username) = &access.login.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let connecting = async {
        let socket = socket::open(access, endpoint).await?;
        Ok(Link::log_in(socket, &settings).await?)
    };
    match tokio::time::timeout(access.timeout, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(ConnectError::TimedOut(access.timeout)),
    }
}

/// Returns the password as it is now; none if it is empty.
fn read_password(login: &Login) -> Result<Option<String>, ConnectError> {
    let password = match &login.password_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConnectError::File(path.clone(), error))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => login.password.clone(),
    };
    Ok(password.filter(|password| !password.is_empty()))
}

/// Returns whether a server refuses the login, or asks for one: only a new connection can help.
pub(super) fn needs_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// What a server reports about itself.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct ServerInfo {
    pub version: String,
    pub max_memory: u64,
    pub policy: String,
}

impl ServerInfo {
    /// Returns whether the server may drop states before they expire.
    pub fn evicts(&self) -> bool {
        self.max_memory > 0 && self.policy != "noeviction"
    }
}

/// Checks that a server is usable; returns what it reports about itself, as far as the user may ask.
///
/// # Errors
///
/// The server asks for a login, is loading its data, too old, or a replica where `may_be_replica` is false.
pub(in super::super) async fn examine(
    connection: &mut Link,
    may_be_replica: bool,
) -> Result<ServerInfo, ConnectError> {
    let mut server = ServerInfo::default();
    let info: Result<String, _> = connection.query(ADMIN_BYTES, &redis::cmd("INFO")).await;
    let info = match info {
        Ok(info) => info,
        Err(error) if error.is_connection_dropped() || error.is_io_error() => {
            return Err(error.into());
        }
        Err(error) if error.code() == Some("LOADING") || needs_login(&error) => {
            return Err(error.into());
        }
        // An access list may forbid the command. What is unusable then fails at its first use.
        Err(_) => String::new(),
    };
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
    };
    server.version = field("redis_version").to_owned();
    server.max_memory = field("maxmemory").parse().unwrap_or(0);
    server.policy = field("maxmemory_policy").to_owned();
    let mut parts = server.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if !server.version.is_empty() && version < MIN_REDIS_VERSION {
        return Err(ConnectError::TooOld(server.version, MIN_REDIS_VERSION.0, MIN_REDIS_VERSION.1));
    }
    if !may_be_replica && field("role") == "slave" {
        return Err(ConnectError::Replica);
    }
    Ok(server)
}

/// Returns the server's time.
pub(super) async fn time(connection: &mut Link) -> redis::RedisResult<Micros> {
    let (seconds, micros): (u64, u64) = connection.query(SHORT_BYTES, &redis::cmd("TIME")).await?;
    Ok(seconds * SECOND + micros)
}

/// Returns the address of the master that a sentinel knows by that name.
///
/// # Errors
///
/// The sentinel cannot be reached, or its reply is invalid.
pub(super) async fn ask_sentinel(
    access: &Access,
    sentinel: &Endpoint,
    master: &str,
) -> Result<Option<Endpoint>, ConnectError> {
    let mut connection = connect(access, sentinel).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(master);
    let reply = connection.query::<Option<(String, u16)>>(ADMIN_BYTES, &command);
    match tokio::time::timeout(access.timeout, reply).await {
        Ok(reply) => Ok(reply?.map(|(host, port)| Endpoint::Tcp(host, port))),
        Err(_) => Err(ConnectError::TimedOut(access.timeout)),
    }
}
