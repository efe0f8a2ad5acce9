//! Caches the plans (compiled limits) that `CL.THROTTLE` and `RL.REDUCE` describe in their arguments.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use weir_limit::{Algorithm, Gcra, Limit, Plan, ReduceBucket, SECOND};

/// The most plans that are kept. Applications use a few different ones.
const PLACES: usize = 1_024;

/// Stands for the limit in the stored keys of `CL.THROTTLE`: a key keeps its state when a command has other numbers.
const SHAPE: &str = "cell";

/// The numbers of `CL.THROTTLE`: at most `count` hits in `seconds`, and `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThrottleArguments {
    pub burst: u32,
    pub count: u32,
    pub seconds: u32,
}

impl ThrottleArguments {
    /// Builds the plan of its limit; none if its numbers are out of range.
    pub fn plan(&self) -> Option<Plan> {
        let gcra = Gcra::continuing(self.count, u64::from(self.seconds) * SECOND, self.burst);
        let limit = Limit::without_period(self.count, Algorithm::Gcra(gcra.ok()?), false);
        Some(Plan::with_shape(limit, SHAPE))
    }
}

/// The numbers in a command that describe a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameters {
    Throttle(ThrottleArguments),
    Bucket(ReduceBucket),
}

type PlanSlot = ArcSwapOption<(Parameters, Arc<Plan>)>;

/// Plans by their parameters. Two that share a place replace each other.
#[derive(Debug)]
pub struct Plans {
    places: Box<[PlanSlot]>,
    /// Clients cannot choose parameters that share a place.
    hasher: RandomState,
}

impl Parameters {
    fn plan(self) -> Option<Plan> {
        match self {
            Parameters::Throttle(throttle) => throttle.plan(),
            Parameters::Bucket(bucket) => Some(bucket.plan()),
        }
    }
}

impl Plans {
    pub fn new() -> Plans {
        let places = (0..PLACES).map(|_| ArcSwapOption::empty()).collect();
        Plans { places, hasher: RandomState::new() }
    }

    /// Returns the plan of these parameters, which is built if it is not kept; none if they are out of range.
    pub fn get(&self, parameters: Parameters) -> Option<Arc<Plan>> {
        let hash = self.hasher.hash_one(parameters);
        let place = self.places.get(usize::try_from(hash % PLACES as u64).ok()?)?;
        if let Some(kept) = &*place.load()
            && kept.0 == parameters
        {
            return Some(kept.1.clone());
        }
        let plan = Arc::new(parameters.plan()?);
        place.store(Some(Arc::new((parameters, plan.clone()))));
        Some(plan)
    }
}
