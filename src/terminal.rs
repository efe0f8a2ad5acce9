//! What a terminal shows.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether to print colors: on a terminal, unless `NO_COLOR` is set to anything.
pub fn has_colors(stream: &impl IsTerminal) -> bool {
    may_color(stream.is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

fn may_color(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_and_no_color_disables_them() {
        assert!(may_color(true, None));
        assert!(may_color(true, Some(OsStr::new(""))));
        assert!(!may_color(true, Some(OsStr::new("1"))));
        assert!(!may_color(false, None));
    }
}
