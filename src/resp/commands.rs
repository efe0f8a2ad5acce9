//! The commands.

mod check;
mod count;

use super::Resp;
use super::parser::Arguments;
use super::reply::Replies;
use super::session::{After, Session};
use crate::limiter::RequestError;
use crate::store::{States, Store};

/// Longer names are no command.
const MAX_NAME_BYTES: usize = 32;

/// Answers a request.
pub(super) async fn answer<S: Store + States>(
    resp: &Resp<S>,
    session: &mut Session,
    request: &[u8],
    arguments: &Arguments,
    replies: &mut Replies,
) -> After {
    let arguments: smallvec::SmallVec<[&[u8]; 16]> =
        arguments.iter().map(|range| &request[range.clone()]).collect();
    // An empty request gets no reply.
    let [name, arguments @ ..] = &*arguments else { return After::Continue };
    let mut upper = [0; MAX_NAME_BYTES];
    let name = upper_case(name, &mut upper);
    if let Some(after) = session.answer(name, arguments, &resp.password, replies) {
        return after;
    }
    match name {
        "WEIR.CHECK" => check::check(resp, arguments, replies).await,
        "WEIR.CHECKALL" => check::check_all(resp, arguments, replies).await,
        "WEIR.COUNT" => count::count(resp, arguments, replies).await,
        _ => replies.error(&format!("ERR unknown command '{name}'")),
    }
    After::Continue
}

/// Writes a name in upper case; what is no name becomes a text that is no command.
fn upper_case<'b>(name: &[u8], upper: &'b mut [u8; MAX_NAME_BYTES]) -> &'b str {
    let Some(upper) = upper.get_mut(..name.len()) else { return "(too long)" };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    std::str::from_utf8(upper).unwrap_or("(not UTF-8)")
}

/// Why a command is refused.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("ERR wrong number of arguments for '{0}' command")]
    Count(&'static str),
    #[error("ERR value is not an integer or out of range")]
    Integer,
    #[error("ERR arguments must be UTF-8")]
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

/// Reads an argument as text.
fn text(argument: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(argument).map_err(|_| CommandError::Text)
}
