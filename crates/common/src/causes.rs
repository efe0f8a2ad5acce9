//! Errors with what caused them.

use std::error::Error;

/// Formats an error with its causes, without repeating what an error includes of its cause.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message += &format!(": {text}");
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] std::fmt::Error);

    #[test]
    fn a_cause_is_named_once() {
        let inner = std::fmt::Error.to_string();
        assert_eq!(with_causes(&Outer("no text", std::fmt::Error)), format!("no text: {inner}"));
        let text: &'static str = Box::leak(format!("no text ({inner})").into_boxed_str());
        assert_eq!(with_causes(&Outer(text, std::fmt::Error)), text);
    }
}
