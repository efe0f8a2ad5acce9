//! Lists of the last minute, the last hour and all time, against exact counts.

use proptest::prelude::*;

use super::*;

/// Lets time pass as the program does, which looks once a second whether a step is over.
fn pass(top: &Top, clock: &ManualClock, seconds: u64) {
    for _ in 0..seconds {
        clock.advance(SECOND);
        top.end_step();
    }
}

fn list(top: &Top, window: Window) -> TopList {
    top.list(&TopQuery { window, ..all(By::Hits) })
}

fn first(top: &Top, window: Window) -> Option<(String, u64, u64)> {
    let list = list(top, window);
    list.rows.first().map(|row| (user(row).to_owned(), row.count, row.error))
}

#[test]
fn who_is_busy_today_stands_above_who_was_yesterday() {
    let (top, clock) = top(16, 1);
    record(&top, "yesterday", 1_000_000, Outcome::Denied);
    pass(&top, &clock, 24 * 3_600);
    record(&top, "today", 1_000, Outcome::Denied);
    pass(&top, &clock, 300);
    record(&top, "now", 10, Outcome::Denied);
    let row = |user: &str, count| Some((user.to_owned(), count, 0));
    assert_eq!(first(&top, Window::Minute), row("now", 10));
    assert_eq!(first(&top, Window::TenMinutes), row("today", 1_000));
    assert_eq!(first(&top, Window::Hour), row("today", 1_000));
    assert_eq!(first(&top, Window::Start), row("yesterday", 1_000_000));
    assert_eq!(list(&top, Window::Minute).rows.len(), 1);
    assert_eq!(list(&top, Window::Hour).rows.len(), 2);
    assert_eq!(list(&top, Window::Hour).total, 1_010);
    let denied = top.list(&TopQuery { window: Window::Hour, ..all(By::Denied) });
    assert_eq!((denied.window, user(&denied.rows[0])), (Window::Hour, "today"));
}

#[test]
fn a_window_says_how_long_it_is() {
    let (top, clock) = top(4, 1);
    let seconds = || Window::ALL.map(|window| list(&top, window).seconds);
    for passed in 0..3 * 3_600 {
        let [minute, ten, hour, start] = seconds();
        assert_eq!(start, passed);
        assert!(
            minute == passed.min(minute) && minute >= passed.min(60) && minute <= 80,
            "{minute}"
        );
        assert!(ten >= passed.min(600) && ten <= 600 + 11 * 60 + 20, "{ten}");
        assert!(hour >= passed.min(3_600) && hour <= 3_600 + 11 * 60 + 20, "{hour}");
        pass(&top, &clock, 1);
    }
    // A step that ends late is longer, and so are the windows.
    clock.advance(500 * SECOND);
    let [late, ..] = seconds();
    assert!((560..=580).contains(&late), "{late}");
    top.end_step();
    assert_eq!(seconds()[0], late - 20);
    pass(&top, &clock, 60);
    assert!(seconds()[0] <= 80);
}

