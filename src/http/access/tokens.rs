//! The tokens, and what each allows.

use std::path::PathBuf;

use crate::token_file::TokenFile;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Read,
    /// Reading, too.
    Write,
}

/// The tokens that are valid now.
#[derive(Debug)]
pub(super) struct Tokens(Vec<(TokenKind, TokenFile)>);

impl TokenKind {
    pub fn name(self) -> &'static str {
        match self {
            TokenKind::Read => "read token",
            TokenKind::Write => "write token",
        }
    }
}

impl Tokens {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// One cannot be used. The message names the setting, the file, the cause and the fix.
    pub fn load(read: Option<PathBuf>, write: Option<PathBuf>) -> Result<Tokens, String> {
        let files = [
            (TokenKind::Write, "debug.write_token_file", write),
            (TokenKind::Read, "debug.read_token_file", read),
        ];
        let files = files.into_iter().filter_map(|(kind, setting, path)| {
            path.map(|path| Ok((kind, TokenFile::load(setting, path)?)))
        });
        files.collect::<Result<_, _>>().map(Tokens)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what a token allows; none if it is not valid.
    pub fn find(&self, token: &[u8]) -> Option<TokenKind> {
        self.0.iter().find(|(_, file)| file.has(token)).map(|(kind, _)| *kind)
    }

    /// Reads the files again. An unusable file leaves its last token valid.
    pub fn poll(&self) {
        self.0.iter().for_each(|(_, file)| file.poll());
    }
}
