//! How to reach a server: address, user, encryption.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_common::client_tls::ClientCertificates;

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

/// The user to log in as.
#[derive(Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<String>,
    /// Read for each connection, in place of `password`.
    pub password_file: Option<PathBuf>,
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
    pub certificates: Arc<ClientCertificates>,
    /// Accepts a valid certificate for any host name.
    pub skip_hostname_verification: bool,
}

/// How to connect and log in to a server.
#[derive(Clone, Debug)]
pub struct Access {
    pub login: Login,
    pub tls: Option<Tls>,
    pub db: i64,
    pub timeout: Duration,
}
