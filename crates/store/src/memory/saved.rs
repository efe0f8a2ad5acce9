//! What is saved of a memory store.

use super::fingerprint::Print;
use weir_limit::{Fill, Packed, Reservation};

/// A key that expires later than can be written: only eviction removes it.
pub(crate) const NEVER: u64 = u64::MAX;

/// A key's slot as it is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SavedSlot<V> {
    pub print: Print,
    pub fill: Fill,
    /// The expiry, in whole seconds since the Unix epoch, or [`NEVER`].
    pub expires: u64,
    pub value: V,
}

/// What an id has reserved, as it is saved; nothing if that has been settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedReservation {
    pub print: Print,
    pub reservation: Option<Reservation>,
}

/// The state of a saved slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SavedValue<S> {
    Packed(Packed),
    Boxed(S),
}
