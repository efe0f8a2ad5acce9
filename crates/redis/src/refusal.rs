//! Maps error replies of Redis, to a command or to one in a script, to the `StoreError` of a charge.

use redis::{RedisError, ServerError};

use weir_store::StoreError;

/// Texts in errors: the first that is found decides. Scripts get some without their code; those of Redis 6 wrap it.
const ERRORS: [(&str, StoreError); 15] = [
    // Followed by the user's name.
    ("NOPERM", StoreError::NotPermitted),
    ("t run this command", StoreError::NotPermitted),
    ("t access at least", StoreError::NotPermitted),
    ("WRONGTYPE", StoreError::WrongType),
    ("READONLY", StoreError::ReadOnly),
    ("OOM", StoreError::OutOfMemory),
    ("NOREPLICAS", StoreError::NoReplicas),
    ("MISCONF", StoreError::NotSaved),
    ("MASTERDOWN", StoreError::MasterDown),
    ("LOADING", StoreError::Loading),
    ("BUSY", StoreError::Busy),
    ("CLUSTERDOWN", StoreError::ClusterDown),
    ("cluster is down", StoreError::ClusterDown),
    // Errors of INCRBY.
    ("not an integer", StoreError::Corrupt),
    ("would overflow", StoreError::Corrupt),
];

/// Returns the error of a charge that fails with a text of the server.
pub(super) fn store_error(text: &str) -> StoreError {
    let found = ERRORS.iter().find(|(known, _)| text.contains(known));
    found.map_or(StoreError::Unavailable, |(_, error)| *error)
}

/// Returns whether an error is about the server, and not about one command.
pub(super) fn refuses_all(error: &ServerError) -> bool {
    matches!(error.code(), "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOAUTH")
}

/// Returns an error in the server's words, if it is one of a server.
pub(super) fn words_of(error: &RedisError) -> String {
    match error.code() {
        Some(code) => {
            format!("{code} {}", error.detail().unwrap_or_default()).trim_end().to_owned()
        }
        None => error.to_string(),
    }
}
