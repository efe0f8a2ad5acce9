//! The causes of syntax errors, and what to write instead.

use granit_parser::ErrorKind;

/// What a syntax error is about, by which its fix is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The value does not fit its tag. The message quotes the value.
    Tag,
    Tab,
    MappingValue,
    Bracket,
    Quote,
    Indentation,
    Alias,
    Depth,
    Size,
    Other,
}

impl Cause {
    /// Returns the cause of an error of the parser.
    pub(super) fn of(kind: &ErrorKind) -> Cause {
        use ErrorKind::*;
        match kind {
            TabNotAllowed
            | TabInBlockIndentation
            | TabInIndentation
            | TabAtBlockScalarStart
            | TabInPlainScalar => Cause::Tab,
            MappingValueNotAllowed => Cause::MappingValue,
            UnclosedFlowCollection { .. } => Cause::Bracket,
            UnclosedQuotedScalar | InvalidQuotedScalarIndent | DocumentIndicatorInQuotedScalar => {
                Cause::Quote
            }
            InvalidIndentation
            | InvalidFlowScalarIndent
            | InvalidBlockScalarIndent
            | ZeroBlockScalarIndent => Cause::Indentation,
            RecursionLimitExceeded => Cause::Depth,
            _ => Cause::Other,
        }
    }

    /// Returns what to write instead.
    pub(super) fn help(self) -> &'static str {
        match self {
            Cause::Tag => "write a value of the tag's type, or remove the tag",
            Cause::Tab => "indent with spaces, not with a tab",
            Cause::MappingValue => "indent as the siblings are, and quote a value with `: ` in it",
            Cause::Bracket => "close it with a ] or }",
            Cause::Quote => "close the quote that is open above",
            Cause::Indentation => "indent the line with as many spaces as its siblings",
            Cause::Alias => "replace the alias with the value of its anchor",
            Cause::Depth => "use fewer levels: rule files never need that many",
            Cause::Size => "split the file into several",
            Cause::Other => "fix the YAML here: put text with special characters in quotes",
        }
    }
}
