//! The commands that charge or read the store.

mod check;
mod count;
mod reduce;
mod throttle;

use std::net::SocketAddr;
use std::time::Instant;

use self::reduce::Reduce;
use super::Resp;
use super::reply::Replies;
use weir_common::named_enum;
use weir_limiter::RequestError;
use weir_store::{States, Store};

/// The domain of keys that no rule applies to: in requests an empty domain is invalid, and rules with one are rejected.
/// The key of the only entry distinguishes commands.
const DOMAIN: &str = "";

named_enum! {
    /// The commands, by their names in lower case, as metrics have them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Command, label {
        Check = "weir.check",
        CheckAll = "weir.checkall",
        Count = "weir.count",
        Throttle = "cl.throttle",
        Reduce = "rl.reduce",
        PReduce = "rl.preduce",
        Get = "rl.get",
        PGet = "rl.pget",
    }
}

impl Command {
    pub fn named(name: &str) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.label().eq_ignore_ascii_case(name))
    }

    /// Whether a pipeline waits before and after the command: it reads states over a connection of its own.
    pub fn runs_alone(self) -> bool {
        self == Command::Count
    }

    pub async fn run<S: Store + States>(
        self,
        resp: &Resp<S>,
        client: Option<SocketAddr>,
        arguments: &[&[u8]],
        replies: &mut Replies,
    ) {
        resp.stats.count(self);
        let started = Instant::now();
        let replied = match self {
            Command::Check => check::check(resp, arguments, replies).await,
            Command::CheckAll => check::check_all(resp, arguments, replies).await,
            Command::Count => count::count(resp, arguments, replies).await,
            Command::Throttle => throttle::throttle(resp, arguments, replies).await,
            Command::Reduce => Reduce::REDUCE.run(resp, arguments, replies).await,
            Command::PReduce => Reduce::PREDUCE.run(resp, arguments, replies).await,
            Command::Get => Reduce::GET.run(resp, arguments, replies).await,
            Command::PGet => Reduce::PGET.run(resp, arguments, replies).await,
        };
        if let Err(error) = replied {
            use CommandError::{Count, Integer, Syntax, Text};
            // Other errors are counted where they are found, or are not the client's.
            if matches!(error, Count(_) | Integer | Syntax | Text) {
                resp.rate_limit.count_unreadable(client, &error);
            }
            replies.error(&error.to_string());
        }
        if self != Command::Count {
            resp.stats.decisions.record(started.elapsed().as_micros() as u64);
        }
    }
}

/// Why a command is invalid or failed. Nothing is replied yet.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("ERR wrong number of arguments for '{0}' command")]
    Count(&'static str),
    #[error("ERR value is not an integer or out of range")]
    Integer,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR AT needs store.redis.clock = caller, or a store that is not Redis")]
    At,
    #[error("ERR the domain and keys must be UTF-8")]
    Text,
    #[error("ERR {0}")]
    Request(RequestError),
    #[error("ERR {0}")]
    Span(String),
    #[error("ERR store unavailable")]
    Store,
}

impl From<RequestError> for CommandError {
    fn from(error: RequestError) -> CommandError {
        match error {
            RequestError::Store(_) => CommandError::Store,
            other => CommandError::Request(other),
        }
    }
}

fn text(argument: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(argument).map_err(|_| CommandError::Text)
}
