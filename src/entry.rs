//! What descriptors are made of.

/// A descriptor's entry: its key and its value.
pub type Entry<'a> = (&'a str, &'a str);
