//! The size of the memory store, and its counts of evicted and expired keys, also as metrics.

use weir_common::metric_families;
use weir_common::metrics::MetricSink;

metric_families! {
    KEYS: gauge("store_keys", &[]) = "Keys held";
    TABLE_BYTES: gauge("store_table_bytes", &[]) = "Bytes allocated for keys and reservations";
    RESERVATIONS: gauge("store_reservations", &[]) = "Reservations held";
    RESERVATIONS_EVICTED: counter("reservations_evicted", &[])
        = "Reservations evicted to make room before they lapsed; their hits stay charged";
    RESERVATIONS_UNRECORDED: counter("reservations_unrecorded", &[])
        = "Reservations not kept, because their key had a sixteenth of a full table; their hits stay charged";
    EVICTIONS: counter("store_evictions", &["state"])
        = "Keys evicted to make room that had expired or were below their limit";
    EVICTIONS_AT_LIMIT: counter("store_evictions_at_limit", &[])
        = "Keys evicted to make room that were at or over their limit";
    EXPIRED_KEYS: counter("store_expired_keys", &[]) = "Expired keys removed by sweeping";
}

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

impl MemoryStats {
    pub(super) fn collect(&self, sink: &mut dyn MetricSink) {
        sink.gauge(KEYS, self.keys as f64);
        sink.gauge(TABLE_BYTES, self.table_bytes as f64);
        sink.gauge(RESERVATIONS, self.reservations as f64);
        sink.counter(RESERVATIONS_EVICTED, self.reservations_evicted);
        sink.counter(RESERVATIONS_UNRECORDED, self.reservations_unrecorded);
        let Evicted { expired, live, full } = self.evicted;
        sink.counters(EVICTIONS, [("expired", expired), ("below_limit", live)]);
        sink.counter(EVICTIONS_AT_LIMIT, full);
        sink.counter(EXPIRED_KEYS, self.swept);
    }
}
