//! What an algorithm is: a trait that describes it completely, and the macro that generates the enums
//! of all algorithms and states from one list.
//!
//! Calls are dispatched statically, by [`each!`](crate::each): an algorithm cannot be forgotten.

use std::fmt;

use super::hit_log::HitLog;
use super::{
    HoldLevels, Levels, Micros, NumbersChange, NumbersError, SavedNumbers, SpanCount, Undo, Verdict,
};

/// Hits to check, charge or refund.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hits {
    pub count: u32,
    /// The hash of the hold id that they belong to; 0 without one.
    pub hold: u64,
}

/// A state in 12 bytes, which the memory store keeps in place. All zeros is the default.
pub type Packed = [u32; 3];

/// Everything about one algorithm, implemented by its parameters.
///
/// What has no default differs between algorithms. A default is right, or safe, for any that does not
/// override it.
///
/// A state is always advanced to `now` before it is read or changed. `log` is the log that all
/// sliding_log limits of a rule share; other algorithms ignore it.
pub(crate) trait LimitAlgorithm: Sized {
    /// The state of one limit for one key. The default is that of a key never seen.
    type State: Default;

    /// The name in rule files.
    const NAME: &'static str;

    /// Whether every state fits into [`Packed`].
    const PACKS: bool;

    /// Whether a limit of 0 hits that charges denied hits counts them. Where hits drain at the
    /// limit's own rate it does not: they would stay forever.
    const COUNTS_AT_ZERO: bool;

    /// Whether a limit of 0 hits that charges denied hits allows looks, as the reference does.
    const ANSWERS_LOOKS_IF_N_IS_ZERO: bool = false;

    /// Whether a denial of some hits holds as long for more hits, if no other limit is in the rule.
    const DENIAL_COVERS_MORE_HITS: bool = false;

    /// Whether hits are released at the end of a request, by a refund. In a rule with such a limit,
    /// a refund concerns only this limit.
    const COUNTS_IN_FLIGHT: bool = false;

    /// The bytes that a state keeps of each hit; 0 if it only counts them.
    const HIT_BYTES: u64;

    /// Whether `reset_after` is the end of a window by the clock: once reached, it starts over, also for
    /// hits that can never pass.
    const RESET_RECURS: bool;

    /// Whether no state means quite the same as none, so that one that has expired must not be used.
    const NEEDS_EXPIRY: bool;

    /// Whether callers read the tokens that a denial leaves. Otherwise a denied limit counts as used up.
    const REPORTS_TOKENS: bool = false;

    /// Advances the state to `now`: drops windows that have passed, adds tokens that have come.
    fn advance(&self, state: &mut Self::State, now: Micros);

    /// Returns whether the hits are allowed, and when if not.
    fn verdict(&self, state: &Self::State, log: &HitLog, now: Micros, hits: Hits) -> Verdict;

    /// Returns how much of the limit is used.
    fn levels(&self, state: &Self::State, log: &HitLog, now: Micros) -> Levels;

    /// Returns the largest number of hits that a hold may take.
    fn room(&self, state: &Self::State, log: &HitLog, now: Micros, _hold: u64) -> u64 {
        self.levels(state, log, now).remaining
    }

    /// Charges hits that were admitted or, with `charge_denied`, denied.
    fn charge(&self, state: &mut Self::State, now: Micros, hits: Hits, charge_denied: bool);

    /// Changes the state after a denial by this limit, whether it charges denied hits or not.
    fn deny(&self, _: &mut Self::State, _: Micros) {}

    /// Refunds hits, newest first.
    fn refund(&self, state: &mut Self::State, now: Micros, hits: Hits);

    /// Returns what undoes the charge that turned an advanced state into `after`; none if it changed nothing, and
    /// without windows.
    fn undo_of(&self, _: &Self::State, _: &Self::State, _now: Micros) -> Option<Undo> {
        None
    }

    /// Makes what a charge did as if it had not been made, in the window of its hits.
    fn undo(&self, _: &mut Self::State, _: &Undo) {}

    /// Returns whether a denial may be repeated until its wait is over without charging again:
    /// charging would only deny again, and change nothing that anyone sees. `alone`: the rule has no
    /// other limit.
    fn repeats_denials(&self, charge_denied: bool, alone: bool) -> bool;

    /// Returns the start of the newest window or sub-window of an advanced state; 0 if it has none.
    fn newest_window(&self, _: &Self::State) -> Micros {
        0
    }

    /// Returns the end of the window or sub-window of `t`, within which it does not matter when hits are
    /// charged; none if it matters. Hits of limits that have one can be reserved and returned later.
    fn window_end(&self, _t: Micros) -> Option<Micros> {
        None
    }

    /// Returns the key of the descriptor's last entry, if that names a hold.
    fn hold_id(&self) -> Option<&str> {
        None
    }

