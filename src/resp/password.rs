//! The password of the port.

use crate::token_file::TokenFile;

/// What checks passwords.
#[derive(Debug, Default)]
pub enum Password {
    /// Clients need none.
    #[default]
    None,
    File(TokenFile),
    #[cfg(test)]
    Text(&'static str),
}

impl Password {
    /// Whether clients need a password.
    pub(super) fn is_needed(&self) -> bool {
        !matches!(self, Password::None)
    }

    /// Returns whether a client has sent the right one. The time this takes does not depend on how much of it is right.
    pub(super) fn matches(&self, given: &[u8]) -> bool {
        match self {
            Password::None => true,
            Password::File(file) => file.has(given),
            #[cfg(test)]
            Password::Text(text) => text.as_bytes() == given,
        }
    }

    /// Reads a password's file again.
    pub fn poll(&self) {
        if let Password::File(file) = self {
            file.poll();
        }
    }
}
