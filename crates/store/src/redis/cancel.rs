//! Requests that are dropped before they are answered.

use std::iter::zip;

use super::batch::{ChargeOp, PendingCharge};
use super::connections::ThreadConnections;
use super::options::Options;
use super::reply::Reply;
use crate::{Batch, StoreError};
use weir_limit::Op;

/// Cancels a batch that is dropped before it was answered, because its caller is gone.
///
/// Charges that were not sent yet are not sent. Holds with an id are released, over the same
/// connection and so not before they are taken. Other holds are not: whether they were taken may be
/// unknown. Reservations are cancelled: here where their answers have come, else by the round trip that
/// answers them, because only their answers say how many hits they are of.
pub(super) struct CancelOnDrop<'a> {
    pub options: &'a Options,
    pub connections: &'a ThreadConnections,
    pub batch: &'a Batch<'a>,
    pub reply: &'a Reply,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.reply.cancel() else { return };
        let Batch { charges, together, .. } = *self.batch;
        if charges.iter().all(|charge| charge.hold.is_none()) {
            return;
        }
        // Nobody waits for these answers.
        let reply = Reply::new(charges.len(), StoreError::TimedOut, None);
        // One call answers a batch charged together. If that was denied, nothing is reserved.
        let known = answers.iter().all(Result::is_ok);
        let keeps = !together || known && !self.batch.is_denied(&answers);
        let refunds = zip(charges, answers).enumerate().filter_map(|(index, (charge, answer))| {
            let pending =
                |charge| PendingCharge::new(self.options, charge, &reply, index, together);
            if let Some(cancelling) = charge.cancelling(&answer) {
                return keeps.then(|| pending(&cancelling));
            }
            let hits = charge.held(&answer).filter(|_| charge.hold.is_some())?;
            Some(PendingCharge { op: ChargeOp::Op(Op::Refund(hits)), ..pending(charge) })
        });
        self.connections.push(refunds);
    }
}
