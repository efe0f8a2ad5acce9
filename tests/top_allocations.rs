//! Allocations of counting a key.

#[path = "support/allocator.rs"]
mod allocator;

use std::sync::Arc;

use allocator::{allocations, peak};
use weir_common::clock::ManualClock;
use weir_top::{By, NearAdmission, Outcome, Recorded, Top, TopOptions, TopQuery, Window};

fn record(top: &Top, user: &str, outcome: Outcome<'_>) {
    let (domain, entries) = ("d", &[("user", user)][..]);
    top.record(&Recorded { domain, entries, rule: "user", hits: 1, outcome });
}

fn top(entries: usize) -> Top {
    let options = TopOptions { entries, redact: Vec::new(), threads: 1, share: false };
    Top::new(options, Arc::new(ManualClock::new(0)))
}

const NEAR: NearAdmission<'static> =
    NearAdmission { limit: 0, name: "daily", unnamed: None, used: 8, n: 10, reset_after: 1_000 };

#[test]
fn a_key_with_a_row_allocates_nothing() {
    let top = top(4);
    let long = "x".repeat(10_000);
    for user in ["a", &long] {
        for outcome in [Outcome::Admitted(&[]), Outcome::Denied, Outcome::Admitted(&[NEAR])] {
            record(&top, user, outcome);
            assert_eq!(allocations(|| record(&top, user, outcome)), 0, "{outcome:?}");
        }
    }
}

#[test]
fn rare_keys_seldom_get_a_row_and_memory_is_bounded() {
    let top = top(1024);
    let users: Vec<String> = (0..200_000).map(|i| format!("{i:06}{}", "x".repeat(2_000))).collect();
    let count = || users.iter().for_each(|user| record(&top, user, Outcome::Denied));
    let mut allocated = 0;
    let bytes = peak(|| allocated = allocations(count));
    // Two lists, each with 1024 rows of less than a KiB, and their indices and cells.
    assert!(bytes < 2 * 1024 * 1024, "{bytes} bytes");
    assert!(allocated < 2 * users.len() / 4, "{allocated} allocations");
}

/// The lists of all windows take at most twice the memory of lists of all time, which is what sketches take with
/// cells of eight bytes.
#[test]
fn windows_take_at_most_twice_the_memory_of_all_time() {
    for length in [4, 400] {
        let (clock, entries) = (Arc::new(ManualClock::new(0)), 1024);
        let options = TopOptions { entries, redact: Vec::new(), threads: 1, share: false };
        let end_steps = |steps: u32| {
            let top = Top::new(options.clone(), clock.clone());
            peak(|| {
                for step in 0..=steps {
                    for user in 0..2_000 {
                        let user = format!("{step:04}{user:0length$}");
                        record(&top, &user, Outcome::Denied);
                    }
                    if steps > 0 {
                        clock.advance(20_000_000);
                        top.end_step();
                        let _ = top.list(&TopQuery {
                            window: Window::Hour,
                            limit: 100,
                            ..TopQuery::new(By::Hits)
                        });
                    }
                }
            })
        };
        let all_time = end_steps(0) + 2 * 16 * entries * 4;
        let windows = end_steps(450);
        println!("keys of {length} bytes: {all_time} bytes, with windows {windows}");
        assert!(windows <= 2 * all_time, "keys of {length} bytes: {windows} of {all_time}");
    }
}
