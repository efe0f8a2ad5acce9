//! The argument `--json`: a request as the body of `/json`.

use std::io::{self, Read};

use crate::http::clients::decode_json;

/// The largest body on standard input.
const MAX_BODY_BYTES: u64 = 4 << 20;

/// Returns the protobuf message of a body; `-` reads it from standard input.
///
/// # Errors
///
/// It cannot be read, or is not a valid request.
pub(super) fn decode(body: &str) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    let body = match body {
        "-" => {
            let stdin = io::stdin().lock().take(MAX_BODY_BYTES).read_to_end(&mut read);
            stdin.map_err(|error| format!("cannot read standard input: {error}"))?;
            &read[..]
        }
        body => body.as_bytes(),
    };
    decode_json(body).map_err(|error| format!("--json is not a valid request: {error}"))
}
