//! Errors of `/json` and `/v1/budget`: a bare 400, as of envoyproxy/ratelimit (the reference), or JSON with a cause.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use weir_common::escape::escape;
use weir_common::named_enum;
use weir_common::truncate::truncated;
use weir_limiter::RequestError;

/// The longest message: it may quote the request.
const MAX_MESSAGE_BYTES: usize = 500;

named_enum! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum JsonErrors, name {
        /// 400 `Bad Request` for every failure that envoyproxy/ratelimit has.
        #[default]
        Reference = "reference",
        /// A JSON body with the reason: `{"error":{"status":503,"reason":"store_failed","message":"…"}}`.
        Detailed = "detailed",
    }
}

/// Why a request gets no decision.
#[derive(Debug)]
pub(super) enum Failure {
    /// The body was not received: too large, too slow, or no room.
    Body(StatusCode),
    /// The body is not a request.
    Invalid(String),
    /// The request is invalid, or the store failed.
    Request(RequestError),
    Internal,
}

impl Failure {
    pub fn respond(&self, errors: JsonErrors) -> Response {
        match errors {
            JsonErrors::Reference => self.as_the_reference(),
            JsonErrors::Detailed => self.detailed(),
        }
    }

    fn as_the_reference(&self) -> Response {
        match self {
            Failure::Body(status) => status.into_response(),
            // Errors that the reference does not have are explained.
            Failure::Request(
                error @ (RequestError::BadDescriptor(..) | RequestError::TooManyDescriptors(..)),
            ) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
            Failure::Invalid(_) | Failure::Request(_) => {
                (StatusCode::BAD_REQUEST, "Bad Request\n").into_response()
            }
            Failure::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n").into_response()
            }
        }
    }

    fn detailed(&self) -> Response {
        let (status, reason, message) = match self {
            Failure::Body(status) => {
                let (reason, message) = match *status {
                    StatusCode::PAYLOAD_TOO_LARGE => (
                        "too_large",
                        "the body is larger than grpc.max_message, or was not received whole",
                    ),
                    StatusCode::REQUEST_TIMEOUT => {
                        ("too_slow", "the body was not received within clients.timeout")
                    }
                    _ => (
                        "overloaded",
                        "large requests and responses use too much memory (setting clients.max_buffered)",
                    ),
                };
                (*status, reason, message.to_owned())
            }
            Failure::Invalid(error) => (StatusCode::BAD_REQUEST, "invalid_json", shown(error)),
            Failure::Request(error) => {
                let (status, reason) = match error {
                    RequestError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
                    RequestError::NoRules => (StatusCode::SERVICE_UNAVAILABLE, "no_rules"),
                    _ => (StatusCode::BAD_REQUEST, "invalid_request"),
                };
                (status, reason, shown(&error.to_string()))
            }
            Failure::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log".to_owned())
            }
        };
        let error = json!({ "status": status.as_u16(), "reason": reason, "message": message });
        let body = format!("{}\n", json!({ "error": error }));
        (status, [(CONTENT_TYPE, "application/json")], body).into_response()
    }

    /// Logs a request that its client can correct.
    pub fn log(&self, path: &str) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let error = match self {
                Failure::Body(status) => status.to_string(),
                Failure::Invalid(error) => shown(error),
                Failure::Request(error) => error.to_string(),
                Failure::Internal => return,
            };
            tracing::debug!(%error, path, "request to the API failed");
        }
    }
}

fn shown(text: &str) -> String {
    escape(&truncated(text, MAX_MESSAGE_BYTES)).into_owned()
}
