//! Splits DER into elements.

/// The tag of a sequence.
pub(super) const SEQUENCE: u8 = 0x30;

/// Splits an element with this tag off. Returns its content, and what follows it.
pub(super) fn expect(wanted: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == wanted).then_some((content, rest))
}

/// Splits an element off. Returns its tag, its content, and what follows it.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of bytes of the length.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}
