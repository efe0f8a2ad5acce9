//! The entries of descriptors.

/// A descriptor entry: its key and its value.
pub type Entry<'a> = (&'a str, &'a str);
