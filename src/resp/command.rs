//! The names of the commands by which Redis clients count hits against limits or read them, and the errors of these.

use super::parser::read_integer;
use weir_common::named_enum;
use weir_limiter::RequestError;

/// The domain of keys whose limit a command describes. No rule applies to them: an empty domain is invalid in requests,
/// and rejected in rules. The key of the only entry distinguishes commands.
pub(super) const DOMAIN: &str = "";

named_enum! {
    /// The commands, by their names in lower case, as metrics have them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Command, label {
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

    /// Whether the rest of a pipeline waits for the command, which reads hits over another connection to the store.
    pub fn runs_alone(self) -> bool {
        self == Command::Count
    }
}

/// Why a command is invalid or failed. Nothing is replied yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
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

pub(super) fn number<T: TryFrom<i64>>(argument: &[u8]) -> Result<T, CommandError> {
    let number = read_integer(argument).and_then(|number| T::try_from(number).ok());
    number.ok_or(CommandError::Integer)
}

pub(super) fn text(argument: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(argument).map_err(|_| CommandError::Text)
}
