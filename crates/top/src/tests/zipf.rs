//! A million keys, of which the k-th is used 1/k as often as the first.

use super::*;

const KEYS: f64 = 1_000_000.0;

/// `SplitMix64`.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A key from 1 on.
    pub fn key(&mut self) -> u64 {
        let fraction = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        KEYS.powf(fraction) as u64
    }
}

/// Sends requests of threads; returns the exact counts.
fn send(top: &Top, threads: u64, requests: u64, hits: fn(u64) -> u64) -> HashMap<String, u64> {
    let thread = |number| {
        let (mut random, mut exact) = (Random(number), HashMap::<_, u64>::new());
        for _ in 0..requests {
            let key = random.key();
            let (user, hits) = (format!("user {key}"), hits(random.next()));
            record(top, &user, hits, Outcome::Denied);
            *exact.entry(user).or_default() += hits;
        }
        exact
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || thread(number))).collect();
        let mut exact: HashMap<String, u64> = HashMap::new();
        for (user, hits) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            *exact.entry(user).or_default() += hits;
        }
        exact
    })
}

/// Checks the list, and that every key with more than its part of all hits is in it.
fn check_all(top: &Top, exact: &HashMap<String, u64>, entries: u64) {
    for by in [By::Hits, By::Denied] {
        let list = top.list(&all(by));
        check(&list, exact);
        assert!(list.unlisted <= list.total / entries, "{} of {}", list.unlisted, list.total);
        // The list is of use: its first rows are those of the most frequent keys, and nearly exact.
        for (row, key) in list.rows.iter().zip(1..=5) {
            assert_eq!(user(row), format!("user {key}"));
            assert!(row.error * 50 < row.count, "{row:?}");
        }
    }
}

#[test]
fn one_thread_counts_within_the_reported_error() {
    let (top, _) = top(1024, 1);
    let exact = send(&top, 1, 400_000, |_| 1);
    assert!(exact.len() > 100_000);
    check_all(&top, &exact, 1024);
}

#[test]
fn merged_threads_count_within_the_reported_error() {
    let (top, _) = top(1024, 4);
    let exact = send(&top, 4, 100_000, |_| 1);
    check_all(&top, &exact, 1024);
}

#[test]
fn hits_of_different_weights_are_counted_within_the_reported_error() {
    let (top, _) = top(256, 2);
    let exact = send(&top, 2, 100_000, |random| 1 + random % 4);
    check_all(&top, &exact, 256);
}
