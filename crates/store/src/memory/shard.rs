//! A shard of the memory store: a part of the keys behind one lock. When it is full, a new key evicts another one.

use std::sync::Arc;

use super::changes::{Changes, Room, SavedReservation};
use super::fingerprint::Print;
use super::stats::{Evicted, MemoryStats};
use super::sweep::Sweep;
use super::table::{Candidate, Now, Slot, Table};
use crate::charge::Charge;
use weir_limit::{ChargeOutcome, Decision, Fill, Op, Packed, State};

/// How many slots are sampled for one to evict, and how many more of each table if all of those are at their limit.
const SAMPLE: usize = 8;
const SECOND_SAMPLE: usize = 24;

/// The state of a key in a slot: packed into 12 bytes, or boxed.
pub(super) trait SlotValue: Default {
    fn charge(&mut self, charge: &Charge<'_>, now: Now) -> ChargeOutcome;

    fn table(shard: &mut Shard) -> &mut Table<Self>;
}

impl SlotValue for Packed {
    fn charge(&mut self, charge: &Charge<'_>, now: Now) -> ChargeOutcome {
        charge.plan.charge_packed(self, now.micros, charge.op, charge.hold)
    }

    fn table(shard: &mut Shard) -> &mut Table<Packed> {
        &mut shard.packed
    }
}

impl SlotValue for Box<State> {
    fn charge(&mut self, charge: &Charge<'_>, now: Now) -> ChargeOutcome {
        charge.plan.charge(self, now.micros, charge.op, charge.hold)
    }

