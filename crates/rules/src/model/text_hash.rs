//! The hash of a text by which rules and listed values are found.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Hashes the concatenation of texts. SipHash reads bytes as one stream, so boundaries between the texts
/// do not matter. Its key may be public, because only rules are inserted.
pub(crate) fn hash(texts: &[&str]) -> u64 {
    let mut hasher = SipHasher13::new();
    texts.iter().for_each(|text| hasher.write(text.as_bytes()));
    hasher.finish()
}
