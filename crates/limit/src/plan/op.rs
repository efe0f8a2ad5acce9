//! The operation of a charge.

use crate::{Hits, Undo};

/// The operation of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes hits; 0 only looks, and never charges or creates a state.
    Take(u64),
    /// Refunds hits, newest first, never below zero; always allowed.
    Refund(u64),
    /// Makes a charge of this plan as if it had not been made; always allowed.
    Undo(Undo),
}

impl Op {
    /// The hits, which saturate, with the hash of their hold id.
    pub(crate) fn hits(self, hold: u64) -> Hits {
        let count = match self {
            Op::Take(count) | Op::Refund(count) => u32::try_from(count).unwrap_or(u32::MAX),
            Op::Undo(undo) => undo.hits,
        };
        Hits { count, hold }
    }

    /// Returns the hits to take: 0 for a look, none if it takes nothing from any limit.
    pub fn takes(self) -> Option<u64> {
        match self {
            Op::Take(hits) => Some(hits),
            Op::Refund(_) | Op::Undo(_) => None,
        }
    }

    /// Returns whether it only looks.
    pub fn is_look(self) -> bool {
        match self {
            Op::Take(hits) => hits == 0,
            Op::Refund(_) | Op::Undo(_) => false,
        }
    }

    /// Returns whether hits come back. Even if its batch is denied as a whole, they do.
    pub fn is_refund(self) -> bool {
        match self {
            Op::Take(_) => false,
            Op::Refund(_) | Op::Undo(_) => true,
        }
    }
}
