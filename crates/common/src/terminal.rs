//! What a terminal shows.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether to print colors: on a terminal that has them, unless `NO_COLOR` is set to anything. See
/// <https://no-color.org>.
pub fn has_colors(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name);
    may_color(stream.is_terminal(), variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn may_color(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_and_no_color_disables_them() {
        let [empty, one, xterm, dumb] = ["", "1", "xterm", "dumb"].map(OsStr::new);
        assert!(may_color(true, None, None));
        assert!(may_color(true, Some(empty), Some(xterm)));
        assert!(!may_color(true, Some(one), None));
        assert!(!may_color(true, None, Some(dumb)));
        assert!(!may_color(false, None, None));
    }
}
