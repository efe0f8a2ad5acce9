//! Reads secrets that clients must send (operators' tokens, the password of Redis clients) from files that can change.

use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use weir_common::error::SetupError;
use weir_common::file_reads::FileReads;
use weir_common::named_enum;
use weir_common::secret::shown_path;

const MAX_TOKEN_BYTES: u64 = 4 << 10;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SecretKind, name {
        /// Sent in a header.
        Token = "token",
        /// Sent as a text of any characters but control characters.
        Password = "password",
    }
}

pub struct TokenFile {
    setting: &'static str,
    kind: SecretKind,
    path: PathBuf,
    reads: FileReads,
    state: Mutex<TokenState>,
}

struct TokenState {
    token: TokenHash,
    /// Why the file could not be used when it was read last.
    error: Option<SetupError>,
}

/// The hash of a token. Comparing two takes the same time wherever they differ.
type TokenHash = blake3::Hash;

impl fmt::Debug for TokenFile {
    /// Omits the hash, from which a weak token could be guessed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.setting)
    }
}

impl TokenFile {
    /// Reads the file that a setting names. An error never quotes a secret that is given in place of the path.
    pub fn load(
        setting: &'static str,
        kind: SecretKind,
        path: PathBuf,
    ) -> Result<TokenFile, SetupError> {
        let reads = FileReads::new(MAX_TOKEN_BYTES);
        let read = read(kind, &path, &reads).map_err(|error| {
            let (path, kind) = (shown_path(&path), kind.name());
            let help = format!("write a {kind} into it, such as `openssl rand -hex 32` prints");
            error.map(|error| format!("{setting}: {path}: {error}; {help}"))
        });
        let state = Mutex::new(TokenState { token: read?, error: None });
        Ok(TokenFile { setting, kind, path, reads, state })
    }

    pub fn has(&self, token: &[u8]) -> bool {
        self.state.lock().token == blake3::hash(token)
    }

    /// Reads the file again. An unusable one leaves its last token valid.
    pub fn poll(&self) {
        let read = read(self.kind, &self.path, &self.reads);
        let (setting, path) = (self.setting, self.path.display());
        let mut state = self.state.lock();
        match read {
            Ok(token) => {
                state.error = None;
                if std::mem::replace(&mut state.token, token) != token {
                    tracing::info!(setting, %path, "secret reloaded");
                }
            }
            Err(error) if state.error.as_ref() != Some(&error) => {
                tracing::error!(
                    setting, %path, %error,
                    "changed secret file is unusable: the previous secret stays valid"
                );
                state.error = Some(error);
            }
            Err(_) => {}
        }
    }
}

impl SecretKind {
    /// Returns the error in the characters of a secret.
    fn check(self, secret: &[u8]) -> Result<(), String> {
        match self {
            SecretKind::Token if !secret.iter().all(u8::is_ascii_graphic) => {
                Err("the token has spaces, or characters that are not ASCII".to_owned())
            }
            SecretKind::Password if secret.iter().any(u8::is_ascii_control) => {
                Err("the password has several lines, or control characters".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Reads the token in a file, without the white space around it.
fn read(kind: SecretKind, path: &Path, reads: &FileReads) -> Result<TokenHash, SetupError> {
    let text = reads.read(path).map_err(|error| SetupError::Unavailable(error.to_string()))?;
    let token = text.trim_ascii();
    if text.len() as u64 > MAX_TOKEN_BYTES {
        let message = format!("the file is larger than {MAX_TOKEN_BYTES} bytes");
        return Err(SetupError::Invalid(message));
    }
    if token.is_empty() {
        return Err(SetupError::Invalid("the file is empty".to_owned()));
    }
    kind.check(token).map_err(SetupError::Invalid)?;
    Ok(blake3::hash(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(kind: SecretKind, text: &str) -> Result<TokenFile, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, text).unwrap();
        let loaded = TokenFile::load("test.file", kind, path.clone());
        loaded.map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn a_fifo_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = TokenFile::load("test.file", SecretKind::Token, path).unwrap_err().to_string();
        assert!(error.contains("it is a FIFO and not a regular file"), "{error}");
    }

    #[test]
    fn a_password_has_any_characters_but_control_characters() {
        let password = "correct horse, Batterie ñ \"'";
        let file = load(SecretKind::Password, &format!("  {password}\r\n")).unwrap();
        assert!(file.has(password.as_bytes()) && !file.has(b"correct horse"));
        assert_eq!(
            load(SecretKind::Password, "one\ntwo\n").unwrap_err(),
            "test.file: FILE: the password has several lines, or control characters; write a \
             password into it, such as `openssl rand -hex 32` prints"
        );
        let secret = TokenFile::load("test.file", SecretKind::Token, "S3cret".into()).unwrap_err();
        assert!(secret.to_string().starts_with("test.file: *** (not a file): No such file"));
        assert!(load(SecretKind::Password, " \n").unwrap_err().contains("the file is empty"));
        assert!(load(SecretKind::Token, "a b").unwrap_err().contains("the token has spaces"));
    }
}
