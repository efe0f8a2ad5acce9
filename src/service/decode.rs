//! Decodes a `RateLimitRequest` in place: its strings are borrowed from the message.
//!
//! Accepts and rejects what prost does, field by field: the last of a repeated scalar field wins,
//! repeated messages are merged, unknown fields are skipped.

#[cfg(test)]
mod tests;
mod wire;

use smallvec::SmallVec;
use tracing::Span;

use self::wire::Message;
use weir_limiter::{Descriptor, Override, Request};
use weir_store::Entry;

/// Why a message is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is not a RateLimitRequest: {0}")]
pub struct DecodeError(&'static str);

/// A decoded request whose strings are borrowed from the message.
#[derive(Debug, Default)]
pub struct RequestView<'a> {
    domain: &'a str,
    hits_addend: u32,
    descriptors: SmallVec<[DescriptorHeader; 4]>,
    /// The number of descriptors beyond these, which were not kept.
    beyond: usize,
    /// The entries of all descriptors, in order.
    entries: SmallVec<[Entry<'a>; 8]>,
    /// The span of the request, if it is recorded.
    span: Option<&'a Span>,
}

/// A descriptor without its entries.
#[derive(Debug, Default)]
struct DescriptorHeader {
    entry_count: usize,
    limit: Option<Override>,
    hits_addend: Option<u64>,
    is_negative_hits: bool,
}

/// The descriptors of a request, each with its entries: what [`RequestView::request`] fills.
pub type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl<'a> RequestView<'a> {
    /// Decodes a message. Of descriptors beyond `max_descriptors` only the number is kept.
    ///
    /// # Errors
    ///
    /// If the message is not a `RateLimitRequest`.
    pub fn decode(bytes: &'a [u8], max_descriptors: usize) -> Result<RequestView<'a>, DecodeError> {
        let mut view = RequestView::default();
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field.number {
                1 => view.domain = message.text(field)?,
                2 => {
                    let inner = message.message(field)?;
                    let entries = view.entries.len();
                    let header = view.descriptor(inner)?;
                    if view.descriptors.len() < max_descriptors {
                        view.descriptors.push(header);
                    } else {
                        view.entries.truncate(entries);
                        view.beyond += 1;
                    }
                }
                3 => view.hits_addend = message.varint(field)? as u32,
                _ => message.skip(field)?,
            }
        }
        Ok(view)
    }

    fn descriptor(&mut self, mut message: Message<'a>) -> Result<DescriptorHeader, DecodeError> {
        let mut header = DescriptorHeader::default();
        while let Some(field) = message.next()? {
            match field.number {
                1 => {
                    self.entries.push(entry(message.message(field)?)?);
                    header.entry_count += 1;
                }
                2 => limit(message.message(field)?, header.limit.get_or_insert_default())?,
                3 => wrapped(message.message(field)?, header.hits_addend.get_or_insert_default())?,
                4 => header.is_negative_hits = message.varint(field)? != 0,
                _ => message.skip(field)?,
            }
        }
        Ok(header)
    }

    /// Records the request below this span.
    pub fn set_span(&mut self, span: Option<&'a Span>) {
        self.span = span;
    }

    /// Returns the heap bytes of this view, its descriptors and their keys, in addition to the
    /// message: 0 for small requests.
    pub fn heap_bytes(&self) -> usize {
        /// Bytes for a key and its charge.
        const CHARGE_BYTES: usize = 1 << 10;
        let entries = if self.entries.spilled() { self.entries.capacity() } else { 0 };
        let descriptors = if self.descriptors.spilled() { self.descriptors.capacity() } else { 0 };
        let descriptor = size_of::<DescriptorHeader>() + size_of::<Descriptor<'_>>() + CHARGE_BYTES;
        entries * size_of::<Entry<'_>>() + descriptors * descriptor
    }

    /// Returns the request, with its descriptors in an empty list of the caller: to return the list would copy
    /// it.
    pub fn request<'v: 'b, 'b>(&'v self, descriptors: &'b mut Descriptors<'v>) -> Request<'b> {
        let mut rest = self.entries.as_slice();
        descriptors.reserve(self.descriptors.len());
        for header in &self.descriptors {
            let (entries, others) = rest.split_at(header.entry_count);
            rest = others;
            descriptors.push(Descriptor {
                entries,
                limit: header.limit,
                hits_addend: header.hits_addend,
                is_negative_hits: header.is_negative_hits,
                budget: None,
            });
        }
        let RequestView { domain, beyond, hits_addend, span, .. } = *self;
        Request { domain, descriptors, beyond, hits_addend, span, no_settling: None }
    }
}

fn entry<'a>(mut message: Message<'a>) -> Result<Entry<'a>, DecodeError> {
    let (mut key, mut value) = ("", "");
    while let Some(field) = message.next()? {
        match field.number {
            1 => key = message.text(field)?,
            2 => value = message.text(field)?,
            _ => message.skip(field)?,
        }
    }
    Ok((key, value))
}

fn limit(mut message: Message<'_>, limit: &mut Override) -> Result<(), DecodeError> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => limit.requests_per_unit = message.varint(field)? as u32,
            2 => limit.unit = message.varint(field)? as i32,
            3 => {
                let mut wide = limit.unit_multiplier.map_or(0, u64::from);
                wrapped(message.message(field)?, &mut wide)?;
                limit.unit_multiplier = Some(wide as u32);
            }
            _ => message.skip(field)?,
        }
    }
    Ok(())
}

/// Decodes a `google.protobuf.UInt64Value` or `UInt32Value`.
fn wrapped(mut message: Message<'_>, number: &mut u64) -> Result<(), DecodeError> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => *number = message.varint(field)?,
            _ => message.skip(field)?,
        }
    }
    Ok(())
}
