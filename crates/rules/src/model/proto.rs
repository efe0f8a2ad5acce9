//! The Protobuf messages of rules that an xDS management server sends, and their fields as YAML scalars of a rule file.

mod generated {
    #![allow(clippy::all, missing_docs, rustdoc::all)]
    include!("../../../../proto/generated/ratelimit.config.ratelimit.v3.rs");
}

pub use generated::*;

use std::borrow::Cow;

use crate::syntax::tree::Style;

/// The value of a field, as the text of a scalar and how to interpret it; none if it is not set.
pub(crate) struct FieldValue(pub Option<(Cow<'static, str>, Style)>);

/// A text that is empty is not set.
impl From<String> for FieldValue {
    fn from(text: String) -> FieldValue {
        FieldValue((!text.is_empty()).then(|| (text.into(), Style::Text)))
    }
}

impl From<Option<bool>> for FieldValue {
    fn from(value: Option<bool>) -> FieldValue {
        FieldValue(value.map(|value| (if value { "true" } else { "false" }.into(), Style::Plain)))
    }
}

/// A flag that is false is not set.
impl From<bool> for FieldValue {
    fn from(value: bool) -> FieldValue {
        value.then_some(true).into()
    }
}

impl From<Option<u32>> for FieldValue {
    fn from(value: Option<u32>) -> FieldValue {
        FieldValue(value.map(|value| (value.to_string().into(), Style::Plain)))
    }
}

/// A duration in microseconds. A negative one is passed on, for the reader to reject.
impl From<Option<prost_types::Duration>> for FieldValue {
    fn from(value: Option<prost_types::Duration>) -> FieldValue {
        let text = value.map(|value| match (value.seconds, value.nanos / 1_000) {
            (seconds, 0) => format!("{seconds}s"),
            (seconds, micros) => format!("{seconds}s{micros}us"),
        });
        FieldValue(text.map(|text| (text.into(), Style::Text)))
    }
}
