//! Errors of `/v1`, as JSON.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};

use weir_api::messages::{AdviceKind, ErrorAnswer};

/// Why a request is invalid, not allowed or failed, and what to do instead: `{"error":"…","help":"…"}`, some with a
/// `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub error: String,
    pub help: String,
    pub kind: AdviceKind,
    pub names: Vec<String>,
}

impl ApiError {
    pub fn new(status: StatusCode, error: impl Into<String>, help: impl Into<String>) -> ApiError {
        let (error, help, kind) = (error.into(), help.into(), AdviceKind::Other);
        ApiError { status, error, help, kind, names: Vec::new() }
    }

    pub fn with_kind(self, kind: AdviceKind) -> ApiError {
        ApiError { kind, ..self }
    }

    pub fn bad_request(error: impl Into<String>, help: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, error, help)
    }

    /// An error of weir itself.
    pub fn internal() -> ApiError {
        let (error, help) = ("the request failed", "see the log");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error, help)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError { status, error, help, kind, names } = self;
        // Texts are always valid.
        let answer = ErrorAnswer { error, help, kind, names };
        let body = serde_json::to_string(&answer).unwrap_or_default() + "\n";
        let response = (status, [(CONTENT_TYPE, "application/json")], body);
        match status {
            StatusCode::UNAUTHORIZED => ([(WWW_AUTHENTICATE, "Bearer")], response).into_response(),
            _ => response.into_response(),
        }
    }
}
