//! The state of a gcra limit for one key: the theoretical arrival time (`tat`), a remainder, and how far `tat` was
//! ahead of the clock when it was written.
//!
//! **How far ahead** shows whether the clock has stepped back since: with time going on, `tat` comes closer. It is kept
//! in the upper 11 bits of the remainder's 32, rounded up by at most a 32nd and a tick (the unit of `tat`), so that
//! only refunds give hits back. The remainder is less than `n'`, the limit's hits per period in lowest terms. If `n'`
//! is [`REM_END`] or more, the remainder needs all bits, and the state does not know how far ahead `tat` was: after a
//! step back, these limits deny until the clock has caught up.

/// Remainders below this leave the upper bits to how far ahead `tat` was.
const REM_END: u64 = 1 << REM_BITS;
const REM_BITS: u32 = 21;

/// The upper bits of a state that knows how far ahead it was are above this. The remainder of a limit
/// with an `n'` up to 2^29 is never mistaken for it.
const KNOWN: u32 = 1 << 8;

/// Bits of the mantissa behind its first one.
const MANTISSA_BITS: u32 = 5;
const MANTISSA: u64 = 1 << MANTISSA_BITS;

/// The theoretical arrival time. The default is that of an empty level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Theoretical arrival time, in ticks since the epoch.
    pub tat: u64,
    /// By how much `tat` is too late, in `1/n'` ticks, less than `n'`; and in its upper bits, where `n'`
    /// leaves room, how far ahead `tat` was when it was written.
    pub tail: u32,
}

impl State {
    /// Returns the state whose arrival time is `ahead` ticks after `now`, and too late by `rem`.
    pub(super) fn new(now: u64, ahead: u64, rem: u64, n: u64) -> State {
        if ahead == 0 {
            // Otherwise it would be owed again after the clock steps back.
            return State::default();
        }
        let known = if n < REM_END { encode(ahead) << REM_BITS } else { 0 };
        State { tat: now.saturating_add(ahead), tail: known | rem as u32 }
    }

    /// Returns the remainder. One of another `n'` counts as less than a tick too.
    pub(super) fn rem(&self, n: u64) -> u64 {
        let tail = u64::from(self.tail);
        let rem = if n < REM_END { tail & (REM_END - 1) } else { tail };
        rem.min(n - 1)
    }

    /// Moves an arrival time that is `ahead` of `now` back to as far ahead as it was when it was written, if
    /// it was written more than a period after `now`. All in ticks.
    #[cold]
    pub(super) fn step_back(&mut self, now: u64, ahead: u64, n: u64, period: u64) {
        let known = self.tail >> REM_BITS;
        if n >= REM_END || known <= KNOWN {
            return;
        }
        let (most, unit) = decode(known);
        // What was rounded up counts as passed: nobody waits for longer than a period.
        if ahead > most && ahead > most - (unit - 1) + period {
            self.tat = now.saturating_add(most);
        }
    }
}

/// Returns a number of ticks in 11 bits, rounded up.
fn encode(ticks: u64) -> u32 {
    // No state is further ahead; with the addend the first bit of the mantissa is always set.
    let ticks = ticks.min(1 << 56) + MANTISSA;
    let exponent = ticks.ilog2() - MANTISSA_BITS;
    let mantissa = (ticks + (1 << exponent) - 1) >> exponent;
    // A mantissa that was rounded up to a power of two carries into the exponent.
    KNOWN + (exponent << MANTISSA_BITS) + mantissa as u32 - MANTISSA as u32
}

/// Returns what was encoded, and the unit that it was rounded up to.
fn decode(known: u32) -> (u64, u64) {
    let exponent = (known - KNOWN) >> MANTISSA_BITS;
    let mantissa = MANTISSA | u64::from(known) & (MANTISSA - 1);
    ((mantissa << exponent) - MANTISSA, 1 << exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_rounded_up_by_at_most_a_32nd_and_a_tick() {
        let near = |bits: u32| (1_u64 << bits).saturating_sub(40)..(1_u64 << bits) + 40;
        for ticks in (0..56).flat_map(near).chain([1_000_000, 864_000_000_000, 1 << 56]) {
            let known = encode(ticks);
            let (most, unit) = decode(known);
            assert!(
                (KNOWN + u32::from(ticks > 0)..1 << (32 - REM_BITS)).contains(&known),
                "{ticks}"
            );
            assert!(ticks <= most && most - (unit - 1) <= ticks, "{ticks}: {most} by {unit}");
            assert!(most - ticks <= ticks / 32 + 1, "{ticks}: {most}");
            // Written again after it was moved, it is as far ahead.
            assert_eq!(encode(most), known);
        }
    }

    #[test]
    fn earlier_versions_misread_less_than_a_tick() {
        for n in [1, 2, 7, 1_000_003, REM_END - 1, REM_END, u64::from(u32::MAX)] {
            let state = State::new(1 << 50, 12_345, n - 1, n);
            assert_eq!((state.tat, state.rem(n)), ((1 << 50) + 12_345, n - 1));
            // They read the whole as the remainder, which they clamp.
            assert!(u64::from(state.tail).min(n - 1) == n - 1);
            let theirs = State { tail: (n - 1) as u32, ..state };
            assert_eq!(theirs.rem(n), n - 1);
        }
    }
}
