//! Batches of which some charges are answered without the store inside.

use smallvec::SmallVec;

use crate::{Answers, Batch, Charge, StoreError};
use weir_limit::Decision;

/// A batch of which some decisions are known.
pub(crate) struct Split<'a> {
    /// One for each charge of the batch: its decision, if it is known.
    known: SmallVec<[Option<Decision>; 4]>,
    /// The charges for the inner store.
    pub rest: SmallVec<[Charge<'a>; 4]>,
}

impl<'a> Split<'a> {
    /// Asks `decide` about each charge in order; none if it knows no decision.
    pub fn new(
        batch: &Batch<'a>,
        mut decide: impl FnMut(&Charge<'a>) -> Option<Decision>,
    ) -> Option<Split<'a>> {
        let (mut known, mut rest) = (SmallVec::new(), SmallVec::new());
        for charge in batch.charges {
            let decision = decide(charge);
            if decision.is_none() {
                rest.push(*charge);
            }
            known.push(decision);
        }
        (rest.len() < known.len()).then_some(Split { known, rest })
    }

    /// The batch for the inner store; none if all of it is known.
    pub fn rest<'b>(&'b self, batch: Batch<'a>) -> Option<Batch<'b>> {
        (!self.rest.is_empty()).then(|| Batch { charges: &self.rest, ..batch })
    }

    /// Adds what is known and the answers of the inner store to `answers`, in the batch's order.
    pub fn merge(self, inner: Answers, answers: &mut Answers) {
        let mut inner = inner.into_iter();
        answers.extend(self.known.into_iter().map(|known| match known {
            Some(decision) => Ok(decision),
            None => inner.next().unwrap_or(Err(StoreError::Unavailable)),
        }));
    }
}
