//! Keys that are banned.

use super::*;

/// Records a hit that a ban denies.
fn record_ban(top: &Top, user: &str, ends_in: Micros) {
    record(top, user, 1, Outcome::Banned { ends_in });
}

/// User, count and the time until the end of each ban of a list.
fn bans(list: &TopList) -> Vec<(&str, u64, Option<u64>)> {
    list.rows.iter().map(|row| (user(row), row.count, row.banned_ms)).collect()
}

#[test]
fn banned_keys_are_listed_and_marked_until_their_bans_end() {
    let (top, clock) = top(10, 1);
    record(&top, "a", 3, Outcome::Denied);
    record_ban(&top, "a", 60 * SECOND);
    record_ban(&top, "b", 2 * SECOND);
    record(&top, "c", 1, Outcome::Denied);
    clock.advance(SECOND);
    // Later denials of the same ban.
    record_ban(&top, "a", 59 * SECOND);
    let list = top.list(&all(By::Banned));
    assert_eq!(bans(&list), [("a", 2, Some(59_000)), ("b", 1, Some(1_000))]);
    assert_eq!((list.total, list.unlisted, list.seconds, list.window), (3, 0, 1, Window::Start));
    let denied = top.list(&all(By::Denied));
    assert_eq!(bans(&denied), [("a", 5, Some(59_000)), ("b", 1, Some(1_000)), ("c", 1, None)]);
    clock.advance(SECOND);
    assert_eq!(bans(&top.list(&all(By::Banned))), [("a", 2, Some(58_000))]);
    assert_eq!(top.list(&all(By::Denied)).rows[1].banned_ms, None);
    top.end_ban("d", &[("user", "a")], "user");
    assert_eq!(bans(&top.list(&all(By::Banned))), []);
    // The hits denied by another ban start over.
    record_ban(&top, "b", 2_500);
    assert_eq!(bans(&top.list(&all(By::Banned))), [("b", 1, Some(3))]);
}

#[test]
fn the_ban_that_ends_first_makes_room() {
    let (top, clock) = top(2, 1);
    for (user, seconds) in [("a", 5), ("b", 1), ("c", 9), ("d", 3)] {
        record_ban(&top, user, seconds * SECOND);
    }
    let list = top.list(&all(By::Banned));
    assert_eq!(bans(&list), [("a", 1, Some(5_000)), ("c", 1, Some(9_000))]);
    clock.advance(6 * SECOND);
    record_ban(&top, "e", SECOND);
    let list = top.list(&all(By::Banned));
    assert_eq!(bans(&list), [("c", 1, Some(3_000)), ("e", 1, Some(1_000))]);
}

#[test]
fn of_several_threads_the_later_end_counts() {
    let (top, _) = top(10, 2);
    for (thread, seconds) in [(0, 7), (1, 8)] {
        let (domain, entries) = ("d", &[("user", "a")]);
        let outcome = Outcome::Banned { ends_in: seconds * SECOND };
        top.record_in(
            &top.lists[thread],
            &Recorded { domain, entries, rule: "user", hits: 2, outcome },
        );
    }
    assert_eq!(bans(&top.list(&all(By::Banned))), [("a", 4, Some(8_000))]);
    let others = Others::default();
    let list = top.list_all(&all(By::Banned), &others);
    assert_eq!((bans(&list), list.scope), (vec![("a", 4, Some(8_000))], Scope::Here));
    assert_eq!(bans(&top.list_all(&all(By::Denied), &others)), [("a", 4, Some(8_000))]);
}
