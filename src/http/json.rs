//! `/json`: the API's messages in Protobuf's JSON form.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::proto::DESCRIPTORS;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::service::RateLimit;
use crate::store::Store;

/// The shapes of the two messages, by which they are read and written.
struct Shapes {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

static SHAPES: LazyLock<Option<Shapes>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    let message = |name| pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
    Some(Shapes { request: message("RateLimitRequest")?, response: message("RateLimitResponse")? })
});

/// What `/json` answers by.
pub(super) struct Json<S> {
    pub rate_limit: RateLimit<S>,
    /// In bytes.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub timeout: Duration,
}

/// 200 where the request is within its limits, 429 where it is over, 400 for any error, as the
/// reference answers.
pub(super) async fn answer<S: Store>(State(json): State<Arc<Json<S>>>, body: Body) -> Response {
    let arrives = tokio::time::timeout(json.timeout, to_bytes(body, json.max_body));
    let body = match arrives.await {
        Ok(Ok(body)) => body,
        // The reference knows no limit here, so there is no answer of its to match.
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    let bad = |error: &dyn std::fmt::Display| {
        tracing::debug!(%error, "bad request to /json");
        bad_request()
    };
    let message = match read(&body) {
        Ok(message) => message,
        Err(error) => return bad(&error),
    };
    let sent = match json.rate_limit.read(&message) {
        Ok(sent) => sent,
        Err(error) => return bad(&error),
    };
    match json.rate_limit.answer(&sent, None).await {
        Ok(response) => write(&response),
        Err(error) => {
            tracing::debug!(%error, "no decision for a request to /json");
            bad_request()
        }
    }
}

fn bad_request() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (StatusCode::BAD_REQUEST, kind, "Bad Request\n").into_response()
}

fn internal_error() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (StatusCode::INTERNAL_SERVER_ERROR, kind, "Internal Server Error\n").into_response()
}

/// Reads a request, as the bytes gRPC would send. Field names may be in either case; unknown ones
/// are errors.
fn read(body: &[u8]) -> Result<Vec<u8>, String> {
    let shapes = SHAPES.as_ref().ok_or("the messages' shapes are missing")?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let message = DynamicMessage::deserialize(shapes.request.clone(), &mut json)
        .map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(message.encode_to_vec())
}

fn write(response: &RateLimitResponse) -> Response {
    let status = match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let Some(shapes) = SHAPES.as_ref() else { return internal_error() };
    let mut message = DynamicMessage::new(shapes.response.clone());
    let body = message
        .transcode_from(response)
        .map_err(|error| error.to_string())
        .and_then(|()| serde_json::to_vec(&message).map_err(|error| error.to_string()));
    match body {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "a response could not be written as JSON");
            internal_error()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    fn read(body: &[u8]) -> Result<RateLimitRequest, String> {
        Ok(RateLimitRequest::decode(super::read(body)?.as_slice()).unwrap())
    }

    #[test]
    fn both_cases_of_field_names_are_read() {
        let camel =
            read(br#"{"domain":"d","hitsAddend":2,"descriptors":[{"entries":[{"key":"k"}]}]}"#);
        let snake =
            read(br#"{"domain":"d","hits_addend":"2","descriptors":[{"entries":[{"key":"k"}]}]}"#);
        assert_eq!(camel.as_ref().unwrap().hits_addend, 2);
        assert_eq!(camel, snake);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bad in ["", "[]", "{", r#"{"domian":"d"}"#, r#"{"domain":1}"#, r#"{} {}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_enums_are_read() {
        let limit = r#"{"descriptors":[{"limit":{"requestsPerUnit":1,"unit":"MINUTE","unitMultiplier":3}}]}"#;
        let request = read(limit.as_bytes()).unwrap();
        let limit = request.descriptors[0].limit.as_ref().unwrap();
        assert_eq!((limit.unit, limit.unit_multiplier), (2, Some(3)));
    }
}
