//! Limits of one second in a separate Redis, if there is one.
//!
//! Charges whose plan is [per second](weir_limit::Plan::per_second) go to it and all others to the main one, at the
//! same time. All keys of a domain with `charge: together` are in the main one, also those of limits of one second:
//! they are charged in one call.

use std::iter;

use smallvec::SmallVec;

use super::options::RedisOptions;
use super::store::RedisStore;
use weir_limit::Plan;
use weir_store::{Answers, Batch, Charge};

impl RedisStore {
    /// Keeps limits of one second in a second Redis, if there is one.
    pub fn with_per_second(mut self, second: Option<RedisOptions>) -> RedisStore {
        self.per_second = second.map(|options| Box::new(RedisStore::new(options)));
        self
    }

    /// Returns this store and the one of limits of one second, each with its name.
    pub(super) fn instances(&self) -> impl Iterator<Item = (&'static str, &RedisStore)> {
        let second = self.per_second.as_deref().map(|second| ("per_second", second));
        iter::once(("main", self)).chain(second)
    }

    /// Returns the store that keeps the states of a plan, in a domain with `charge: together` or not.
    pub(super) fn store_of(&self, plan: &Plan, together: bool) -> &RedisStore {
        let second = self.per_second.as_deref().filter(|_| plan.per_second() && !together);
        second.unwrap_or(self)
    }

    pub(super) async fn charge_both(&self, second: &RedisStore, batch: Batch<'_>) -> Answers {
        let is_second = |charge: &Charge<'_>| charge.plan.per_second();
        let seconds = batch.charges.iter().filter(|charge| is_second(charge)).count();
        if seconds == 0 {
            return self.start_here(batch).await;
        } else if seconds == batch.charges.len() {
            return second.start_here(batch).await;
        }
        type Part<'a> = SmallVec<[Charge<'a>; 4]>;
        let (second_part, main_part): (Part<'_>, Part<'_>) =
            batch.charges.iter().copied().partition(is_second);
        let [main_part, second_part] =
            [&main_part, &second_part].map(|charges| Batch { charges, ..batch });
        let (of_main, of_second) =
            tokio::join!(self.start_here(main_part), second.start_here(second_part));
        batch.merge(is_second, of_second, of_main)
    }
}
