//! The framing of gRPC messages: a prefix of five bytes, then the message.

use tonic::Status;

use super::{Grpc, Limits};
use crate::service::RequestView;
use weir_store::Store;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Returns the length that a message's prefix announces, once the prefix has been received.
///
/// # Errors
///
/// RESOURCE_EXHAUSTED if the message is too large.
pub(super) fn announced_length(framed: &[u8], limits: &Limits) -> Result<Option<usize>, Status> {
    let announced =
        framed.first_chunk::<PREFIX_BYTES>().map(|[_, length @ ..]| u32::from_be_bytes(*length));
    let announced = announced.map(|length| length as usize);
    let length = announced.unwrap_or(0).max(framed.len().saturating_sub(PREFIX_BYTES));
    let max = limits.max_message;
    if length > max {
        let text = format!(
            "the request has {length} bytes, more than {max} (setting grpc.max_message): send \
             fewer descriptors per request"
        );
        return Err(Status::resource_exhausted(text));
    }
    Ok(announced)
}

/// Decodes a message with its prefix.
///
/// # Errors
///
/// The status for a message that is missing, compressed, too large or malformed.
pub(super) fn read<'a, S: Store>(
    grpc: &Grpc<S>,
    framed: &'a [u8],
) -> Result<RequestView<'a>, Status> {
    let length = announced_length(framed, &grpc.limits)?;
    let length = length.ok_or_else(|| Status::internal("the request message is missing"))?;
    if framed[0] != 0 {
        return Err(Status::unimplemented("the request is compressed: send it uncompressed"));
    }
    let message = Some(&framed[PREFIX_BYTES..]).filter(|message| message.len() == length);
    let message = message.ok_or_else(|| {
        Status::internal("expected exactly one message of the length that its prefix announces")
    })?;
    grpc.rate_limit.decode(message).map_err(|error| Status::internal(error.to_string()))
}
