//! Whether a proxy can be used: Envoy's redis_proxy, or twemproxy, which route each command by its first key.
//!
//! Both answer `PING` and `TIME` themselves, or close the connection at them and at `INFO` and `CLIENT`. So only
//! what they pass on is sent: `AUTH`, `EVAL`, `EVALSHA` and `DEL`.

use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use super::error::ConnectError;
use super::examine::{PERMISSION_CHECKS, add_permission_checks, missing_permissions};
use super::link::Link;
use crate::redis::key::random_hex;

/// Tags that are tried: some may be of servers that fail.
const TAGS: usize = 8;

/// Keys that are tried of each tag. If its text is not hashed alone, one of two servers has all with a probability of
/// less than one in a million.
const KEYS_PER_TAG: usize = 4;

/// Writes a key that expires by itself, long after it was read.
const WRITE: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 10000)";

/// Reads the second key on the server of the first.
const READ: &str = "return redis.call('GET', KEYS[2])";

/// Checks that keys with the same text in braces are on one server. Returns the permissions that the user lacks.
///
/// # Errors
///
/// They are not, no server answers, or the servers redirect.
pub(super) async fn examine(link: &mut Link, prefix: &str) -> Result<Vec<String>, ConnectError> {
    // Random ones, so that all keys of a tag are far from each other.
    let tags: [String; TAGS] = std::array::from_fn(|_| format!("{prefix}{{{}}}", random_hex()));
    let mut writes = Pipeline::with_capacity(TAGS + PERMISSION_CHECKS.len());
    for tag in &tags {
        writes.cmd("EVAL").arg(WRITE).arg(1).arg(tag);
    }
    add_permission_checks(&mut writes, prefix, true);
    let replies = link.send_all(&writes).await?;
    let mut replies: Vec<_> = replies.into_iter().map(Value::extract_error).collect();
    let missing = missing_permissions(&PERMISSION_CHECKS, &replies.split_off(TAGS));

    let redirects = |error: &RedisError| {
        matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
    };
    if replies.iter().any(|reply| reply.as_ref().is_err_and(redirects)) {
        return Err(ConnectError::Redirects);
    }
    let written: Vec<&String> = std::iter::zip(&tags, &replies)
        .filter(|(_, reply)| reply.is_ok())
        .map(|answered| answered.0)
        .collect();
    if written.is_empty() {
        replies.swap_remove(0)?;
    }
    let mut reads = Pipeline::with_capacity(TAGS * KEYS_PER_TAG);
    for tag in written {
        for _ in 1..KEYS_PER_TAG {
            reads.cmd("EVAL").arg(READ).arg(2).arg(format!("{tag}{}", random_hex())).arg(tag);
        }
    }
    for reply in link.send_all(&reads).await? {
        if reply.extract_error()? == Value::Nil {
            return Err(ConnectError::HashTags);
        }
    }
    Ok(missing)
}
