//! Requests that are dropped before they are answered.

use std::iter::zip;

use super::batch::{ChargeOp, PendingCharge};
use super::connections::ThreadConnections;
use super::denied_calls;
use super::options::Options;
use super::reply::{AnswersWithUndos, Reply};
use crate::{Answer, Batch, StoreError};
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
    /// The call of each charge, where a batch charged together needs several.
    pub calls: &'a [u16],
    pub reply: &'a Reply,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.reply.cancel() else { return };
        let charges = self.batch.charges;
        if charges.iter().all(|charge| charge.hold.is_none()) {
            return;
        }
        // Nobody waits for these answers.
        let reply = Reply::new(charges.len(), StoreError::TimedOut, None);
        let reserved = self.reserved(&answers);
        let refunds =
            zip(charges, answers).enumerate().filter_map(|(index, (charge, (answer, _)))| {
                if let Some(cancelling) = charge.cancelling(&answer) {
                    let cancelling = PendingCharge::new(self.options, &cancelling, &reply, index);
                    return reserved(index).then_some(cancelling);
                }
                let hits = charge.held(&answer).filter(|_| charge.hold.is_some())?;
                Some(PendingCharge {
                    op: ChargeOp::Op(Op::Refund(hits)),
                    ..PendingCharge::new(self.options, charge, &reply, index)
                })
            });
        self.connections.push(refunds);
    }
}

impl CancelOnDrop<'_> {
    /// Returns which of the charges that were granted hits have kept them: none in a call that was denied as
    /// a whole.
    fn reserved(&self, replied: &AnswersWithUndos) -> impl Fn(usize) -> bool + '_ {
        let (batch, calls) = (self.batch, self.calls);
        let answers: Vec<Answer> = replied.iter().map(|(answer, _)| answer.clone()).collect();
        let known = answers.iter().all(Result::is_ok);
        let one_call = batch.together && calls.is_empty();
        let denied = one_call && (!known || batch.is_denied(&answers));
        let denied_calls = denied_calls(batch, replied, calls);
        move |index| !denied && calls.get(index).is_none_or(|call| !denied_calls.contains(call))
    }
}
