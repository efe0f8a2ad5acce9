//! Protobuf's JSON form of the API's messages.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::proto::DESCRIPTORS;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// The descriptors of the two messages.
struct MessageTypes {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

static MESSAGE_TYPES: LazyLock<Option<MessageTypes>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    let message = |name| pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
    Some(MessageTypes {
        request: message("RateLimitRequest")?,
        response: message("RateLimitResponse")?,
    })
});

const NO_MESSAGE_TYPES: &str = "the descriptors of the messages are missing";

/// Converts a request from JSON to the bytes that gRPC would send. Field names may be in camelCase
/// or snake_case; unknown ones are errors.
///
/// # Errors
///
/// The cause, with its position in the body.
pub(crate) fn decode(body: &[u8]) -> Result<Vec<u8>, String> {
    let types = MESSAGE_TYPES.as_ref().ok_or(NO_MESSAGE_TYPES)?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let message = DynamicMessage::deserialize(types.request.clone(), &mut json)
        .map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(message.encode_to_vec())
}

/// Converts a response to JSON.
///
/// # Errors
///
/// The response has no form in JSON.
pub(crate) fn encode(response: &RateLimitResponse) -> Result<Vec<u8>, String> {
    let types = MESSAGE_TYPES.as_ref().ok_or(NO_MESSAGE_TYPES)?;
    let mut message = DynamicMessage::new(types.response.clone());
    message.transcode_from(response).map_err(|error| error.to_string())?;
    serde_json::to_vec(&message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    fn decode(body: &[u8]) -> Result<RateLimitRequest, String> {
        Ok(RateLimitRequest::decode(super::decode(body)?.as_slice()).unwrap())
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
    fn enums_are_accepted_by_name() {
        let limit = r#"{"descriptors":[{"limit":{"requestsPerUnit":1,"unit":"MINUTE","unitMultiplier":3}}]}"#;
        let request = decode(limit.as_bytes()).unwrap();
        let limit = request.descriptors[0].limit.as_ref().unwrap();
        assert_eq!((limit.unit, limit.unit_multiplier), (2, Some(3)));
    }
}
