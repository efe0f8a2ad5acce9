//! A memory store that keeps its last answers, for `weir test` and replays, which show more of them than responses do.

use std::future::{Future, Pending};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::charge::{Answers, Batch};
use crate::memory::{MemoryStats, MemoryStore};
use crate::store::Store;
use weir_common::clock::ManualClock;
use weir_limit::{Op, ReservationOp};

/// Counts in memory, in injected time.
#[derive(Debug)]
pub struct RecordingStore {
    store: MemoryStore<Arc<ManualClock>>,
    answers: Mutex<Answers>,
    is_recording: bool,
}

impl RecordingStore {
    /// Returns a store in memory of up to `max_keys` keys. It keeps no answers if nobody reads them, which is faster.
    pub fn new(clock: Arc<ManualClock>, max_keys: usize, is_recording: bool) -> RecordingStore {
        let store = MemoryStore::new(clock, max_keys);
        RecordingStore { store, answers: Mutex::default(), is_recording }
    }

    /// The answers to the last batch. A request that charges nothing has no batch.
    pub fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock()
    }

    /// Returns the counts of the store inside.
    pub fn stats(&self) -> MemoryStats {
        self.store.stats()
    }
}

impl Store for RecordingStore {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.store.charge_now(&batch, answers);
        // The answers to a request stay when it is denied and what it has reserved is cancelled.
        let is_cancel = |op| matches!(op, Op::Reservation(ReservationOp::Cancel(_)));
        if self.is_recording && !batch.charges.iter().all(|charge| is_cancel(charge.op)) {
            self.answers.lock().clone_from(answers);
        }
        None::<Pending<Answers>>
    }
}
