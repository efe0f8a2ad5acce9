//! The byte layouts exchanged with the scripts.

#[cfg(test)]
mod tests;
