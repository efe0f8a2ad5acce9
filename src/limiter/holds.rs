//! What a request took of concurrency limits, so that a call that is cancelled can give it back.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::{Op, Plan};
use crate::store::{Answer, Answers, Batch, Charge, Entry, Key, OnStoreFailure, Role, Store};

/// How long giving back may take: no request waits for it.
const BUDGET: Duration = Duration::from_secs(1);

/// The holds of one request. Most have none, so it is as small as can be, and nothing is allocated.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "one word where nothing is held")]
pub struct Holds(Option<Box<Vec<Hold>>>);

#[derive(Debug)]
struct Hold {
    domain: Box<str>,
    entries: Box<[(Box<str>, Box<str>)]>,
    plan: Arc<Plan>,
    hits: u64,
    id: Option<Box<str>>,
    role: Role,
    on_failure: Option<OnStoreFailure>,
}

impl Holds {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds what a batch took, going by its answers.
    pub(super) fn add(&mut self, batch: &Batch<'_>, answers: &[Answer]) {
        let has_holds = |charge: &Charge<'_>| charge.plan.concurrency().is_some();
        if batch.charges.iter().any(has_holds) && !(batch.together && batch.is_denied(answers)) {
            self.add_each(batch, answers);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_each(&mut self, batch: &Batch<'_>, answers: &[Answer]) {
        for (charge, answer) in batch.charges.iter().zip(answers) {
            let Op::Take(hits) = charge.op else { continue };
            if !charge.may_hold(answer) {
                continue;
            }
            let entry = |(key, value): &Entry<'_>| (Box::from(*key), Box::from(*value));
            self.0.get_or_insert_default().push(Hold {
                domain: charge.key.domain.into(),
                entries: charge.key.entries.iter().map(entry).collect(),
                plan: charge.plan.clone(),
                hits,
                id: charge.hold.map(Box::from),
                role: charge.role,
                on_failure: batch.on_failure,
            });
        }
    }

    /// Gives all of them back. What the store fails lapses with its time-out.
    pub async fn give_back(self, store: &impl Store) {
        for hold in *self.0.unwrap_or_default() {
            let entries: Vec<Entry<'_>> =
                hold.entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let charge = Charge {
                key: Key { domain: &hold.domain, entries: &entries },
                plan: &hold.plan,
                op: Op::GiveBack(hold.hits),
                hold: hold.id.as_deref(),
                role: hold.role,
            };
            let batch = Batch {
                charges: &[charge],
                together: false,
                quota_passes: false,
                budget: BUDGET,
                on_failure: hold.on_failure,
            };
            store.charge(batch, &mut Answers::new()).await;
        }
    }
}
