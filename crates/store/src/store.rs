//! The trait that all stores implement: memory, disk, Redis, and wrappers around another store.

use std::future::Future;
use std::sync::Arc;

use crate::charge::{Answers, Batch};
use crate::local::table::LeaseCharge;

/// Keeps the state of keys and charges it, and keeps reservations: hits charged before it is known how many are used.
///
/// **Reservations.** A charge with [`Op::Reservation`](weir_limit::Op::Reservation) also concerns a record: the
/// [reservation](weir_limit::Reservation) of its key, the shape of its plan and its id, which is
/// [`Charge::hold`](crate::Charge::hold). The store makes
/// [`Plan::charge_reservation`](weir_limit::Plan::charge_reservation) of state and record, and keeps both or, where it
/// fails, neither. Other operations do not touch records, and neither does deleting a state. The store bounds the number
/// of records; it may drop one that can no longer be settled at any time, and another where it has no room left: its
/// hits stay charged.
///
/// **Batches charged together.** If the batch is denied, neither states nor records are changed, except by charges that
/// are made nevertheless: those that are [unconditional](weir_limit::Op::is_unconditional), and a
/// [`Settle`](weir_limit::ReservationOp::Settle) that has [settled](weir_limit::ReservationResult::Settled).
pub trait Store: Send + Sync + 'static {
    /// Starts to charge a batch. Adds one answer for each charge to `answers`, in order, if all are known at once; else
    /// returns what they are to be waited for with.
    ///
    /// The wait ends within the batch's timeout. If it is dropped before, the store releases the holds that have an id, and
    /// cancels reservations, once their outcome is known; whatever else was sent stays charged.
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, Self>>;

    /// Charges a batch, and waits for the answers.
    fn charge(&self, batch: &Batch<'_>, answers: &mut Answers) -> impl Future<Output = ()> + Send {
        let batch = *batch;
        async move {
            if let Some(waiting) = self.start(batch, answers) {
                answers.extend(waiting.await);
            }
        }
    }

    /// Makes a charge that no request waits for, over the same connection as the charges of this thread, after those
    /// that were made before. Passes its outcome to [`LeaseCharge::answer`]. A store that leases nothing drops it.
    fn charge_lease(&self, _charge: Arc<LeaseCharge>) {}
}
