//! The tokens, and what each allows.

use std::path::PathBuf;

use crate::net::token_file::{SecretKind, TokenFile};
use weir_common::error::SetupError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Read,
    /// Reading, too.
    Write,
}

/// The tokens that are valid now.
#[derive(Debug)]
pub(super) struct Tokens {
    files: Vec<(TokenKind, TokenFile)>,
}

impl Tokens {
    pub fn load(read: Option<PathBuf>, write: Option<PathBuf>) -> Result<Tokens, SetupError> {
        let files = [
            (TokenKind::Write, "debug.write_token_file", write),
            (TokenKind::Read, "debug.read_token_file", read),
        ];
        let files = files.into_iter().filter_map(|(kind, setting, path)| {
            path.map(|path| Ok((kind, TokenFile::load(setting, SecretKind::Token, path)?)))
        });
        let files = files.collect::<Result<_, SetupError>>()?;
        Ok(Tokens { files })
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns what a token allows; none if it is not valid.
    pub fn find(&self, token: &[u8]) -> Option<TokenKind> {
        self.files.iter().find(|(_, file)| file.has(token)).map(|(kind, _)| *kind)
    }

    /// Reads the files again. An unusable file leaves its last token valid.
    pub fn poll(&self) {
        self.files.iter().for_each(|(_, file)| file.poll());
    }
}
