//! The size of the memory store, and its counts of evicted and expired keys.

/// The size of a memory store, and counts since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Keys held now, including expired ones that are not swept yet.
    pub keys: usize,
    /// Bytes allocated now for slots of keys and reservations, without states on the heap.
    pub table_bytes: usize,
    /// Reservations held now, including lapsed ones that are not swept yet.
    pub reservations: usize,
    /// Reservations evicted to make room before they lapsed.
    pub reservations_evicted: u64,
    /// Reservations not kept, because their key had a sixteenth of a full table.
    pub reservations_unrecorded: u64,
    /// Keys evicted to make room.
    pub evicted: Evicted,
    /// Expired keys removed by sweeping.
    pub swept: u64,
}

/// Keys evicted to make room for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Keys that had expired: nothing was lost.
    pub expired: u64,
    /// Keys below their limit.
    pub live: u64,
    /// Keys at or over their limit: blocked clients may be admitted again.
    pub full: u64,
}
