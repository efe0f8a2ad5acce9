//! What the clients of this replica want of each key, and what was left of it last: so it is divided by demand.

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::size::{DEMAND_LASTS, Demand};
use weir_limit::Micros;

/// The keys that buckets are charged to, by their hashes: where two have one, only the sizes of their grants change.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub hasher: DefaultHashBuilder,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    keys: HashMap<u64, KeyDemand>,
    next_sweep: Micros,
}

#[derive(Debug, Default)]
struct KeyDemand {
    /// What was left of the key when it was charged last, and the instant until which that counts.
    left: Option<(u64, Micros)>,
    reports: SmallVec<[Report; 1]>,
}

/// The last report of one client.
#[derive(Debug)]
struct Report {
    client: u64,
    at: Micros,
    /// None if it was the client's first.
    demand: Option<u64>,
}

impl Keys {
    /// Records the demand of a client. Returns that of all whose reports are recent, with what is left of the key, if
    /// that is known.
    pub fn report(
        &self,
        key: u64,
        client: u64,
        demand: Option<u64>,
        now: Micros,
    ) -> (Demand, Option<u64>) {
        let mut table = self.table.lock();
        table.sweep(now);
        let known = table.keys.entry(key).or_default();
        known.reports.retain(|report| report.client != client && report.is_recent(now));
        known.reports.push(Report { client, at: now, demand });
        let total = known.reports.iter().filter_map(|report| report.demand);
        let demand = Demand {
            own: demand,
            total: total.fold(0, u64::saturating_add),
            clients: known.reports.len() as u64,
        };
        (demand, known.left.filter(|(_, until)| now < *until).map(|(left, _)| left))
    }

    pub fn set_left(&self, key: u64, left: u64, until: Micros) {
        if let Some(known) = self.table.lock().keys.get_mut(&key) {
            known.left = Some((left, until));
        }
    }
}

impl Report {
    fn is_recent(&self, now: Micros) -> bool {
        now < self.at.saturating_add(DEMAND_LASTS)
    }
}

impl Table {
    /// Removes keys without recent reports, from time to time.
    fn sweep(&mut self, now: Micros) {
        if now >= self.next_sweep {
            self.next_sweep = now.saturating_add(DEMAND_LASTS);
            self.keys.retain(|_, key| key.reports.iter().any(|report| report.is_recent(now)));
        }
    }
}
