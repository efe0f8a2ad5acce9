//! The handshake: connects, logs in, and checks that the server is usable.

use std::path::PathBuf;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};

use crate::limit::{Micros, SECOND};
use crate::store::redis::access::{Access, Endpoint, Tls};

/// The oldest version: with `SET … KEEPTTL`, and scripts that may read the time before they write.
const MIN_REDIS_VERSION: (u32, u32) = (6, 0);

/// Why a connection attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read {0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("{0}")]
    Certificates(String),
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("redis {0} is too old: weir needs {1}.{2} or later")]
    TooOld(String, u32, u32),
    #[error("the server is a read-only replica")]
    Replica,
    #[error("no sentinel knows the master {0:?}")]
    NoMaster(String),
    #[error("no node reports the slots of the cluster")]
    NoSlots,
}

/// Connects to a server and logs in.
///
/// # Errors
///
/// The server cannot be reached, or refuses the credentials.
pub(in super::super) async fn connect(
    access: &Access,
    endpoint: &Endpoint,
) -> Result<MultiplexedConnection, ConnectError> {
    let addr = match endpoint {
        Endpoint::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Endpoint::Tcp(host, port) => match &access.tls {
            None => ConnectionAddr::Tcp(host.clone(), *port),
            Some(_) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        },
    };
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_lib_name("weir", env!("CARGO_PKG_VERSION"))
        .set_db(access.db);
    if let Some(username) = &access.login.username {
        settings = settings.set_username(username);
    }
    let password = match &access.login.password_file {
        Some(path) => Some(read(path)?.trim_end_matches(['\r', '\n']).to_owned()),
        None => access.login.password.clone(),
    };
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        settings = settings.set_password(password);
    }
    // Packets are small, and requests wait for them.
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = addr.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
    let client = match (&access.tls, endpoint) {
        (Some(tls), Endpoint::Tcp(..)) => tls_client(info, tls).await?,
        _ => redis::Client::open(info)?,
    };
    // A round trip has its own timeout.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(access.timeout))
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match tokio::time::timeout(access.timeout, connecting).await {
        Ok(connection) => Ok(connection?),
        Err(_) => Err(ConnectError::TimedOut(access.timeout)),
    }
}

#[cfg(feature = "tls")]
async fn tls_client(info: ConnectionInfo, tls: &Tls) -> Result<redis::Client, ConnectError> {
    let pem = tls.certificates.read_in_background().await.map_err(ConnectError::Certificates)?;
    let certificates = redis::TlsCertificates {
        client_tls: pem
            .identity
            .clone()
            .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key }),
        root_cert: pem.ca.clone(),
    };
    let client = redis::Client::build_with_tls(info, certificates)?;
    let info = client.get_connection_info().clone();
    let mut addr = info.addr().clone();
    addr.set_danger_accept_invalid_hostnames(tls.skip_hostname_verification);
    Ok(redis::Client::open(info.set_addr(addr))?)
}

#[cfg(not(feature = "tls"))]
async fn tls_client(_: ConnectionInfo, _: &Tls) -> Result<redis::Client, ConnectError> {
    Err(ConnectError::Certificates(crate::client_tls::NO_TLS.to_owned()))
}

fn read(path: &PathBuf) -> Result<String, ConnectError> {
    std::fs::read_to_string(path).map_err(|error| ConnectError::File(path.clone(), error))
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
/// The server is loading its data, too old, or a replica where `may_be_replica` is false.
pub(in super::super) async fn examine(
    connection: &mut MultiplexedConnection,
    may_be_replica: bool,
) -> Result<ServerInfo, ConnectError> {
    let mut server = ServerInfo::default();
    let info: Result<String, _> = redis::cmd("INFO").query_async(connection).await;
    let info = match info {
        Ok(info) => info,
        Err(error) if error.is_connection_dropped() || error.is_io_error() => {
            return Err(error.into());
        }
        Err(error) if error.code() == Some("LOADING") => return Err(error.into()),
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
pub(super) async fn time(connection: &mut MultiplexedConnection) -> redis::RedisResult<Micros> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
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
    let reply = command.query_async::<Option<(String, u16)>>(&mut connection);
    match tokio::time::timeout(access.timeout, reply).await {
        Ok(reply) => Ok(reply?.map(|(host, port)| Endpoint::Tcp(host, port))),
        Err(_) => Err(ConnectError::TimedOut(access.timeout)),
    }
}