    /// Returns the period of a limit that counts by the log; none if it does not.
    fn log_period(&self) -> Option<Micros> {
        None
    }

    /// Returns the longest span over which hits can be counted; none if their times are not kept.
    fn longest_span(&self) -> Option<Micros> {
        None
    }

    /// Counts the hits of the last `span`, for spans up to [`longest_span`](Self::longest_span).
    fn count(&self, _: &Self::State, _: &HitLog, _now: Micros, _span: Micros) -> Option<SpanCount> {
        None
    }

    /// Returns the hits in flight; none if the algorithm does not count these.
    fn holds(&self, _: &Self::State, _now: Micros) -> Option<HoldLevels> {
        None
    }

    /// Returns the most hits that a limit of `n`, which is not 0, can allow at once.
    fn capacity(&self, n: u32) -> u64 {
        n.into()
    }

    /// Returns the bytes of a state in memory, besides those of hits that it keeps.
    fn state_bytes(&self) -> usize {
        size_of::<Self::State>()
    }

    /// Returns whether hits are kept one by one, if the algorithm ever does: see
    /// [`HIT_BYTES`](Self::HIT_BYTES).
    fn keeps_hits(&self) -> bool {
        true
    }

    /// Writes what follows the number and the period of a limit in its text.
    fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, ", {}", Self::NAME)
    }

    /// Appends what an old state would be misread without. It becomes a part of keys: readable,
    /// without braces, periods in seconds.
    fn write_shape(&self, shape: &mut String);

    /// Returns the share of one of `replicas` replicas of a limit of `n` hits, for when replicas
    /// cannot count together.
    ///
    /// The burst is divided and rounded up, so no share is zero unless the whole is: all shares
    /// together allow the whole, and at most one hit more per replica. The refill rate is divided
    /// exactly, by a longer interval if necessary.
    fn replica_share(&self, n: u32, replicas: u32) -> Self;

    /// Returns the same limit with other numbers, which goes on from the states of this one.
    ///
    /// # Errors
    ///
    /// The algorithm has no such number, or cannot compute with it.
    fn with_numbers(&self, change: NumbersChange) -> Result<Self, NumbersError>;

    /// Packs a state. Only called if [`PACKS`](Self::PACKS).
    fn pack(state: &Self::State) -> Packed;

    /// Unpacks a state. Only called if [`PACKS`](Self::PACKS).
    fn unpack(&self, packed: Packed, now: Micros) -> Self::State;

    /// The number of the algorithm in saved states, for good.
    const TAG: u64;

    /// Appends the numbers of a state that is to be saved.
    fn save(state: &Self::State, out: &mut Vec<u8>);

    /// Reads what [`save`](Self::save) has written; none if no state is written like that.
    fn restore(saved: &mut SavedNumbers<'_>) -> Option<Self::State>;
}

/// Packs a number of 64 bits and one of 32.
pub(super) fn pack_wide(wide: u64, short: u32) -> Packed {
    [wide as u32, (wide >> 32) as u32, short]
}

/// Unpacks what [`pack_wide`] packed.
pub(super) fn unpack_wide([low, high, short]: Packed) -> (u64, u32) {
    (u64::from(low) | u64::from(high) << 32, short)
}

/// Declares the enums of all algorithms and of their states, whatever names a variant, and `each!`,
/// the `match` over all of them. The first token is a dollar sign, for the parameters of `each!`.
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
            $($name($state),)*
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
            /// Appends the tag and the numbers of the state.
            pub(super) fn save(&self, out: &mut Vec<u8>) {
                match self {
                    $(LimitState::$name(state) => {
                        saved::put(out, $name::TAG);
                        $name::save(state, out);
                    })*
                }
            }

            /// Reads what [`save`](Self::save) has written.
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

            /// See [`LimitAlgorithm::unpack`].
            pub(super) fn unpack(&self, packed: Packed, now: Micros) -> LimitState {
                match self {
                    $(Algorithm::$name(limit) => LimitState::$name(limit.unpack(packed, now).into()),)*
                }
            }

            /// See [`LimitAlgorithm::advance`]. A state of another algorithm starts over, so no
            /// other method meets one; if one did, it would deny.
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
                    $crate::Algorithm::$name($d limit) => match ($d($d state),+) {
                        ($d($crate::LimitState::$name($d own)),+) => $d body,
                        _ => $d other,
                    },)*
                }
            };
            ($d algorithm:expr, $d kind:ident($d limit:pat) => $d body:expr) => {
                match $d algorithm {
                    $($crate::Algorithm::$name($d limit) => {
                        type $d kind = $crate::$name;
                        $d body
                    })*
                }
            };
            ($d algorithm:expr, $d limit:pat => $d body:expr) => {
                match $d algorithm {
                    $($crate::Algorithm::$name($d limit) => $d body,)*
                }
            };
        }
    };
}

pub(super) use define_algorithms;
