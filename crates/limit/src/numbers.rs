//! New numbers (`n`, burst) for a limit that an operator changes at run time. The counts of the limit continue.

/// Numbers that replace those of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The hits that one period allows.
    pub n: u32,
    /// The capacity; none keeps that of the limit, or `n` if the limit's capacity is its own `n`.
    pub burst: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NumbersChange {
    /// `n` of the limit as it is.
    pub old: u32,
    pub new: Numbers,
}

/// Why a limit cannot have some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumbersError {
    /// The algorithm has no burst.
    #[error("its algorithm takes no burst")]
    NoBurst,
    /// The numbers are too large for exact arithmetic.
    #[error("its algorithm cannot compute exactly with these numbers")]
    TooLarge,
    /// The burst takes longer than [`MAX_WAIT`](crate::MAX_WAIT) to come back.
    #[error("these numbers take too long to come back")]
    TooSlow,
}

impl NumbersChange {
    /// Returns the new `n` for an algorithm without a burst.
    pub(crate) fn without_burst(self) -> Result<u32, NumbersError> {
        self.new.burst.map_or(Ok(self.new.n), |_| Err(NumbersError::NoBurst))
    }

    /// Returns the new capacity of a limit whose capacity is `old`.
    pub(crate) fn burst(self, old: u32) -> u32 {
        let unchanged = if old == self.old { self.new.n } else { old };
        self.new.burst.unwrap_or(unchanged)
    }

    /// Returns an amount that changes in proportion to `n`, at least 1.
    pub(crate) fn scale(self, amount: u32) -> u32 {
        if self.old == 0 || self.new.n == 0 {
            return amount;
        }
        let scaled = u64::from(amount) * u64::from(self.new.n);
        u32::try_from(scaled.div_ceil(self.old.into())).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Gcra, Limit, Plan, SECOND, TokenBucket, Unit};

    fn limit(n: u32, algorithm: Algorithm) -> Limit {
        Limit { algorithm, ..Limit::fixed_window(n, Unit::Hour, 1).unwrap() }
    }

    fn bucket(n: u32, capacity: u32, amount: u32) -> Limit {
        let interval = 3_600 * SECOND;
        let bucket = TokenBucket { capacity, amount, interval, strict: false, max_debt: capacity };
        limit(n, Algorithm::TokenBucket(bucket))
    }

    #[test]
    fn the_shape_stays_so_that_counts_continue() {
        let gcra =
            |n, burst| limit(n, Algorithm::Gcra(Gcra::new(n, 3_600 * SECOND, burst, 0).unwrap()));
        let limits = [
            Limit::fixed_window(5, Unit::Hour, 1).unwrap(),
            bucket(5, 5, 5),
            gcra(60, 10),
            gcra(0, 0),
        ];
        for old in limits {
            for n in [0, 1, 7, 1_000] {
                let new = old.with_numbers(Numbers { n, burst: None }).unwrap();
                let shape = |limit: &Limit| Plan::new(vec![limit.clone()]).shape().to_owned();
                assert_eq!((shape(&new), new.requests_per_unit), (shape(&old), n), "{old}");
            }
        }
    }

    #[test]
    fn a_capacity_of_its_own_stays_and_the_rate_follows_n() {
        let numbers = |n, burst| Numbers { n, burst };
        // By default the capacity is n.
        assert_eq!(bucket(5, 5, 5).with_numbers(numbers(8, None)).unwrap(), bucket(8, 8, 8));
        // One an hour, up to ten at once.
        assert_eq!(bucket(1, 10, 1).with_numbers(numbers(2, None)).unwrap(), bucket(2, 10, 2));
        assert_eq!(bucket(1, 10, 1).with_numbers(numbers(1, Some(4))).unwrap(), bucket(1, 4, 1));
    }

    #[test]
    fn numbers_that_do_not_fit_are_errors() {
        let fixed = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let numbers = Numbers { n: 5, burst: Some(5) };
        assert_eq!(fixed.with_numbers(numbers), Err(NumbersError::NoBurst));
        let gcra = limit(60, Algorithm::Gcra(Gcra::new(60, 3_600 * SECOND, 10, 0).unwrap()));
        let numbers = Numbers { n: 1, burst: Some(u32::MAX) };
        assert_eq!(gcra.with_numbers(numbers), Err(NumbersError::TooSlow));
        let numbers = Numbers { n: 4_000_000_007, burst: Some(u32::MAX) };
        assert_eq!(gcra.with_numbers(numbers), Err(NumbersError::TooLarge));
    }
}
