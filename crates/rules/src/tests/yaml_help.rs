//! The fixes that YAML errors suggest.

use super::file;
use crate::{Position, RuleOptions, RuleSet};

#[test]
fn every_syntax_error_suggests_a_fix() {
    let quotes = "fix the YAML here: put text with special characters in quotes";
    let mapping = "indent as the siblings are, and quote a value with `: ` in it";
    for (text, line, column, help) in [
        ("domain: *\n", 1, 9, quotes),
        ("domain: @x\n", 1, 9, quotes),
        ("domain: %x\n", 1, 9, quotes),
        ("domain: a: b\n", 1, 10, mapping),
        ("domain: a\n descriptors: []\n", 2, 13, mapping),
        ("domain: \"a\ndescriptors: []\n", 2, 1, "close the quote that is open above"),
        ("domain: a\ndescriptors: [{\n", 2, 15, "close it with a ] or }"),
        // Where the tab is, not where the parser stopped.
        ("- key: a\n\trate_limit:\n", 2, 1, "indent with spaces, not with a tab"),
        ("domain:\n\ta\n", 2, 1, "indent with spaces, not with a tab"),
        // The words of a value say nothing about its error.
        ("a: !!int 'stable'\nb: 2\n\tc: 1\n", 1, 10, "write a value of the tag's type"),
        ("a: \"b\n", 2, 1, "close the quote that is open above"),
        ("a: &a [*a]\n", 1, 8, "replace the alias"),
    ] {
        let (_, problems) =
            RuleSet::compile(&[file("a.yaml", text)], &RuleOptions::default(), None);
        let [problem] = &problems[..] else { panic!("{text:?}: {problems:?}") };
        assert_eq!(problem.position, Some(Position::in_text(line, column)), "{text:?} {problem}");
        assert!(problem.help.starts_with(help), "{text:?} {}", problem.help);
    }
}
