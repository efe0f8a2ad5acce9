//! Detects clients that reset most of their requests.

/// The number of resets beyond which a connection is closed. A client whose requests time out while
/// this process is stalled resets all of them, so this is five seconds of 2000 requests per second.
const MAX_RESETS: u32 = 10_000;

/// The requests of one connection that were reset before they were read, minus all others.
#[derive(Debug, Default)]
pub(super) struct ResetCounter(u32);

impl ResetCounter {
    /// Counts a request. Returns whether there are too many resets.
    pub fn count(&mut self, reset: bool) -> bool {
        self.0 = if reset { self.0 + 1 } else { self.0.saturating_sub(1) };
        self.0 > MAX_RESETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_resets_all_requests_exceeds_the_limit() {
        let mut resets = ResetCounter::default();
        assert!(!(0..MAX_RESETS).any(|_| resets.count(true)));
        assert!(resets.count(true));
    }

    #[test]
    fn a_client_that_resets_half_of_its_requests_does_not() {
        let mut resets = ResetCounter::default();
        // Stalls of a second at 2000 requests a second, each followed by a good second.
        let stalls = (0..20 * MAX_RESETS).map(|i| i / 2_000 % 2 == 0);
        assert!(!stalls.into_iter().any(|reset| resets.count(reset)));
    }
}
