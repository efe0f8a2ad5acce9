//! The options of the Redis store: where the servers are, and how to reach and use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use std::{fmt, fs, io};

use tokio::sync::{Mutex, oneshot};

use weir_client::tls::ClientCertificates;
use weir_common::clock;
use weir_common::error::SetupError;
use weir_common::named_enum;

/// Where the servers are.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One server.
    Single(Endpoint),
    /// A master by its name, found by asking the sentinels.
    Sentinel {
        /// The name of the master.
        master: String,
        /// Some of the sentinels.
        sentinels: Vec<Endpoint>,
    },
    /// A cluster, given by some of its nodes.
    Cluster(Vec<Endpoint>),
    /// A proxy, which routes each command by its first key to one of several servers.
    Proxy(Endpoint),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |endpoints: &[Endpoint]| {
            endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ")
        };
        match self {
            Topology::Single(endpoint) | Topology::Proxy(endpoint) => endpoint.fmt(f),
            Topology::Sentinel { master, sentinels } => {
                write!(f, "the master {master:?} by the sentinels {}", list(sentinels))
            }
            Topology::Cluster(seeds) => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

named_enum! {
    /// The clock that limits go by.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ClockSource, name {
        /// Redis's own: one for all replicas.
        Server = "server",
        /// Each replica's, for services that do not let scripts read the time.
        Caller = "caller",
    }
}

/// How to count in Redis.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The servers.
    pub topology: Topology,
    /// Access to the servers.
    pub access: RedisAccess,
    /// Access to the sentinels themselves.
    pub sentinel_access: RedisAccess,
    /// The start of every key; without braces.
    pub prefix: String,
    /// Whose time limits go by.
    pub clock: ClockSource,
    /// The clock of this process.
    pub wall: Arc<dyn clock::Clock>,
    /// A round trip that takes longer marks its connection as slow.
    pub slow_after: Duration,
    /// A request with a smaller timeout that gets no answer failed by its caller's deadline.
    pub caller_deadline_below: Duration,
    /// The number of connections per server: one per serving thread.
    pub connections: usize,
}

impl RedisOptions {
    /// How weir counts without settings: on connections of the threads, each key by Redis's clock.
    pub fn new(topology: Topology) -> RedisOptions {
        let access = RedisAccess {
            login: Login::default(),
            tls: None,
            db: 0,
            timeout: Duration::from_secs(1),
        };
        RedisOptions {
            topology,
            sentinel_access: access.clone(),
            access,
            prefix: "weir:".to_owned(),
            clock: ClockSource::Server,
            wall: Arc::new(clock::SystemClock::new()),
            slow_after: Duration::from_millis(20),
            caller_deadline_below: Duration::ZERO,
            connections: 1,
        }
    }

    /// Checks the certificates, if connections are encrypted.
    ///
    /// # Errors
    ///
    /// A file is unusable. The message names the setting and the fix.
    pub fn check(&self) -> Result<(), SetupError> {
        self.access.tls.as_ref().map_or(Ok(()), |tls| tls.certificates.read().map(drop))
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host and a port.
    Tcp(String, u16),
    /// The path of a socket.
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

/// The user to log in as.
#[derive(Clone, Default)]
pub struct Login {
    /// The name; none for the default user.
    pub username: Option<String>,
    /// The password; none where none is needed.
    pub password: Option<String>,
    /// Read for each connection, in place of `password`.
    pub password_file: Option<PasswordFile>,
}

/// A file with a password.
#[derive(Clone, Debug)]
pub struct PasswordFile {
    path: PathBuf,
    /// Whether a user name and a colon may be before the password, as in the reference's file.
    may_have_user: bool,
    /// Locked while the file is read, so that a file system that hangs holds one thread.
    reading: Arc<Mutex<()>>,
}

impl PasswordFile {
    /// Returns a file of a password alone.
    pub fn new(path: PathBuf) -> PasswordFile {
        PasswordFile { path, may_have_user: false, reading: Arc::default() }
    }

    /// Returns a file of `password` or `username:password`.
    pub fn with_user(path: PathBuf) -> PasswordFile {
        PasswordFile { may_have_user: true, ..PasswordFile::new(path) }
    }

    /// Returns its path.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Reads the user name, if there is one, and the password, on a thread of its own: not one that serves, and none
    /// that a runtime waits for when it ends. Line breaks at the end are ignored.
    pub(super) async fn read(&self) -> io::Result<(Option<String>, String)> {
        let reading = self.reading.clone().lock_owned().await;
        let path = self.path.clone();
        let (done, text) = oneshot::channel();
        let read = move || {
            let text = fs::read_to_string(path);
            drop(reading);
            // The connection may have been given up.
            let _ = done.send(text);
        };
        Builder::new().name("weir-password".to_owned()).spawn(read)?;
        let text = text.await.map_err(io::Error::other)??;
        let text = text.trim_end_matches(['\r', '\n']);
        Ok(match text.split_once(':') {
            Some((user, password)) if self.may_have_user => (Some(user.into()), password.into()),
            _ => (None, text.to_owned()),
        })
    }
}

impl fmt::Debug for Login {
    /// Leaves out the user name too: it may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// How to encrypt connections.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Whom to trust, and what to show.
    pub certificates: Arc<ClientCertificates>,
    /// Accepts a valid certificate for any host name.
    pub skip_hostname_verification: bool,
}

/// How to connect and log in to a server.
#[derive(Clone, Debug)]
pub struct RedisAccess {
    /// The user.
    pub login: Login,
    /// How to encrypt; none for plain TCP.
    pub tls: Option<Tls>,
    /// The number of the database.
    pub db: i64,
    /// The maximum time to connect and log in.
    pub timeout: Duration,
}
