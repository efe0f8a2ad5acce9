//! Small sketches and arbitrary streams.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever the order, the weights and the number of sketches.
    #[test]
    fn counts_are_within_the_reported_error(
        stream in prop::collection::vec((0..3_usize, 0..40_u8, 1..100_u64), 1..500),
        entries in 1..12_usize,
    ) {
        let mut exact = HashMap::new();
        let (top, _) = top(entries, 3);
        for (thread, user, hits) in stream {
            // As that thread would.
            let lists = &top.lists[thread];
            let user = user.to_string();
            let recorded = Recorded {
                domain: "d",
                entries: &[("user", &user)],
                rule: "user",
                hits,
                outcome: Outcome::Denied,
            };
            top.record_in(lists, &recorded);
            *exact.entry(user).or_default() += hits;
        }
        for by in [By::Hits, By::Denied] {
            let list = top.list(&all(by));
            check(&list, &exact);
            prop_assert!(list.unlisted <= list.total / entries as u64);
            prop_assert!(list.rows.len() <= 3 * entries);
            prop_assert!(list.rows.iter().all(|row| row.error <= list.total / entries as u64));
        }
    }
}

#[test]
fn counts_are_exact_while_all_keys_have_rows() {
    let (top, _) = top(10, 1);
    for number in 0..10 {
        for _ in 0..=number {
            record(&top, &number.to_string(), 3, Outcome::Admitted(&[]));
        }
    }
    let list = top.list(&all(By::Hits));
    let rows: Vec<_> = list.rows.iter().map(|row| (user(row), row.count, row.error)).collect();
    assert_eq!(rows[..2], [("9", 30, 0), ("8", 27, 0)]);
    assert_eq!((rows.len(), list.total, list.unlisted), (10, 165, 0));
    assert_eq!(top.list(&all(By::Denied)).rows, []);
}

#[test]
fn a_key_that_becomes_frequent_replaces_others() {
    let (top, _) = top(4, 1);
    for number in 0..100 {
        record(&top, &number.to_string(), 1, Outcome::Admitted(&[]));
    }
    for _ in 0..50 {
        record(&top, "new", 1, Outcome::Admitted(&[]));
    }
    let list = top.list(&TopQuery { limit: 1, ..all(By::Hits) });
    assert_eq!(user(&list.rows[0]), "new");
    assert!(list.rows[0].count - list.rows[0].error >= 25, "{list:?}");
}

#[test]
fn totals_saturate() {
    let (top, _) = top(1, 1);
    for user in ["a", "a", "b", "c"] {
        record(&top, user, u64::MAX, Outcome::Denied);
    }
    let list = top.list(&all(By::Denied));
    assert_eq!((list.total, list.rows[0].count), (u64::MAX, u64::MAX));
}
