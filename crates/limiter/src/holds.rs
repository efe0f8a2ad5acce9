//! The hits of concurrency limits that a request took, so that a cancelled call can release them.

use std::sync::Arc;
use std::time::Duration;

use weir_limit::{Op, Plan};
use weir_store::{Answer, Answers, Batch, Charge, Entry, Key, OnStoreFailure, Role, Store};

/// The time-out for releasing; no request waits for it.
const BUDGET: Duration = Duration::from_secs(1);

/// The holds of a request. Most have none, and then nothing is allocated.
#[derive(Debug, Default)]
pub struct Holds(Option<Box<Taken>>);

#[derive(Debug)]
struct Taken {
    domain: Box<str>,
    on_failure: Option<OnStoreFailure>,
    holds: Vec<TakenHold>,
}

#[derive(Debug)]
struct TakenHold {
    entries: Box<[(Box<str>, Box<str>)]>,
    plan: Arc<Plan>,
    hits: u64,
    id: Option<Box<str>>,
    role: Role,
}

impl Holds {
    /// Returns whether no hold was taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds what a batch took according to its answers.
    pub(super) fn add(&mut self, batch: &Batch<'_>, answers: &[Answer]) {
        if batch.charges.iter().any(|charge| charge.plan.concurrency().is_some()) {
            self.add_each(batch, answers);
        }
    }

    #[cold]
    fn add_each(&mut self, batch: &Batch<'_>, answers: &[Answer]) {
        if batch.together && batch.is_denied(answers) {
            return;
        }
        for (charge, answer) in batch.charges.iter().zip(answers) {
            let Some(hits) = charge.held(answer) else { continue };
            let entry = |(key, value): &Entry<'_>| (Box::from(*key), Box::from(*value));
            let hold = TakenHold {
                entries: charge.key.entries.iter().map(entry).collect(),
                plan: charge.plan.clone(),
                hits,
                id: charge.hold.map(Box::from),
                role: charge.role,
            };
            let taken = self.0.get_or_insert_with(|| {
                let (domain, on_failure) = (charge.key.domain.into(), batch.on_failure);
                Box::new(Taken { domain, on_failure, holds: Vec::new() })
            });
            taken.holds.push(hold);
        }
    }

    /// Releases all holds. If the store fails, they expire after their time-out.
    pub async fn release(self, store: &impl Store) {
        let Some(taken) = self.0 else { return };
        let Taken { domain, on_failure, holds } = *taken;
        for hold in &holds {
            let entries: Vec<Entry<'_>> =
                hold.entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let charge = Charge {
                key: Key { domain: &domain, entries: &entries },
                plan: &hold.plan,
                op: Op::Refund(hold.hits),
                hold: hold.id.as_deref(),
                role: hold.role,
            };
            let batch = Batch {
                charges: &[charge],
                together: false,
                quota_passes: false,
                budget: BUDGET,
                on_failure,
                span: None,
            };
            store.charge(batch, &mut Answers::new()).await;
        }
    }
}
