//! How to reach Redis, from settings: plain data, checked as a whole.

mod read;
#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use read::read;
pub use url::Server;

/// What kind of servers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Single,
    Sentinel,
    Cluster,
}

/// How keys are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Weir,
    Reference,
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Server,
    Caller,
}

/// As whom to log in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<String>,
    /// Read anew for each connection; never together with `password`.
    pub password_file: Option<PathBuf>,
}

impl fmt::Debug for Login {
    /// Leaves out the username too: it may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// How connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whom to trust; none: the system's roots.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    pub skip_hostname_verification: bool,
}

/// The servers of one store.
#[derive(Clone, Debug)]
pub struct Redis {
    pub topology: Topology,
    /// One server, the sentinels, or some nodes of a cluster.
    pub servers: Vec<Server>,
    pub login: Login,
    pub db: u32,
    pub key_prefix: String,
    pub layout: Layout,
    pub clock: Clock,
    pub connect_timeout: Duration,
    /// Also to the sentinels.
    pub tls: Option<Tls>,
    /// The master's name, with sentinels.
    pub master_name: String,
    /// To the sentinels themselves.
    pub sentinel_login: Login,
    /// A connection whose round trip takes longer is down.
    pub slow_after: Duration,
    /// The longest wait before a server that fails is tried again.
    pub probe_max: Duration,
}
