//! Keys near a limit.

use proptest::prelude::*;

use super::*;

/// Records an admission of hits near a limit, with what was used of its n, and its reset.
fn record_near(top: &Top, user: &str, hits: u64, (used, n, reset_after): (u64, u32, Micros)) {
    let limit = NearAdmission { limit: 0, name: "", unnamed: None, used, n, reset_after };
    record(top, user, hits, Outcome::Admitted(&[limit]));
}

/// User, used, n and reset of each row.
fn rows(top: &Top) -> Vec<(String, u64, u32, u64)> {
    let list = top.list(&all(By::Near));
    let row = |row: &TopRow| {
        let near = row.near.clone().expect("a limit");
        (user(row).to_owned(), near.used, near.n, near.reset_ms)
    };
    list.rows.iter().map(row).collect()
}

#[test]
fn the_closest_to_their_limit_are_first_until_their_reset() {
    let (top, clock) = top(10, 1);
    record_near(&top, "a", 1, (8, 10, 60 * SECOND));
    record_near(&top, "b", 1, (90, 100, 30 * SECOND));
    record_near(&top, "c", 2, (5, 5, 1));
    record(&top, "d", 1, Outcome::Admitted(&[]));
    record(&top, "e", 1, Outcome::Denied);
    let (a, b) = (("a".to_owned(), 8, 10, 60_000), ("b".to_owned(), 90, 100, 30_000));
    assert_eq!(rows(&top), [("c".to_owned(), 5, 5, 1), b, a]);
    clock.advance(SECOND);
    record_near(&top, "a", 1, (9, 10, 59 * SECOND));
    assert_eq!(rows(&top)[0], ("a".to_owned(), 9, 10, 59_000));
    clock.advance(29 * SECOND);
    assert_eq!(rows(&top), [("a".to_owned(), 9, 10, 30_000)]);
    let list = top.list(&all(By::Near));
    assert_eq!((list.rows[0].count, list.rows[0].error, list.seconds), (2, 0, 30));
    clock.advance(30 * SECOND);
    assert_eq!(rows(&top), []);
}

#[test]
fn each_limit_of_a_key_has_a_row() {
    let (top, _) = top(10, 1);
    for (limit, name, used) in [(1, "burst", 5), (2, "daily", 9), (1, "burst", 4), (2, "day", 10)] {
        let (n, reset_after) = (10, SECOND);
        let limit = NearAdmission { limit, name, unnamed: None, used, n, reset_after };
        record(&top, "a", 1, Outcome::Admitted(&[limit]));
    }
    record_near(&top, "a", 1, (8, 10, SECOND));
    let list = top.list(&all(By::Near));
    let limits = list.rows.iter().filter_map(|row| row.near.as_ref());
    let limits: Vec<_> = limits.map(|near| (near.limit.as_str(), near.used)).collect();
    assert_eq!(limits, [("day", 10), ("", 8), ("burst", 4)]);
    assert_eq!(top.list(&all(By::Hits)).rows.len(), 1);
}

#[test]
fn threads_agree_on_the_last_admission() {
    let (top, clock) = top(10, 2);
    let on = |thread: usize, used| {
        let lists = &top.lists[thread];
        let (limit, n, reset_after) = (0, 10, SECOND);
        let limit = NearAdmission { limit, name: "", unnamed: None, used, n, reset_after };
        let (domain, entries, outcome) = ("d", &[("user", "a")], Outcome::Admitted(&[limit]));
        let recorded = Recorded { domain, entries, rule: "", hits: 1, outcome };
        top.record_in(lists, &recorded);
        clock.advance(1_000);
    };
    on(0, 8);
    on(1, 9);
    assert_eq!(rows(&top), [("a".to_owned(), 9, 10, 999)]);
    on(0, 10);
    assert_eq!(rows(&top), [("a".to_owned(), 10, 10, 999)]);
    assert_eq!(top.list(&all(By::Near)).rows[0].count, 3);
}

#[test]
fn when_all_rows_are_taken_the_newest_has_one() {
    let (top, _) = top(4, 1);
    for number in 0..100 {
        record_near(&top, &number.to_string(), 1, (10, 10, SECOND));
        assert!(rows(&top).iter().any(|row| row.0 == number.to_string()));
    }
    assert!(top.list(&all(By::Near)).unlisted > 0);
}

#[derive(Clone, Debug)]
enum Step {
    /// A user, used, and the time until the reset.
    Near(u8, u64, Micros),
    Pass(Micros),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), 8..=10_u64, 1..10_000_u64)
            .prop_map(|(user, used, reset)| Step::Near(user, used, reset)),
        1 => (1..5_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// As long as no more keys than rows are near their limit, the list is exact; and counts always
    /// are within the reported error.
    #[test]
    fn the_list_is_exact(steps in prop::collection::vec(step(), 1..600), entries in 8..80_usize) {
        let (top, clock) = top(entries, 1);
        let mut exact: HashMap<u8, (u64, Micros)> = HashMap::new();
        let mut counts: HashMap<String, u64> = HashMap::new();
        let last = steps.len() - 1;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Pass(time) => clock.advance(time),
                Step::Near(user, used, reset) => {
                    let now = clock.monotonic();
                    let live = |user: &u8| exact.get(user).is_some_and(|(_, reset)| *reset > now);
                    let more = usize::from(!live(&user));
                    if exact.keys().filter(|user| live(user)).count() + more > entries {
                        continue;
                    }
                    exact.insert(user, (used, now + reset));
                    *counts.entry(user.to_string()).or_default() += 2;
                    record_near(&top, &user.to_string(), 2, (used, 10, reset));
                }
            }
            if number % 40 > 0 && number < last {
                continue;
            }
            let now = clock.monotonic();
            let live = exact.iter().filter(|(_, (_, reset))| *reset > now);
            let mut wanted: Vec<_> = live
                .map(|(user, (used, reset))| {
                    (user.to_string(), *used, 10, (reset - now).div_ceil(1_000))
                })
                .collect();
            let mut rows = rows(&top);
            wanted.sort();
            rows.sort();
            prop_assert_eq!(rows, wanted);
            for row in top.list(&all(By::Near)).rows {
                let count = counts[user(&row)];
                prop_assert!((row.count - row.error..=row.count).contains(&count), "{:?}", row);
            }
        }
    }
}

#[test]
fn keys_past_their_reset_are_not_missing() {
    let (top, clock) = top(4, 1);
    let unlisted = || top.list(&all(By::Near)).unlisted;
    for number in 0..20 {
        record_near(&top, &number.to_string(), 1, (10, 10, SECOND));
        clock.advance(SECOND);
        assert_eq!(unlisted(), 0);
    }
    for number in 0..20 {
        record_near(&top, &number.to_string(), 1, (10, 10, SECOND));
    }
    assert!(unlisted() > 0, "more than there are rows for");
}
