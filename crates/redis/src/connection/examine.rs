//! Checks after each connect whether a server, or a proxy, is usable: its version, its time, what weir's user may do.

use std::iter::zip;

use redis::{
    ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value, cmd, from_redis_value_ref,
};

use super::error::ConnectError;
use super::handshake::needs_login;
use crate::key::random_hex;
use crate::refusal::words_of;
use crate::round_trip::{Link, parse_time};
use weir_limit::Micros;

/// The oldest version: with `SET … KEEPTTL`, and scripts that may read the time before they write.
const MIN_REDIS_VERSION: (u32, u32) = (6, 0);

const PERMISSIONS: &str = include_str!("../lua/permissions.lua");

/// What a server reports about itself, as far as the user may ask.
#[derive(Debug)]
pub(crate) struct ServerInfo {
    pub max_memory: u64,
    pub policy: String,
    pub time: Option<Micros>,
    /// The error of a server that does not know `TIME`.
    pub no_time: Option<String>,
    /// The commands that the user may not run, and `key` if it may not use keys with the prefix.
    pub missing: Vec<String>,
}

/// Sends weir's name, and checks that a server is usable: it asks for no login, is not loading its data, nor too old,
/// of another topology, or a replica outside a cluster. `is_node`: it is to be a node of a cluster.
pub(crate) async fn examine(
    link: &mut Link,
    is_node: bool,
    prefix: &str,
) -> Result<ServerInfo, ConnectError> {
    let mut commands = Pipeline::with_capacity(8);
    for (attribute, value) in [("LIB-NAME", "weir"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
        commands.cmd("CLIENT").arg("SETINFO").arg(attribute).arg(value);
    }
    let mut names = vec!["info", "time", "ping"];
    // For the next command.
    names.extend(is_node.then_some("asking"));
    for name in &names {
        commands.cmd(&name.to_ascii_uppercase());
    }
    add_permission_checks(&mut commands, prefix, false);
    names.extend(PERMISSION_CHECKS);
    let no_scripts = check_scripts(link).await?;
    let replies =
        link.send_all(&commands).await.map_err(|error| closed("CLIENT, INFO or TIME", error))?;
    let replies: Vec<RedisResult<Value>> =
        replies.into_iter().skip(2).map(Value::extract_error).collect();
    let missing = missing_permissions(&names, &replies);
    let (info, time) = (replies.first(), replies.get(1));

    let info: String = match info {
        Some(Err(error)) if error.code() == Some("LOADING") || needs_login(error) => {
            return Err(error.clone().into());
        }
        // An access list may forbid the command. What is unusable then fails at its first use.
        Some(Ok(info)) => from_redis_value_ref(info).unwrap_or_default(),
        _ => String::new(),
    };
    // One that is renamed. Without the right to it, it is among the missing permissions.
    let no_time = time.and_then(|time| time.as_ref().err());
    let no_time = no_time.filter(|error| error.code() == Some("ERR")).map(words_of);
    let time = match time {
        Some(Ok(reply @ Value::Array(_))) => {
            Some(parse_time(reply).ok_or(ConnectError::WrongTime)?)
        }
        _ => None,
    };
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
    };
    let server = ServerInfo {
        max_memory: field("maxmemory").parse().unwrap_or(0),
        policy: field("maxmemory_policy").to_owned(),
        time,
        no_time,
        missing,
    };
    let version = field("redis_version");
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let parsed = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if !version.is_empty() && parsed < MIN_REDIS_VERSION {
        return Err(ConnectError::TooOld(version.to_owned()));
    }
    let mode = match field("redis_mode") {
        // Valkey's name.
        "" => field("server_mode"),
        mode => mode,
    };
    match mode {
        "sentinel" => return Err(ConnectError::Sentinel),
        mode @ ("cluster" | "") if !is_node => check_no_cluster(link, mode == "cluster").await?,
        _ => {}
    }
    if !is_node && field("role") == "slave" {
        return Err(ConnectError::Replica);
    }
    no_scripts.map_or(Ok(server), |error| Err(ConnectError::NoScripts(error)))
}

