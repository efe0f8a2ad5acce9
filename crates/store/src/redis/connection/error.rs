//! Why a connection attempt failed.

use std::path::PathBuf;
use std::time::Duration;

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
