//! What `weir block`, `allow` and `limit` do when the server warns about a change: go on, stop, or ask the user.

use std::io::{self, BufRead, IsTerminal, Write};

use super::text::warn;
use crate::print::line;

const MAX_LINE_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnWarnings {
    Continue,
    Deny,
    Ask,
}

impl OnWarnings {
    /// Returns what `--deny-warnings` asks for, else what fits where the command runs. A dry run needs no question.
    pub fn new(deny: bool, is_dry_run: bool) -> OnWarnings {
        // Without either, nobody reads the question or answers it.
        let is_terminal = || io::stdin().is_terminal() && io::stderr().is_terminal();
        match (deny, is_dry_run) {
            (true, _) => OnWarnings::Deny,
            (false, false) if is_terminal() => OnWarnings::Ask,
            (false, _) => OnWarnings::Continue,
        }
    }
}

/// Shows warnings, and asks whether to make the change. Returns whether the answer is yes.
pub(super) fn confirm(warnings: &[String], input: impl BufRead, err: &mut dyn Write) -> bool {
    warnings.iter().for_each(|warning| warn(err, warning));
    // Standard error may be closed.
    let _ = write!(err, "Make this change? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let is_read = input.take(MAX_LINE_BYTES).read_line(&mut answer).is_ok();
    let is_yes = is_read && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if !is_yes {
        let _ = line(err, "nothing has changed");
    }
    is_yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_consent() {
        let asked = |answer: &str| {
            let mut err = Vec::new();
            let warnings = ["unknown domain 'a\u{1b}': no rule has it".to_owned()];
            let is_yes = confirm(&warnings, answer.as_bytes(), &mut err);
            (is_yes, String::from_utf8(err).unwrap())
        };
        let question =
            "warning: unknown domain 'a\\u001b': no rule has it\nMake this change? [y/N] ";
        for yes in ["y\n", "Y\n", " yes \n", "YES\r\n", "y"] {
            assert_eq!(asked(yes), (true, question.to_owned()), "{yes:?}");
        }
        for no in ["\n", "n\n", "no\n", "", "yep\n", "j\n"] {
            assert_eq!(asked(no), (false, format!("{question}nothing has changed\n")), "{no:?}");
        }
    }

    #[test]
    fn a_dry_run_asks_nothing_and_is_denied_as_others() {
        assert_eq!(OnWarnings::new(false, true), OnWarnings::Continue);
        for is_dry_run in [true, false] {
            assert_eq!(OnWarnings::new(true, is_dry_run), OnWarnings::Deny);
        }
    }
}
