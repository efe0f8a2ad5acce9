//! The handshake: connects and logs in.

use std::io;

use redis::{ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError};

use super::error::ConnectError;
use super::link::Link;
use super::socket;
use crate::redis::access::{Access, Endpoint, Login};
use weir_common::secret_path::shown_path;

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
    let password = read_password(access).await?;
    match log_in(access, endpoint, password.as_deref()).await {
        Err(ConnectError::Redis(error)) if needs_login(&error) => {
            let newer = read_password(access).await?;
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
        // Not every proxy passes it on.
        .set_skip_set_lib_name()
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

/// Returns the password as it is now; none if it is empty. Waits for its file for half as long as for a server, so
/// that the error names the file.
async fn read_password(access: &Access) -> Result<Option<String>, ConnectError> {
    let Login { password, password_file, .. } = &access.login;
    let password = match password_file {
        Some(file) => {
            let limit = access.timeout / 2;
            match tokio::time::timeout(limit, file.read()).await {
                Ok(Ok(text)) => Some(text),
                Ok(Err(error)) => return Err(ConnectError::File(shown_path(file.path()), error)),
                // To look whether the path exists would take as long.
                Err(_) => {
                    let error = io::Error::other(format!("no answer within {limit:?}"));
                    return Err(ConnectError::File(file.path().display().to_string(), error));
                }
            }
        }
        None => password.clone(),
    };
    Ok(password.filter(|password| !password.is_empty()))
}

/// Returns whether a server refuses the login, or asks for one: only a new connection can help.
pub(super) fn needs_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}
