//! The list of all rate-limit algorithms. The arithmetic of each is in a file of its own below; the commands and
//! scripts that count in Redis are in the package `weir-redis`.
//!
//! The list generates the enums of all algorithms and states. A limit calls its algorithm through them, dispatched
//! statically by [`each!`](crate::each): an algorithm cannot be forgotten.

pub mod bucketed_window;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
pub mod reduce_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

pub use bucketed_window::BucketedWindow;
pub use concurrency::{Concurrency, hash_hold_id};
pub use fixed_window::FixedWindow;
pub use gcra::{Gcra, GcraError};
pub use reduce_bucket::ReduceBucket;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

use std::fmt;

use crate::algorithm::{Hits, HoldLevels, Levels, LimitAlgorithm, Packed, SpanCount, Verdict};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::plan::op::Undo;
use crate::saved::{self, SavedNumbers};
use crate::time::Micros;

/// Declares the enums of all algorithms and of their states, the functions that name each variant, and `each!`, a
/// `match` over all of them. The first token is a dollar sign, for the parameters of `each!`.
macro_rules! define_algorithms {
    ($d:tt $($(#[$doc:meta])* $name:ident => $state:ty,)*) => {
        /// An algorithm with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $($(#[$doc])* $name($name),)*
        }

        /// An algorithm without its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AlgorithmKind {
            $($(#[$doc])* $name,)*
        }

        /// The state of one limit, whatever its algorithm.
        #[derive(Clone, Debug, PartialEq)]
        pub enum LimitState {
            $($(#[$doc])* $name($state),)*
        }

        impl AlgorithmKind {
            /// All algorithms.
            pub const ALL: [AlgorithmKind; Algorithm::COUNT] = [$(AlgorithmKind::$name),*];
        }

        $(impl From<$name> for Algorithm {
            fn from(limit: $name) -> Algorithm {
                Algorithm::$name(limit)
            }
        })*

        impl LimitState {
            pub(super) fn save(&self, out: &mut Vec<u8>) {
                match self {
                    $(LimitState::$name(state) => {
                        saved::put(out, $name::TAG);
                        $name::save(state, out);
                    })*
                }
            }

            pub(super) fn pack(&self) -> Packed {
                match self {
                    $(LimitState::$name(state) => $name::pack(state),)*
                }
            }

            pub(super) fn restore(saved: &mut SavedNumbers<'_>) -> Option<LimitState> {
                match saved.next()? {
                    $($name::TAG => {
                        Some(LimitState::$name($name::restore(saved)?.into()))
                    })*
                    _ => None,
                }
            }
        }

        impl Algorithm {
            /// The number of algorithms.
            pub const COUNT: usize = [$($name::NAME),*].len();

            /// Returns the algorithm without its parameters.
            pub fn kind(&self) -> AlgorithmKind {
                match self {
                    $(Algorithm::$name(_) => AlgorithmKind::$name,)*
                }
            }

            /// Returns the state of a key never seen.
            pub fn new_state(&self) -> LimitState {
                match self {
                    $(Algorithm::$name(_) => LimitState::$name(Default::default()),)*
                }
            }

            pub(super) fn unpack(&self, packed: Packed, now: Micros) -> LimitState {
                match self {
                    $(Algorithm::$name(limit) => LimitState::$name(limit.unpack(packed, now).into()),)*
                }
            }

            /// A state of another algorithm starts over, so no other method meets one. If one did, it would deny.
            // The rare callers must not turn it into a call where `Plan::advance` has it inlined.
            #[inline(always)]
            pub(super) fn advance(&self, state: &mut LimitState, now: Micros) {
                match self {
                    $(Algorithm::$name(limit) => {
                        if !matches!(state, LimitState::$name(_)) {
                            *state = self.new_state();
                        }
                        if let LimitState::$name(state) = state {
                            limit.advance(state, now);
                        }
                    })*
                }
            }
        }

        /// Evaluates an expression for an algorithm, whichever it is.
        ///
        /// - `each!(algorithm, limit => …)`: `limit` has the type of its parameters.
        /// - `each!(algorithm, A(limit) => …)`: that type is called `A`.
        /// - `each!((algorithm, state), (limit, state) => …, _ => …)`: with one state or several.
        ///   The second expression is for states of other algorithms.
        #[macro_export]
        macro_rules! each {
            (
                ($d algorithm:expr, $d($d state:expr),+),
                ($d limit:pat, $d($d own:pat),+) => $d body:expr,
                _ => $d other:expr
            ) => {
                match $d algorithm {
                    $(#[allow(unused_parens)]
                    $crate::algorithms::Algorithm::$name($d limit) => match ($d($d state),+) {
                        ($d($crate::algorithms::LimitState::$name($d own)),+) => $d body,
                        _ => $d other,
                    },)*
                }
            };
            ($d algorithm:expr, $d kind:ident($d limit:pat) => $d body:expr) => {
                match $d algorithm {
                    $($crate::algorithms::Algorithm::$name($d limit) => {
                        type $d kind = $crate::algorithms::$name;
                        $d body
                    })*
                }
            };
            ($d algorithm:expr, $d limit:pat => $d body:expr) => {
                match $d algorithm {
                    $($crate::algorithms::Algorithm::$name($d limit) => $d body,)*
                }
            };
        }
    };
}

// Each algorithm with its state. Large states are boxed, so that small ones stay small.
define_algorithms! { $
    /// Counts in windows that follow each other.
    FixedWindow => fixed_window::State,
    /// Counts by the current window and a part of the one before.
    SlidingWindow => sliding_window::State,
    /// Keeps the time of each hit.
    // Its state is the log that all such limits of a rule share.
    SlidingLog => (),
    /// Counts in sub-windows.
    BucketedWindow => Box<bucketed_window::State>,
    /// Takes tokens, which come back in amounts.
    TokenBucket => token_bucket::State,
    /// The generic cell rate algorithm, also called leaky bucket.
    Gcra => gcra::State,
    /// Counts hits in flight.
    Concurrency => Box<concurrency::State>,
    /// The bucket of the Redis command `RL.REDUCE`; rule files cannot name it.
    ReduceBucket => reduce_bucket::State,
}

/// Declares methods that return a constant of the algorithm.
macro_rules! constants {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $constant:ident: $type:ty;)*) => {
        impl Algorithm {
            $($(#[$doc])*
            $vis fn $name(&self) -> $type {
                each!(self, A(_) => A::$constant)
            })*
        }
    };
}

/// Declares methods that call the method of the parameters.
macro_rules! methods {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Algorithm {
            $(pub(super) fn $name(&self, $($argument: $type),*) -> $result {
                each!(self, limit => limit.$name($($argument),*))
            })*
        }
    };
}

/// Declares methods that call the method of the parameters for a state; `else` is for states of other algorithms.
macro_rules! state_methods {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($state:ident: $state_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty,
        else $other:expr;
    )*) => {
        impl Algorithm {
            $($(#[$attribute])*
            pub(super) fn $name(&self, $state: $state_type $(, $argument: $type)*) -> $result {
                each!(
                    (self, $state),
                    (limit, $state) => limit.$name($state $(, $argument)*),
                    _ => $other
                )
            })*
        }
    };
}

constants! {
    /// Returns the name in rule files.
    pub name = NAME: &'static str;
    /// Returns whether callers read the tokens that a denial leaves.
    pub reports_tokens = REPORTS_TOKENS: bool;
    pub(super) packs = PACKS: bool;
    pub(super) counts_at_zero = COUNTS_AT_ZERO: bool;
    pub(super) answers_looks_if_n_is_zero = ANSWERS_LOOKS_IF_N_IS_ZERO: bool;
    pub(super) denial_covers_more_hits = DENIAL_COVERS_MORE_HITS: bool;
    pub(super) counts_in_flight = COUNTS_IN_FLIGHT: bool;
    pub(super) reset_recurs = RESET_RECURS: bool;
    pub(super) needs_expiry = NEEDS_EXPIRY: bool;
}

methods! {
    fn repeats_denials(charge_denied: bool, alone: bool) -> bool;
    fn hold_id() -> Option<&str>;
    fn capacity(n: u32) -> u64;
    fn refill_time() -> Option<Micros>;
    fn window_end(t: Micros) -> Option<Micros>;
    fn log_period() -> Option<Micros>;
    fn longest_span() -> Option<Micros>;
    fn write_text(text: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn write_shape(shape: &mut String) -> fmt::Result;
}

state_methods! {
    fn count(state: &LimitState, log: &HitLog, now: Micros, span: Micros) -> Option<SpanCount>, else None;
    fn holds(state: &LimitState, now: Micros) -> Option<HoldLevels>, else None;
    fn newest_window(state: &LimitState) -> Micros, else 0;
    fn verdict(state: &LimitState, log: &HitLog, now: Micros, hits: Hits) -> Verdict, else Verdict::NEVER;
    fn levels(state: &LimitState, log: &HitLog, now: Micros) -> Levels, else Levels::UNKNOWN;
    fn room(state: &LimitState, log: &HitLog, now: Micros, hold: u64) -> u64, else 0;
    // `Limit::add`, a second caller, must not turn it into a call where `Plan::take` has it inlined.
    #[inline(always)]
    fn charge(state: &mut LimitState, now: Micros, hits: Hits, charge_denied: bool) -> (), else ();
    fn deny(state: &mut LimitState, now: Micros) -> (), else ();
    fn undo(state: &mut LimitState, undo: &Undo) -> (), else ();
    fn refund(state: &mut LimitState, now: Micros, hits: Hits) -> (), else ();
}

impl Algorithm {
    /// Returns the bytes of a state, without the hits that it keeps one by one.
    pub fn state_bytes(&self) -> usize {
        each!(self, limit => limit.state_bytes())
    }

    pub(super) fn hit_bytes(&self) -> u64 {
        each!(self, A(limit) => if limit.keeps_hits() { A::HIT_BYTES } else { 0 })
    }

    pub(super) fn replica_share(&self, n: u32, replicas: u32) -> Algorithm {
        each!(self, limit => limit.replica_share(n, replicas).into())
    }

    pub(super) fn with_numbers(&self, change: NumbersChange) -> Result<Algorithm, NumbersError> {
        each!(self, limit => limit.with_numbers(change).map(Algorithm::from))
    }

    pub(super) fn undo_of(
        &self,
        before: &LimitState,
        after: &LimitState,
        now: Micros,
    ) -> Option<Undo> {
        each!(
            (self, before, after),
            (limit, before, after) => limit.undo_of(before, after, now),
            _ => None
        )
    }
}