/// Whether scripts have what those of weir begin with. Fakes of Redis lack it, and may otherwise look like a cluster.
const HAS_STRUCT: &str = "\
    if pcall(function() return struct.pack end) then return 1 end
    return 0";

/// Checks that a server's scripts are like those of Redis. Returns the error of a server that knows none.
async fn check_scripts(link: &mut Link) -> Result<Option<String>, ConnectError> {
    match link.query::<Value>(cmd("EVAL").arg(HAS_STRUCT).arg(0)).await {
        Ok(Value::Int(0)) => Err(ConnectError::NoStruct),
        Err(error) if error.is_connection_dropped() => Err(closed("EVAL", error)),
        Err(error) if error.code() == Some("ERR") => Ok(Some(words_of(&error))),
        _ => Ok(None),
    }
}

/// Checks that a server is no node of a cluster. `claims_one`: it reports that it is.
async fn check_no_cluster(link: &mut Link, claims_one: bool) -> Result<(), ConnectError> {
    let slots = link.query::<Value>(cmd("CLUSTER").arg("SLOTS")).await;
    match slots {
        Ok(Value::Array(_)) => Err(ConnectError::Cluster),
        Err(error) if error.code() == Some("NOPERM") && claims_one => Err(ConnectError::Cluster),
        Err(error) if error.is_connection_dropped() => Err(closed("CLUSTER SLOTS", error)),
        _ if claims_one => Err(ConnectError::NoSlotsOfProxy),
        _ => Ok(()),
    }
}

/// Returns the error of commands at which a server may have closed the connection.
fn closed(commands: &'static str, error: RedisError) -> ConnectError {
    if error.is_connection_dropped() { ConnectError::Closed(commands, error) } else { error.into() }
}

const PERMISSION_CHECKS: [&str; 2] = ["eval", "evalsha"];

/// Adds commands whose replies show which permissions the user lacks.
fn add_permission_checks(commands: &mut Pipeline, prefix: &str, is_proxy: bool) {
    let key = format!("{prefix}{{permissions}}");
    let keys: &[&str] = if is_proxy { &[&key] } else { &[] };
    commands.cmd("EVAL").arg(PERMISSIONS).arg(keys.len()).arg(keys).arg(&key);
    // No script has this hash.
    commands.cmd("EVALSHA").arg("0".repeat(40)).arg(keys.len()).arg(keys);
}

fn missing_permissions(names: &[&str], replies: &[RedisResult<Value>]) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, reply) in zip(names, replies) {
        match reply {
            Err(error) if error.code() == Some("NOPERM") => missing.push((*name).to_owned()),
            Ok(list) if *name == "eval" => {
                missing.extend(from_redis_value_ref::<Vec<String>>(list).unwrap_or_default());
            }
            _ => {}
        }
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Tags that are tried: some may be of servers that fail.
const TAGS: usize = 8;

/// Keys that are tried of each tag. If its text is not hashed alone, one of two servers has all with a probability of
/// less than one in a million.
const KEYS_PER_TAG: usize = 4;

/// Writes a key that expires by itself, long after it was read.
const WRITE: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 10000)";

/// Reads the second key on the server of the first.
const READ: &str = "return redis.call('GET', KEYS[2])";

/// Checks that keys with the same text in braces are on one server behind a proxy: Envoy's redis_proxy, or twemproxy,
/// which route each command by its first key. Returns the permissions that the user lacks.
///
/// Both answer `PING` and `TIME` themselves, or close the connection at them and at `INFO` and `CLIENT`. So only what
/// they pass on is sent: `AUTH`, `EVAL`, `EVALSHA` and `DEL`.
pub(super) async fn examine_proxy(
    link: &mut Link,
    prefix: &str,
) -> Result<Vec<String>, ConnectError> {
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
    let written: Vec<&String> =
        zip(&tags, &replies).filter_map(|(tag, reply)| reply.is_ok().then_some(tag)).collect();
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
