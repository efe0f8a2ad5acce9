//! Settings that may be unset, and lists.

use config::{Value, ValueKind};

use super::{Format, FormatKind, text, written};

/// A setting that may be unset: its text is empty then.
impl<F: Format> Format for Option<F> {
    type Value = Option<F::Value>;
    const KIND: FormatKind = F::KIND;
    const IS_SECRET: bool = F::IS_SECRET;

    fn parse(text: &str) -> Option<Option<F::Value>> {
        match text {
            "" => Some(None),
            text => F::parse(text).map(Some),
        }
    }
}

/// A list, or text with commas between its parts.
impl<F: Format> Format for Vec<F> {
    type Value = Vec<F::Value>;
    const KIND: FormatKind = FormatKind::List;
    const IS_SECRET: bool = F::IS_SECRET;

    fn parse(text: &str) -> Option<Vec<F::Value>> {
        parts(text).map(F::parse).collect()
    }

    fn read(value: &Value) -> Option<Vec<F::Value>> {
        match &value.kind {
            ValueKind::Array(items) => items.iter().map(F::read).collect(),
            _ => Self::parse(&text(value)?),
        }
    }

    fn shown(value: &Value, masked: impl Fn(&str) -> String) -> String {
        let items: Vec<String> = match &value.kind {
            ValueKind::Array(items) => items.iter().map(written).collect(),
            _ => parts(&written(value)).map(str::to_owned).collect(),
        };
        let shown: Vec<_> = items.iter().map(|item| masked(item)).collect();
        format!("{shown:?}")
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(move |_| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::Secret;
    use super::*;

    #[test]
    fn optional_values_and_lists_may_be_empty() {
        assert_eq!(Option::<Secret>::parse(""), Some(None));
        assert_eq!(Option::<Secret>::parse("x"), Some(Some("x".into())));
        assert_eq!(Vec::<String>::parse(""), Some(Vec::new()));
        assert_eq!(Vec::<String>::parse("a, b"), Some(vec!["a".into(), "b".into()]));
    }
}
