//! How a command prints, and its end.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;

/// How to print an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// Returns `code`, unless the output could not be written. A reader may close the pipe, as `head` does.
pub(super) fn finish(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "error: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error() {
        let finished = |kind: io::ErrorKind| finish(Err(kind.into()), ExitCode::from(3));
        assert_eq!(finished(io::ErrorKind::BrokenPipe), ExitCode::from(3));
        assert_eq!(finished(io::ErrorKind::StorageFull), ExitCode::FAILURE);
        assert_eq!(finish(Ok(()), ExitCode::from(3)), ExitCode::from(3));
    }
}