    fn table(shard: &mut Shard) -> &mut Table<Box<State>> {
        &mut shard.boxed
    }
}

pub(super) enum AnySlot<'s> {
    Packed(&'s mut Slot<Packed>),
    Boxed(&'s mut Slot<Box<State>>),
}

impl Sweep for Shard {
    fn buckets(&self) -> usize {
        self.packed.buckets().max(self.boxed.buckets())
    }

    fn sweep(&mut self, buckets: usize, now: Now) {
        self.packed.sweep(buckets, now);
        self.boxed.sweep(buckets, now);
    }

    fn shrink(&mut self) -> impl Sized + use<> {
        (self.packed.shrink(), self.boxed.shrink())
    }
}

#[derive(Debug)]
pub(super) struct Shard {
    packed: Table<Packed>,
    boxed: Table<Box<State>>,
    /// The number of keys that both tables may hold together; at least 1.
    cap: usize,
    evicted: Evicted,
    /// The keys to save; none if nothing is saved.
    pub(super) changes: Option<Changes>,
}

impl Shard {
    pub(super) fn new(cap: usize) -> Shard {
        let (packed, boxed, evicted, changes) = Default::default();
        Shard { packed, boxed, cap: cap.max(1), evicted, changes }
    }

    pub(super) fn listing_changes(cap: usize, room: Arc<Room>) -> Shard {
        Shard { changes: Some(Changes::new(cap, room)), ..Shard::new(cap) }
    }

    fn keys(&self) -> usize {
        self.packed.len() + self.boxed.len()
    }

    pub(super) fn add_stats(&self, stats: &mut MemoryStats) {
        stats.keys += self.keys();
        stats.table_bytes += self.packed.slots.allocation_size();
        stats.table_bytes += self.boxed.slots.allocation_size();
        stats.swept += self.packed.swept + self.boxed.swept;
        stats.evicted.expired += self.evicted.expired;
        stats.evicted.live += self.evicted.live;
        stats.evicted.full += self.evicted.full;
    }

    pub(super) fn charge<V: SlotValue>(
        &mut self,
        print: &Print,
        charge: &Charge<'_>,
        now: Now,
    ) -> Decision {
        let Some(mut found) = V::table(self).find(print) else {
            let mut value = V::default();
            let charged = value.charge(charge, now);
            if charged.expires > now.micros {
                self.insert(Slot::new(*print, value, &charged, now), now);
            }
            return charged.decision;
        };
        let slot = found.get_mut();
        let charged = slot.value.charge(charge, now);
        let is_listed = slot.is_listed();
        let unchanged = !charged.decision.allowed || charge.op.is_look(&charged.decision);
        if unchanged && !slot.has_expired(now) {
            slot.note_unchanged(&charged, now);
        } else if charged.expires > now.micros {
            slot.note(&charged, now);
        } else {
            found.remove();
        }
        if !is_listed {
            self.list_change(print);
        }
        charged.decision
    }

    /// Charges one key, whose state is not used once it has expired. Looks do not keep it for longer.
    pub(super) fn charge_unexpired(
        &mut self,
        print: &Print,
        charge: &Charge<'_>,
        now: Now,
    ) -> Decision {
        if let Some(found) = self.packed.find(print)
            && found.get().has_expired(now)
        {
            found.remove();
        }
        match charge.op {
            Op::Take(0) | Op::UpTo(_) => {
                let decision = self.copy::<Packed>(print).charge(charge, now).decision;
                if charge.op.is_look(&decision) {
                    return decision;
                }
            }
            Op::Take(1..) | Op::Refund(_) | Op::Undo(_) | Op::Add { .. } | Op::Reservation(_) => {}
        }
        self.charge::<Packed>(print, charge, now)
    }

    /// Returns a key's state, expired or not.
    pub(super) fn get<V: SlotValue>(&mut self, print: &Print) -> Option<&V> {
        V::table(self).get(print)
    }

    pub(super) fn copy<V: SlotValue + Clone>(&mut self, print: &Print) -> V {
        self.get::<V>(print).cloned().unwrap_or_default()
    }

    pub(super) fn delete<V: SlotValue>(&mut self, print: &Print) {
        let Some(found) = V::table(self).find(print) else { return };
        let (slot, _) = found.remove();
        if !slot.is_listed() {
            self.list_change(print);
        }
    }

    /// Replaces a key's state by one that was last charged with the outcome `charged`.
    pub(super) fn put<V: SlotValue>(
        &mut self,
        print: &Print,
        value: V,
        charged: &ChargeOutcome,
        now: Now,
    ) {
        let lives = charged.expires > now.micros;
        let Some(mut found) = V::table(self).find(print) else {
            if lives {
                self.insert(Slot::new(*print, value, charged, now), now);
            }
            return;
        };
        let slot = found.get_mut();
        let is_listed = slot.is_listed();
        if lives {
            slot.value = value;
            slot.note(charged, now);
        } else {
            found.remove();
        }
        if !is_listed {
            self.list_change(print);
        }
    }

    pub(super) fn prints(&self) -> Vec<Print> {
        let packed = self.packed.slots.iter().map(|slot| slot.print);
        packed.chain(self.boxed.slots.iter().map(|slot| slot.print)).collect()
    }

    /// Inserts a slot as it was saved, in place of what the key has. Until [`loaded`](Self::loaded) there may be twice
    /// as many keys: a log may have a new key before the removal of the one that was evicted for it.
    pub(super) fn load<V: SlotValue>(&mut self, slot: Slot<V>, now: Now) {
        self.forget(&slot.print);
        self.make_room::<V>(self.cap.saturating_mul(2), slot.random(), now);
        V::table(self).insert(slot);
    }

    /// Evicts the keys that were loaded beyond the cap.
    pub(super) fn loaded(&mut self, now: Now) {
        let excess = self.keys().saturating_sub(self.cap);
        // Steps of the golden ratio: evenly spread over both tables.
        let mut random = 0_u16;
        for _ in 0..excess {
            random = random.wrapping_add(40_503);
            self.evict(now, random);
        }
        if excess > 0 {
            self.packed.shrink_to_fit();
            self.boxed.shrink_to_fit();
        }
    }

    /// Removes a key, without listing that as a change.
    pub(super) fn forget(&mut self, print: &Print) {
        if let Some(found) = self.packed.find(print) {
            found.remove();
        } else if let Some(found) = self.boxed.find(print) {
            found.remove();
        }
    }

    pub(super) fn slot(&mut self, print: &Print) -> Option<AnySlot<'_>> {
        if let Some(slot) = self.packed.get_slot(print) {
            return Some(AnySlot::Packed(slot));
        }
        self.boxed.get_slot(print).map(AnySlot::Boxed)
    }

    pub(super) fn has_boxed(&self) -> bool {
        self.boxed.len() > 0
    }

    fn insert<V: SlotValue>(&mut self, slot: Slot<V>, now: Now) {
        // The removed key is listed before the new one: replayed, there are never too many.
        self.make_room::<V>(self.cap, slot.random(), now);
        self.list_change(&slot.print);
        V::table(self).insert(slot);
    }

    /// Lists a key as changed, if changes are listed. A slot that is in the table is marked so.
    fn list_change(&mut self, print: &Print) {
        if let Some(changes) = &mut self.changes {
            changes.list(print);
        }
    }

    /// Lists a reservation that a charge of a key has changed, if changes are listed. To be called after that charge.
    pub(super) fn list_reservation(&mut self, key: &Print, changed: SavedReservation) {
        let Some(changes) = &mut self.changes else { return };
        if changes.list_reservation(key, changed) && self.slot(key).is_none() {
            self.list_change(key);
        }
    }

    fn make_room<V: SlotValue>(&mut self, cap: usize, random: u16, now: Now) {
        V::table(self).sweep_on_insert(now);
        if self.keys() >= cap {
            self.evict(now, random);
        }
    }

    /// Evicts the least valuable key of a sample; one at its limit only if all of a wider sample are, and the first to
    /// expire then. The new key is never rejected: a client without a count would not be limited at all.
    fn evict(&mut self, now: Now, random: u16) {
        // Either table loses keys in proportion to those it holds.
        let mut is_boxed = (usize::from(random) * self.keys()) >> 16 < self.boxed.len();
        let Some(mut victim) = self.sample(is_boxed, SAMPLE, now) else { return };
        if victim.worth.fill == Some(Fill::Full) {
            for table in [false, true] {
                let other = self.sample(table, SECOND_SAMPLE, now);
                if let Some(other) = other.filter(|other| other.worth < victim.worth) {
                    (victim, is_boxed) = (other, table);
                }
            }
        }
        match victim.worth.fill {
            None => self.evicted.expired += 1,
            Some(Fill::Full) => self.evicted.full += 1,
            Some(Fill::Low | Fill::High) => self.evicted.live += 1,
        }
        let unlisted = match is_boxed {
            true => self.boxed.drop_candidate(victim),
            false => self.packed.drop_candidate(victim),
        };
        // Without a record of its removal it would return at the next start, and push out another.
        if let Some(print) = unlisted {
            self.list_change(&print);
        }
    }

    fn sample(&mut self, is_boxed: bool, wanted: usize, now: Now) -> Option<Candidate> {
        match is_boxed {
            true => {
                let fill = |slot: &Slot<Box<State>>| slot.value.fill_now(slot.fill(), now.micros);
                self.boxed.sample(wanted, now, fill)
            }
            false => self.packed.sample(wanted, now, Slot::fill),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Shard {
        pub fn boxed_keys(&self) -> usize {
            self.boxed.len()
        }
    }
}
