//! Times in JSON, as RFC 3339 writes them. One that may be null is an `Option`.

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use weir_limit::Micros;

/// Returns a time as text. A later one than RFC 3339 can write becomes the last.
pub fn text(time: Micros) -> String {
    let time = i64::try_from(time).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(time).unwrap_or(Timestamp::MAX).to_string()
}

/// Reads a time; one before the epoch is the epoch.
pub fn read(text: &str) -> Option<Micros> {
    let time = text.parse::<Timestamp>().ok()?;
    Some(Micros::try_from(time.as_microsecond()).unwrap_or(0))
}

pub fn serialize<T: Copy + Into<Option<Micros>>, S: Serializer>(
    time: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    (*time).into().map(text).serialize(serializer)
}

pub fn deserialize<'de, T: From<Micros> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(T::default()) };
    read(&text).map(T::from).ok_or_else(|| D::Error::custom(format!("not a time: {text:?}")))
}
