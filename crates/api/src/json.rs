//! Converts messages of Envoy's rate-limit API from and to Protobuf's JSON form, for `/json` and `weir hit`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::proto::DESCRIPTORS;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok());

/// The name of the message that `/json` receives.
pub const RATE_LIMIT_REQUEST: &str = "envoy.service.ratelimit.v3.RateLimitRequest";

fn message_type(name: &str) -> Result<MessageDescriptor, String> {
    let found = POOL.as_ref().and_then(|pool| pool.get_message_by_name(name));
    found.ok_or_else(|| format!("the descriptor of {name} is missing"))
}

/// Converts a message of this name from JSON to the bytes that gRPC would send. Field names may be in
/// camelCase or snake_case; unknown ones and repeated ones are errors.
///
/// # Errors
/// The cause, with its position in the body.
pub fn decode_message(name: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let message = DynamicMessage::deserialize(message_type(name)?, &mut json)
        .map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    serde_json::from_slice::<UniqueFields>(body).map_err(|error| error.to_string())?;
    Ok(message.encode_to_vec())
}

/// A value in which no object has a field twice, in the same or in both spellings.
struct UniqueFields;

impl<'de> Deserialize<'de> for UniqueFields {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<UniqueFields, D::Error> {
        json.deserialize_any(UniqueFields)
    }
}

impl<'de> Visitor<'de> for UniqueFields {
    type Value = UniqueFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<UniqueFields, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueFields, A::Error> {
        while items.next_element::<UniqueFields>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<UniqueFields, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, UniqueFields)) = fields.next_entry::<String, UniqueFields>()? {
            if !names.insert(name.replace('_', "").to_ascii_lowercase()) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
        }
        Ok(self)
    }
}

/// Converts a response of `/json` to JSON. What is 0 or empty is omitted.
pub fn encode(response: &RateLimitResponse) -> Result<Vec<u8>, String> {
    let message = dynamic("envoy.service.ratelimit.v3.RateLimitResponse", response)?;
    serde_json::to_vec(&message).map_err(|error| error.to_string())
}

/// Converts a message of this name to JSON, also what is 0 or empty.
pub fn encode_whole(name: &str, message: &impl Message) -> Result<Vec<u8>, String> {
    let mut json = serde_json::Serializer::new(Vec::new());
    let options = SerializeOptions::new().skip_default_fields(false);
    dynamic(name, message)?
        .serialize_with_options(&mut json, &options)
        .map_err(|error| error.to_string())?;
    Ok(json.into_inner())
}

fn dynamic(name: &str, message: &impl Message) -> Result<DynamicMessage, String> {
    let mut dynamic = DynamicMessage::new(message_type(name)?);
    dynamic.transcode_from(message).map_err(|error| error.to_string())?;
    Ok(dynamic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    fn decode(body: &[u8]) -> Result<RateLimitRequest, String> {
        Ok(RateLimitRequest::decode(decode_message(RATE_LIMIT_REQUEST, body)?.as_slice()).unwrap())
    }

    #[test]
    fn camel_case_and_snake_case_field_names_are_accepted() {
        let camel =
            decode(br#"{"domain":"d","hitsAddend":2,"descriptors":[{"entries":[{"key":"k"}]}]}"#);
        let snake = decode(
            br#"{"domain":"d","hits_addend":"2","descriptors":[{"entries":[{"key":"k"}]}]}"#,
        );
        assert_eq!(camel.as_ref().unwrap().hits_addend, 2);
        assert_eq!(camel, snake);
    }

    #[test]
    fn invalid_requests_are_rejected() {
        for bad in ["", "[]", "{", r#"{"domian":"d"}"#, r#"{"domain":1}"#, r#"{} {}"#] {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_field_that_is_given_twice_is_rejected() {
        for (bad, field) in [
            (r#"{"domain":"a","domain":"a"}"#, "domain"),
            (r#"{"descriptors":[{"entries":[{"key":"a","value":"b","key":"a"}]}]}"#, "key"),
            (r#"{"hitsAddend":1,"hits_addend":1}"#, "hits_addend"),
            (r#"{"descriptors":[{"entries":[],"entries":null}]}"#, "entries"),
        ] {
            let error = decode(bad.as_bytes()).unwrap_err();
            assert!(error.starts_with(&format!("duplicate field `{field}` at line 1")), "{error}");
        }
        let all = r#"{"descriptors":[{"entries":[],"isNegativeHits":false,"limit":null},{"entries":[]}],"hitsAddend":1.0}"#;
        assert_eq!(decode(all.as_bytes()).unwrap().descriptors.len(), 2);
    }

    #[test]
    fn enums_are_accepted_by_name() {
        let limit = r#"{"descriptors":[{"limit":{"requestsPerUnit":1,"unit":"MINUTE","unitMultiplier":3}}]}"#;
        let request = decode(limit.as_bytes()).unwrap();
        let limit = request.descriptors[0].limit.as_ref().unwrap();
        assert_eq!((limit.unit, limit.unit_multiplier), (2, Some(3)));
    }
}
