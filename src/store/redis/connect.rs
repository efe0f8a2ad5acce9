//! Connections: to which server, as whom, and whether it will do.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

/// The least version: `SET … KEEPTTL`, and scripts that may ask for the time before they write.
const LEAST: (u32, u32) = (6, 0);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// As whom to log in.
#[derive(Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<String>,
    /// Read anew for each connection, in place of `password`.
    pub password_file: Option<PathBuf>,
}

impl fmt::Debug for Login {
    /// Leaves out the user name too: it may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// How to encrypt connections. Files in PEM form, read anew for each connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who to trust; none: the system's roots.
    pub ca: Option<PathBuf>,
    pub client_cert: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// Trusts whatever host a good certificate is for.
    pub skip_hostname_verification: bool,
}

/// How to connect, to whichever server.
#[derive(Clone, Debug)]
pub struct Access {
    pub login: Login,
    pub tls: Option<Tls>,
    pub db: i64,
    pub timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{0}: cannot be read: {1}")]
    File(PathBuf, std::io::Error),
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("it is version {0}, and at least {1}.{2} is needed")]
    TooOld(String, u32, u32),
    #[error("it is a replica, and only answers reads")]
    Replica,
    #[error("none of the sentinels knows the master {0:?}")]
    NoMaster(String),
    #[error("no node reports the cluster's slots")]
    NoSlots,
}

impl Access {
    /// Connects and logs in.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
    ) -> Result<MultiplexedConnection, ConnectError> {
        let addr = match endpoint {
            Endpoint::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Endpoint::Tcp(host, port) => match &self.tls {
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
            .set_db(self.db);
        if let Some(username) = &self.login.username {
            settings = settings.set_username(username);
        }
        let password = match &self.login.password_file {
            Some(path) => Some(read(path)?.trim_end_matches(['\r', '\n']).to_owned()),
            None => self.login.password.clone(),
        };
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            settings = settings.set_password(password);
        }
        // Small packets that somebody waits for.
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = addr.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = match (&self.tls, endpoint) {
            (Some(tls), Endpoint::Tcp(..)) => {
                let client = redis::Client::build_with_tls(info, tls.certificates()?)?;
                let info = client.get_connection_info().clone();
                let mut addr = info.addr().clone();
                addr.set_danger_accept_invalid_hostnames(tls.skip_hostname_verification);
                redis::Client::open(info.set_addr(addr))?
            }
            _ => redis::Client::open(info)?,
        };
        // A trip has its own limit of time.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(connection) => Ok(connection?),
            Err(_) => Err(ConnectError::TimedOut(self.timeout)),
        }
    }
}

impl Tls {
    fn certificates(&self) -> Result<redis::TlsCertificates, ConnectError> {
        let bytes = |path: &PathBuf| read(path).map(String::into_bytes);
        let client_tls = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => {
                Some(redis::ClientTlsConfig { client_cert: bytes(cert)?, client_key: bytes(key)? })
            }
            _ => None,
        };
        let root_cert = self.ca.as_ref().map(bytes).transpose()?;
        Ok(redis::TlsCertificates { client_tls, root_cert })
    }
}

fn read(path: &PathBuf) -> Result<String, ConnectError> {
    std::fs::read_to_string(path).map_err(|error| ConnectError::File(path.clone(), error))
}

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub version: String,
    pub max_memory: u64,
    pub policy: String,
}

/// Whether a server will do; and what it says of itself, as far as this user may ask.
pub(super) async fn examine(
    connection: &mut MultiplexedConnection,
    may_be_replica: bool,
) -> Result<About, ConnectError> {
    let mut about = About::default();
    let info: Result<String, _> = redis::cmd("INFO").query_async(connection).await;
    let info = match info {
        Ok(info) => info,
        Err(error) if error.is_connection_dropped() || error.is_io_error() => {
            return Err(error.into());
        }
        Err(error) if error.code() == Some("LOADING") => return Err(error.into()),
        // An access list may keep it from us: what then does not work says so by itself.
        Err(_) => String::new(),
    };
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
    };
    about.version = field("redis_version").to_owned();
    about.max_memory = field("maxmemory").parse().unwrap_or(0);
    about.policy = field("maxmemory_policy").to_owned();
    let mut parts = about.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if !about.version.is_empty() && version < LEAST {
        return Err(ConnectError::TooOld(about.version, LEAST.0, LEAST.1));
    }
    if !may_be_replica && field("role") == "slave" {
        return Err(ConnectError::Replica);
    }
    Ok(about)
}

/// The server's time, in microseconds.
pub(super) async fn time(connection: &mut MultiplexedConnection) -> redis::RedisResult<u64> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    Ok(seconds * crate::limit::SECOND + micros)
}

/// The same, as TIME replied it.
pub(super) fn time_of(reply: &redis::Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(reply).ok()?;
    Some(seconds * crate::limit::SECOND + micros)
}

/// The address of the master as a sentinel names it, where it knows one.
pub(super) async fn ask_sentinel(
    access: &Access,
    sentinel: &Endpoint,
    master: &str,
) -> Result<Option<Endpoint>, ConnectError> {
    let mut connection = access.connect(sentinel).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(master);
    let told = command.query_async::<Option<(String, u16)>>(&mut connection);
    match tokio::time::timeout(access.timeout, told).await {
        Ok(told) => Ok(told?.map(|(host, port)| Endpoint::Tcp(host, port))),
        Err(_) => Err(ConnectError::TimedOut(access.timeout)),
    }
}