#[test]
fn lists_are_of_one_domain_and_one_rule() {
    let redact = vec!["api_key".to_owned()];
    let options = TopOptions { entries: 10, redact, threads: 1, share: false };
    let top = Top::new(options, Arc::new(ManualClock::new(0)));
    let count = |domain, rule, entries: &[Entry<'_>]| {
        let outcome = Outcome::Admitted(&[]);
        top.record(&Recorded { domain, entries, rule, hits: 1, outcome });
    };
    count("a", "user", &[("user", "1")]);
    count("a", "path", &[("path", "1")]);
    count("b", "user", &[("user", "1")]);
    count("b", "api_key_s3cret", &[("api_key", "s3cret")]);
    let rows = |domain, rule| {
        let list = top.list(&TopQuery { domain, rule, ..all(By::Hits) });
        assert_eq!(list.total, 4);
        list.rows
    };
    assert_eq!(rows(Some("a"), None).len(), 2);
    assert_eq!(rows(None, Some("user")).len(), 2);
    assert_eq!(rows(Some("b"), Some("user")).len(), 1);
    assert_eq!(rows(Some("c"), None).len() + rows(Some("a"), Some("use")).len(), 0);
    let shown = rows(Some("b"), Some("api_key_s3cret")).remove(0).rule.unwrap();
    assert!(shown.starts_with("api_key_hash:"), "{shown}");
    assert_eq!(rows(None, Some(&shown)).len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    /// Hits of a user on a thread.
    Hit(u8, u64, usize),
    /// Seconds, at the end of which a step ends if it is over.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // The smaller the number of a user, the more often it comes.
    let user =
        (any::<u8>(), any::<u8>()).prop_map(|(a, b)| (u16::from(a) * u16::from(b) / 256) as u8);
    prop_oneof![
        30 => (user, 1..20_u64, 0..2_usize).prop_map(|(user, hits, thread)| Step::Hit(user, hits, thread)),
        2 => (1..90_u64).prop_map(Step::Pass),
        1 => (500..3_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// In each window, of exactly the seconds that it says.
    #[test]
    fn counts_of_windows_are_within_the_reported_error(
        steps in prop::collection::vec(step(), 1..1_500),
        entries in 1..60_usize,
    ) {
        let (top, clock) = top(entries, 2);
        let mut hits: Vec<(Micros, String, u64)> = Vec::new();
        let last = steps.len() - 1;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Hit(name, count, thread) => {
                    let (name, lists) = (name.to_string(), &top.lists[thread]);
                    let (domain, entries) = ("d", &[("user", name.as_str())][..]);
                    let outcome = Outcome::Denied;
                    let recorded = Recorded { domain, entries, rule: "user", hits: count, outcome };
                    top.record_in(lists, &recorded);
                    hits.push((clock.monotonic(), name, count));
                }
                Step::Pass(seconds) => {
                    // No hit is at the moment at which a step ends.
                    clock.advance(seconds * SECOND);
                    top.end_step();
                    clock.advance(SECOND);
                }
            }
            if number % 100 > 0 && number < last {
                continue;
            }
            for (window, by) in Window::ALL.into_iter().flat_map(|w| [(w, By::Hits), (w, By::Denied)]) {
                let list = top.list(&TopQuery { window, ..all(by) });
                let from = clock.monotonic() - list.seconds * SECOND;
                let mut exact: HashMap<String, u64> = HashMap::new();
                for (_, user, count) in hits.iter().filter(|(at, ..)| *at >= from) {
                    *exact.entry(user.clone()).or_default() += count;
                }
                check(&list, &exact);
            }
        }
    }
}

/// A million keys over three hours, of which some are busy all the time.
#[test]
fn frequent_keys_of_an_hour_are_nearly_exact() {
    let (top, clock) = top(1_024, 1);
    let (mut random, mut hits) = (zipf::Random(1), Vec::new());
    for second in 0..3 * 3_600_u64 {
        for _ in 0..30 {
            let key = random.key() as u32;
            record(&top, &key.to_string(), 1, Outcome::Denied);
            hits.push((second, key));
        }
        pass(&top, &clock, 1);
    }
    for window in Window::ALL {
        let list = list(&top, window);
        let from = 3 * 3_600 - list.seconds;
        let mut exact: HashMap<String, u64> = HashMap::new();
        for (_, key) in hits.iter().filter(|(second, _)| *second >= from) {
            *exact.entry(key.to_string()).or_default() += 1;
        }
        check(&list, &exact);
        println!(
            "{window:?}: unlisted {} of {}, {} rows",
            list.unlisted,
            list.total,
            list.rows.len()
        );
        for row in &list.rows[..10] {
            assert!(row.error * 20 <= row.count, "{row:?}");
        }
        for row in list.rows.iter().step_by(50) {
            println!("{} ± {}", row.count, row.error);
        }
        assert!(list.unlisted * 300 < list.total, "{} of {}", list.unlisted, list.total);
    }
}
