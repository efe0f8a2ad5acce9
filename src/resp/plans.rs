//! Plans that commands describe, kept so that a command seldom builds one.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::limit::Plan;

/// The places for plans. Applications use a few different ones.
const PLACES: usize = 1_024;

/// A place for a plan and its parameters.
type Place<P> = ArcSwapOption<(P, Arc<Plan>)>;

/// Plans by the parameters `P` of a command. Two that share a place replace each other.
pub struct Plans<P> {
    places: Box<[Place<P>]>,
    /// Clients cannot choose parameters that share a place.
    hasher: RandomState,
}

impl<P: Copy + Eq + Hash> Plans<P> {
    pub fn new() -> Plans<P> {
        let places = (0..PLACES).map(|_| ArcSwapOption::empty()).collect();
        Plans { places, hasher: RandomState::new() }
    }

    /// Returns the plan of these parameters. Builds it if it is not kept; none if `build` has none.
    pub fn get(&self, parameters: P, build: impl FnOnce() -> Option<Plan>) -> Option<Arc<Plan>> {
        let hash = self.hasher.hash_one(parameters);
        let place = self.places.get(usize::try_from(hash % PLACES as u64).ok()?)?;
        if let Some(kept) = &*place.load()
            && kept.0 == parameters
        {
            return Some(kept.1.clone());
        }
        let plan = Arc::new(build()?);
        place.store(Some(Arc::new((parameters, plan.clone()))));
        Some(plan)
    }
}

impl<P> std::fmt::Debug for Plans<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plans").finish_non_exhaustive()
    }
}
