//! Opens a connection to a Redis server, with TLS if that is configured, and logs in.

use std::io;

use futures_util::future::select_ok;
use redis::{ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::error::ConnectError;
use crate::options::{Endpoint, Login, RedisAccess, Tls};
use crate::round_trip::{Link, Socket};
use weir_client::tls::{ClientTls, ClientTlsError};
use weir_common::secret::shown_path;

/// Connects and logs in; again if the server refuses the password and its file has another one by now.
pub(crate) async fn connect(
    access: &RedisAccess,
    endpoint: &Endpoint,
) -> Result<Link, ConnectError> {
    let credentials = read_credentials(access).await?;
    match log_in(access, endpoint, &credentials).await {
        Err(ConnectError::Redis(error)) if needs_login(&error) => {
            let newer = read_credentials(access).await?;
            if newer == credentials {
                return Err(error.into());
            }
            log_in(access, endpoint, &newer).await
        }
        connected => connected,
    }
}

async fn log_in(
    access: &RedisAccess,
    endpoint: &Endpoint,
    (username, password): &Credentials,
) -> Result<Link, ConnectError> {
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        // Not every proxy passes it on.
        .set_skip_set_lib_name()
        .set_db(access.db);
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let connecting = async {
        let socket = open(access, endpoint).await?;
        Ok(Link::log_in(socket, &settings).await?)
    };
    let connected = tokio::time::timeout(access.timeout, connecting).await;
    connected.unwrap_or(Err(ConnectError::TimedOut(access.timeout)))
}

/// The user name and the password.
type Credentials = (Option<String>, Option<String>);

/// Returns the credentials as they are now, without what is empty. Waits for its file for half as long as for a server,
/// so that the error names the file.
async fn read_credentials(access: &RedisAccess) -> Result<Credentials, ConnectError> {
    let Login { username, password, password_file } = &access.login;
    let (of_file, password) = match password_file {
        Some(file) => {
            let limit = access.timeout / 2;
            match tokio::time::timeout(limit, file.read()).await {
                Ok(Ok((username, password))) => (username, Some(password)),
                Ok(Err(error)) => return Err(ConnectError::File(shown_path(file.path()), error)),
                // To look whether the path exists would take as long.
                Err(_) => {
                    let error = io::Error::other(format!("no answer within {limit:?}"));
                    return Err(ConnectError::File(file.path().display().to_string(), error));
                }
            }
        }
        None => (None, password.clone()),
    };
    let is_given = |text: &String| !text.is_empty();
    let username = username.clone().or(of_file.filter(is_given));
    Ok((username, password.filter(is_given)))
}

/// Returns whether a server refuses the login, or asks for one: only a new connection can help.
pub(super) fn needs_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// Returns whether an error ends a connection: it is broken, or needs a login, with which only a new one starts.
pub(crate) fn ends_session(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || needs_login(error)
}

async fn open(access: &RedisAccess, endpoint: &Endpoint) -> Result<Socket, ConnectError> {
    match (endpoint, &access.tls) {
        (Endpoint::Unix(path), _) => {
            Ok(Box::pin(UnixStream::connect(path).await.map_err(RedisError::from)?))
        }
        (Endpoint::Tcp(host, port), None) => Ok(Box::pin(connect_tcp(host, *port).await?)),
        (Endpoint::Tcp(host, port), Some(tls)) => encrypted(tls, host, *port).await,
    }
}

/// Connects to the first address of a host that answers.
async fn connect_tcp(host: &str, port: u16) -> RedisResult<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let attempts: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::other(format!("{host} has no address")).into());
    }
    let (stream, _) = select_ok(attempts).await?;
    // Packets are small, and requests wait for them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn encrypted(tls: &Tls, host: &str, port: u16) -> Result<Socket, ConnectError> {
    let pem = tls.certificates.read_in_background().await;
    let pem = pem.map_err(|error| ConnectError::Certificates(error.to_string()))?;
    let client = ClientTls::new(&pem, host, tls.skip_hostname_verification);
    let client = client.map_err(|error| match error {
        ClientTlsError::Name(_) => ConnectError::Redis(io::Error::other(error).into()),
        ClientTlsError::Certificates(error) => ConnectError::Certificates(error),
    })?;
    let stream = connect_tcp(host, port).await?;
    Ok(Box::pin(client.connect(stream).await.map_err(RedisError::from)?))
}
