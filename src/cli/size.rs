//! Sizes as arguments: written as in settings.

use crate::settings::format::{Bytes, Format};

/// Parses `64MiB`, `1MB` or a number of bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let size = Bytes::<u64>::parse(text);
    size.ok_or_else(|| format!("write {}", Bytes::<u64>::KIND.expected()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_settings() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        let error = parse_size("64 parsecs").unwrap_err();
        assert_eq!(error, "write a size such as 64KiB, 1MiB, or a number of bytes");
    }
}
