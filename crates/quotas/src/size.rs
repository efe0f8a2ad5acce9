//! How many hits a client is granted: twice what it needs until its next report, but no more than its part of what is
//! left, by its demand. Half of what is left stays for the next reports, until the window is about to end. Where there is
//! plenty, a grant is twice as large, so that not each report needs a new one. Pure.

use weir_limit::{Micros, SECOND};

/// How long a report counts for the demand of a bucket: clients report every 5 seconds.
pub const DEMAND_LASTS: Micros = 15 * SECOND;

/// The end of a window in which all that is left is granted.
const LAST_PART: Micros = 10 * SECOND;

/// There is plenty where a client's part would do for this many grants of the usual size.
const PLENTY_GRANTS: u128 = 8;

/// The end of a window in which no grant is twice as large: what is not used of it stays charged to longer limits.
const USUAL_PART: Micros = 30 * SECOND;

/// Added to each demand, so that a client without any gets a part, too.
const LEAST_DEMAND: u64 = 5;

/// What the clients of this replica want of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// What the client's last report had; none if it was the first, in whose time nothing was granted.
    pub own: Option<u64>,
    /// The sum of all clients, with this one.
    pub total: u64,
    pub clients: u64,
}

impl Demand {
    /// The hits that a client with this demand needs until its next report, with room for more.
    pub fn needed(own: u64) -> u64 {
        own.saturating_mul(2).saturating_add(10)
    }
}

/// Returns the hits to grant of what is left of a bucket, of which each of `replicas` replicas gets an equal part. The
/// window lasts for `window_left`. At least 1: what is left may be out of date.
pub fn size(left: u64, demand: Demand, replicas: u64, window_left: Micros) -> u32 {
    let shared = if window_left <= LAST_PART { left } else { left.div_ceil(2) };
    let Demand { own, total, clients } = demand;
    let (part, parts) = match own {
        None => (1, clients),
        Some(own) => {
            let least = LEAST_DEMAND.saturating_mul(clients);
            (own.saturating_add(LEAST_DEMAND), total.saturating_add(least))
        }
    };
    let parts = u128::from(parts.max(1)) * u128::from(replicas.max(1));
    let most = u128::from(shared) * u128::from(part) / parts;
    let wanted = own.map_or(u64::MAX, |own| {
        let needed = Demand::needed(own);
        let is_plenty = window_left > USUAL_PART && most / PLENTY_GRANTS >= needed.into();
        if is_plenty { needed.saturating_mul(2) } else { needed }
    });
    let hits = u64::try_from(most).unwrap_or(u64::MAX).min(wanted).min(left);
    // The client counts in 32 bits.
    u32::try_from(hits).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Micros = 60 * SECOND;

    fn demand(own: Option<u64>, total: u64, clients: u64) -> Demand {
        Demand { own, total, clients }
    }

    #[test]
    fn a_client_gets_twice_its_demand_while_there_is_enough() {
        assert_eq!(size(2 * 879, demand(Some(50), 50, 1), 1, MINUTE), 110);
        assert_eq!(size(2_000, demand(Some(0), 100, 2), 1, MINUTE), 10);
    }

    #[test]
    fn a_client_gets_twice_as_much_where_there_is_plenty() {
        assert_eq!(size(2 * 880, demand(Some(50), 50, 1), 1, MINUTE), 220);
        assert_eq!(size(1_000_000, demand(Some(0), 100, 2), 1, MINUTE), 20);
        // What is left over when a window ends stays charged to longer limits.
        assert_eq!(size(1_000_000, demand(Some(0), 100, 2), 1, USUAL_PART), 10);
    }

    #[test]
    fn what_is_left_is_shared_by_demand_clients_and_replicas() {
        assert_eq!(size(1000, demand(None, 0, 1), 1, MINUTE), 500);
        assert_eq!(size(1000, demand(None, 0, 4), 2, MINUTE), 62);
        assert_eq!(size(1000, demand(Some(395), 390 + 395 + 5, 2), 1, MINUTE), 250);
        assert_eq!(size(1000, demand(Some(1000), 1000, 1), 1, LAST_PART), 1000);
    }

    #[test]
    fn at_least_one_hit_is_asked_for_at_the_ends_of_all_ranges() {
        let ends = [0, 1, u64::from(u32::MAX), u64::MAX];
        for (left, own, total, clients, replicas) in combinations(ends) {
            for own in [None, Some(own)] {
                let hits = size(left, demand(own, total, clients), replicas, LAST_PART);
                assert!(u64::from(hits) <= left.max(1));
                assert!(hits >= 1);
            }
        }
    }

    fn combinations(ends: [u64; 4]) -> impl Iterator<Item = (u64, u64, u64, u64, u64)> {
        (0..4_usize.pow(5)).map(move |i| {
            let at = |digit: u32| ends[i / 4_usize.pow(digit) % 4];
            (at(0), at(1), at(2), at(3), at(4))
        })
    }
}
