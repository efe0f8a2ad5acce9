//! Hits of one key that are added without a script; [`known`](super::super::known) says why that is
//! the same.

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{Ask, Item, judge};
use crate::limit::{Micros, Op};
use crate::store::StoreError;
use crate::store::redis::codec::{counter_number, is_overfull, windows_ahead};
use crate::store::redis::known::Known;
use crate::store::redis::reply::Reply;

/// More hits go by the script. A count has room for 65,536 times as many above the most it can be, so
/// it would take as many trips at once to reach the next window.
const MOST: u32 = 1 << 16;

/// The charges of one key.
#[derive(Debug)]
pub(in super::super) struct Plain {
    items: SmallVec<[Item; 1]>,
    hits: u32,
    hash: u64,
}

impl Plain {
    /// A charge that may do without a script, where its window is known.
    pub fn new(item: Item, hash: u64) -> Result<Plain, Item> {
        match hits(&item) {
            Some(hits @ 1..) => Ok(Plain { items: smallvec![item], hits, hash }),
            _ => Err(item),
        }
    }

    pub fn key(&self) -> &[u8] {
        self.items.first().map_or(&[], |item| &item.key)
    }

    /// Charges `item`, of the same key, with the others.
    pub fn merge(&mut self, item: Item) -> Result<(), Item> {
        match hits(&item).map(|hits| self.hits + hits) {
            Some(sum @ ..=MOST) => {
                self.hits = sum;
                self.items.push(item);
                Ok(())
            }
            _ => Err(item),
        }
    }

    pub fn command(&self) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(3, self.key().len() + 16);
        command.arg("INCRBY").arg(self.key()).arg(self.hits);
        command
    }

    /// How many charges it makes.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Its charges, to be made otherwise or refused.
    pub fn take_items(&mut self) -> SmallVec<[Item; 1]> {
        std::mem::take(&mut self.items)
    }

    /// Refuses its charges, which may have been made.
    pub fn refuse(&self, failed: StoreError) {
        for item in &self.items {
            item.reply.set(item.index, Err(failed), 0);
        }
    }

    /// What puts the key right where it is not known what became of the hits.
    pub fn unsure(self) -> Option<Item> {
        self.items.first().map(|item| settle(item, 0))
    }

    /// Answers what was counted: `new` is what INCRBY replied, and `now` the time after it. What is
    /// left for the script.
    pub fn answer(
        self,
        new: i64,
        now: Micros,
        known: &mut Known,
    ) -> (SmallVec<[Item; 1]>, Option<StoreError>) {
        let Some(first) = self.items.first() else { return (SmallVec::new(), None) };
        let period = first.plan.counter().map_or(1, |(_, window)| window.period);
        let before = new.checked_sub(self.hits.into()).and_then(counter_number);
        let (Some(number), Some(after)) = (before, counter_number(new)) else {
            known.forget(self.hash);
            let left = settle(first, self.hits);
            for item in self.items {
                item.reply.set(item.index, Err(StoreError::Corrupt), 0);
            }
            return (smallvec![left], Some(StoreError::Corrupt));
        };
        let ahead = windows_ahead(number, period, now);
        if let Some(ahead @ 0..) = ahead
            && let Some(mut state) = first.plan.read_counter(number, now, false)
        {
            let mut left = SmallVec::new();
            if ahead > 1 || is_overfull(after) {
                known.forget(self.hash);
                left.push(settle(first, 0));
            }
            for item in self.items {
                item.reply.set(item.index, judge(&item, &mut state, now), now);
            }
            return (left, None);
        }
        known.forget(self.hash);
        let gone = settle(first, 0);
        let mut left = self.items;
        let at = Instant::now();
        left.retain(|item| item.reply.is_awaited(at));
        if left.is_empty() && ahead.is_none() {
            left.push(gone);
        }
        (left, None)
    }
}

/// The hits of a charge that INCRBY can make, 0 of a look.
pub(super) fn hits(item: &Item) -> Option<u32> {
    let Ask::Op(Op::Take(hits)) = item.op else { return None };
    let plain = item.together.is_none() && !item.alone && !item.asking && !item.in_key;
    let counts_all = item.plan.counter().is_some_and(|(limit, _)| limit.charge_denied);
    u32::try_from(hits).ok().filter(|&hits| plain && counts_all && hits <= MOST)
}

fn settle(item: &Item, hits: u32) -> Item {
    Item {
        op: Ask::Settle(hits),
        reply: Reply::new(1, StoreError::TimedOut, None),
        index: 0,
        ..item.clone()
    }
}
