//! Learns from the answers of the store: which keys are denied, and which are hot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{LocalTable, MAX_BYTES, Sent, plain_hits};
use crate::local::denials::DenialTimes;
use crate::local::due::{DueCharges, LeasedKey};
use crate::local::hot_keys::Recent;
use crate::local::lease::Lease;
use crate::{Answer, Charge};
use weir_limit::{Decision, Micros, Source};

/// What an answer says about denials of its key.
enum Lesson<'a> {
    /// It is denied, and stays so until then.
    Denied { decision: &'a Decision, until: Micros },
    /// It was charged, or may have been: the waits are longer now.
    Charged,
    /// Hits were refunded, or may have been.
    Refunded,
}

impl LocalTable {
    /// Learns from the store's answer to a charge. Returns what asks for hits of its key, if that is hot.
    pub fn learn(&self, charge: &Charge<'_>, answer: &Answer, sent: Sent) -> DueCharges {
        let mut due = DueCharges::new();
        let lesson = self.lesson(charge, answer, sent);
        let leases = self.length > 0 && !sent.together && charge.plan.can_lease();
        let admitted = if leases { admitted(charge, answer) } else { None };
        if lesson.is_none() && admitted.is_none() {
            return due;
        }
        let key = self.fingerprints.of(charge);
        let mut shard = self.shard(&key).lock();
        let now = self.now();
        match lesson {
            Some(Lesson::Denied { decision, until }) => {
                let times = DenialTimes { sent: sent.at, answered: now, until };
                shard.denials.put(&key, charge, decision, times);
                self.denied_until.fetch_max(until, Ordering::Relaxed);
            }
            Some(Lesson::Charged) => shard.denials.forget(&key),
            Some(Lesson::Refunded) => shard.denials.refund(&key, now),
            None => {}
        }
        let Some(hits) = admitted else { return due };
        if let Some(lease) = shard.leases.get_mut(&key.print) {
            lease.recent.add(hits, now, self.length);
            if Arc::ptr_eq(&lease.plan, charge.plan) {
                self.ask(&key, lease, now, &mut due);
            }
        } else if let Some(recent) = shard.hot_keys.add(&key.print, hits, now, self.length)
            && let Some(mut lease) = self.lease(charge, recent)
        {
            self.ask(&key, &mut lease, now, &mut due);
            shard.leases.insert(key.print, lease);
        }
        due
    }

    /// Returns what an answer says about denials of its key, if they are repeated.
    fn lesson<'a>(
        &self,
        charge: &Charge<'_>,
        answer: &'a Answer,
        sent: Sent,
    ) -> Option<Lesson<'a>> {
        if self.deny_for == 0 {
            return None;
        }
        let lesson = match answer {
            _ if charge.op.returns_hits() => Lesson::Refunded,
            Ok(decision) if !decision.allowed && charge.op.asks().is_some_and(|hits| hits > 0) => {
                let holds = charge.plan.denial_lasts(decision).min(self.deny_for);
                // In a batch that is charged as a whole, it may be due to hits of the same batch that were not
                // charged or were refunded.
                if sent.whole || decision.source != Source::Store || holds == 0 {
                    return None;
                }
                Lesson::Denied { decision, until: sent.at.saturating_add(holds) }
            }
            _ => {
                let takes = || charge.op.takes().is_some_and(|hits| hits > 0);
                let lasts = charge.plan.denial_covers_more_hits();
                if !self.any_denials(sent.at) || lasts || !takes() {
                    return None;
                }
                Lesson::Charged
            }
        };
        charge.plan.repeats_denials().then_some(lesson)
    }

    /// Returns a lease of a hot key, counted; none if there is no room, or nothing more is leased.
    fn lease(&self, charge: &Charge<'_>, recent: Recent) -> Option<Lease> {
        let leased = Arc::new(LeasedKey::new(charge, self.bucket(charge)));
        let full = self.bytes.load(Ordering::Relaxed).saturating_add(leased.bytes) > MAX_BYTES;
        if full || self.draining.load(Ordering::Relaxed) {
            return None;
        }
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.filter[leased.bucket].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(leased.bytes, Ordering::Relaxed);
        Some(Lease::new(leased, charge.plan.clone(), recent))
    }
}

/// Returns the hits that the store admitted.
fn admitted(charge: &Charge<'_>, answer: &Answer) -> Option<u64> {
    let decision = answer.as_ref().ok()?;
    let is_by_store = decision.allowed && decision.source == Source::Store;
    plain_hits(charge.op).filter(|hits| is_by_store && *hits > 0)
}
