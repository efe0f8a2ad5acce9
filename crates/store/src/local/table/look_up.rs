//! Answers charges of a request from denials that still hold, and from leases (hits charged ahead of requests).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{LeaseCharge, LocalTable, Sent};
use crate::charge::Charge;
use crate::local::hot_keys::Recent;
use crate::local::lease::Lease;
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Decision, Micros, Op};

impl LocalTable {
    /// Looks up the charges of a batch. `repeats`: denials may answer them.
    pub fn look_up(self: &Arc<Self>, sent: Sent, repeats: bool, unserved: Unserved) -> LookUp<'_> {
        LookUp {
            table: self,
            sent: sent.at,
            repeats,
            serves: !sent.together,
            unserved,
            charged: SmallVec::new(),
            waits: Waits::new(),
            due: Vec::new(),
        }
    }
}

/// Keys whose leases have charges in flight, and what completes once these have their answers.
pub(crate) type Waits = SmallVec<[(Fingerprint, oneshot::Receiver<()>); 1]>;

/// What happens to a lease that does not serve a charge of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// The charge waits while others of the lease are in flight; otherwise the lease ends.
    Waits,
    Ends,
}

pub(crate) struct LookUp<'t> {
    table: &'t Arc<LocalTable>,
    sent: Micros,
    repeats: bool,
    serves: bool,
    unserved: Unserved,
    /// Keys that are not known to be denied: what is charged may change the answers to later charges of them.
    charged: SmallVec<[Fingerprint; 4]>,
    pub waits: Waits,
    /// What leases have to charge first.
    pub due: Vec<Arc<LeaseCharge>>,
}

/// Returns whether a denial of the key may answer a charge: what takes hits, and a ban also looks.
fn repeats_denials(charge: &Charge<'_>) -> bool {
    match charge.plan.ban() {
        None => charge.op.takes().is_some_and(|hits| hits > 0) && charge.plan.repeats_denials(),
        Some(_) => charge.op.asks().is_some(),
    }
}

impl LookUp<'_> {
    /// Decides a charge by a denial or by the lease of its key; none if the store is to decide.
    pub fn decide(&mut self, charge: &Charge<'_>) -> Option<Decision> {
        let repeats = self.repeats && repeats_denials(charge);
        let may_lease = self.table.may_lease(charge);
        if !repeats && !may_lease {
            return None;
        }
        let key = self.table.fingerprints.of(charge);
        let mut shard = self.table.shard(&key).lock();
        if repeats && !self.charged.contains(&key) {
            let denial = shard.denials.get(&key, charge, self.sent);
            if denial.is_some() {
                return denial;
            }
            self.charged.push(key);
        }
        let lease = if may_lease { shard.leases.get_mut(&key.print) } else { None };
        lease.and_then(|lease| self.serve(&key, lease, charge))
    }

    /// Decides a charge by the lease of its key; if it cannot, makes way for the store.
    fn serve(
        &mut self,
        key: &Fingerprint,
        lease: &mut Lease,
        charge: &Charge<'_>,
    ) -> Option<Decision> {
        let table = self.table;
        // Read for each charge, and under the lock: a thread that waited for it may have slept.
        let now = table.now();
        let is_same_plan = Arc::ptr_eq(&lease.plan, charge.plan);
        if let Op::Take(hits) = charge.op
            && self.serves
            && is_same_plan
            && let Some(decision) = lease.serve(hits, now)
        {
            if hits > 0 {
                table.counts.served.fetch_add(hits, Ordering::Relaxed);
                lease.recent.add(hits, now, table.length);
                table.ask(key, lease, now, &mut self.due);
            }
            return Some(decision);
        }
        if self.unserved == Unserved::Waits
            && let Some(answered) = lease.flights.wait(now, table.length)
        {
            self.waits.push((*key, answered));
            return None;
        }
        let returned = lease.end();
        table.return_hits(key, lease, returned, now, &mut self.due);
        if !is_same_plan {
            (lease.plan, lease.recent) = (charge.plan.clone(), Recent::default());
        }
        None
    }
}
