//! What streams order, report by report.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::bucket::{Bucket, BucketId};
use crate::{ListedBucket, ReportError};
use weir_common::entry::OwnedEntry;
use weir_controls::{Action as Do, Control};

const RULES: &str = "domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: hourly, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: few, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: short, rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 10}}
  - key: path
    descriptors:
      - {key: client, rate_limit: {unit: minute, requests_per_unit: 1000}}
";

const A: &[Entry<'_>] = &[("user", "a")];
const HOURLY: &[Entry<'_>] = &[("hourly", "x")];
const FEW: &[Entry<'_>] = &[("few", "x")];
const PATH: &[Entry<'_>] = &[("path", "/"), ("client", "x")];
const CLIENT: &[Entry<'_>] = &[("client", "x"), ("path", "/")];

/// None: the bucket is abandoned.
type Ordered = Option<(Order, u32)>;
type Reported = (Option<ReportedId<'static>>, Usage);
type Sent = Result<Vec<Ordered>, ReportError>;

/// A stream that mostly reports one bucket, at milliseconds of the first window.
struct One {
    bench: Bench,
    stream: Stream,
    bucket: &'static [Entry<'static>],
}

impl One {
    fn new(bucket: &'static [Entry<'static>]) -> One {
        One::with(bucket, OPTIONS)
    }

    fn with(bucket: &'static [Entry<'static>], options: QuotaOptions) -> One {
        let bench = Bench::new(RULES, options);
        let stream = bench.open();
        One { bench, stream, bucket }
    }

    fn at(&mut self, ms: u64) -> &mut Stream {
        self.bench.clock.set(START + ms * 1_000);
        &mut self.stream
    }

    fn report(&mut self, ms: u64, admitted: u64, denied: u64) -> Vec<Ordered> {
        let bucket = Some(id(self.bucket));
        self.send(ms, "d", &[(bucket, usage(admitted, denied))]).expect("a valid report")
    }

    fn send(&mut self, ms: u64, domain: &str, reports: &[Reported]) -> Sent {
        self.at(ms).report(message(domain, reports.iter().cloned()), |_| true)?;
        Ok(orders(sent(&mut self.stream)))
    }

    fn due(&mut self, ms: u64) -> Vec<Ordered> {
        self.at(ms).due();
        orders(sent(&mut self.stream))
    }

    fn until_due(&self) -> u64 {
        self.stream.until_due().expect("a bucket that waits").as_millis() as u64
    }

    fn follow(&mut self, ms: u64) -> Vec<Ordered> {
        self.at(ms).follow();
        orders(sent(&mut self.stream))
    }

    fn set_rules(&self, rules: &str) {
        self.bench.rules.set_rules(Arc::new(compiled(rules)));
    }

    fn left(&self) -> u64 {
        self.bench.ask(self.bucket, 0).into()
    }

    fn buckets(&self) -> usize {
        self.bench.quotas.list(0, |_, _| true).1
    }

    fn excess(&self) -> u64 {
        self.bench.quotas.counts.excess.load(Relaxed)
    }

    fn listed(&self) -> ListedBucket {
        self.bench.quotas.list(1, |domain, _| domain == "d").0.remove(0)
    }
}

fn orders(actions: Vec<QuotaAction>) -> Vec<Ordered> {
    actions.into_iter().map(|action| action.order).collect()
}

fn pair(hits: u32, seconds: u32) -> Vec<Ordered> {
    vec![Some((Order::Deny, seconds)), Some((Order::Admit(hits), seconds))]
}

fn deny(seconds: u32) -> Vec<Ordered> {
    vec![Some((Order::Deny, seconds))]
}

const ALLOW: [Ordered; 1] = [Some((Order::Allow, 60))];

#[test]
fn a_new_bucket_gets_a_denial_and_a_grant_in_whole_seconds_that_end_before_the_window() {
    for (ms, seconds) in [(0, 20), (38_000, 20), (39_500, 19), (50_000, 8), (57_900, 1)] {
        let mut one = One::new(A);
        assert_eq!(one.report(ms, 0, 1), pair(500, seconds), "{ms}");
        assert_eq!((one.left(), one.until_due()), (500, u64::from(seconds) * 1_000 - 200));
    }
}

#[test]
fn nothing_is_granted_in_the_last_two_seconds() {
    let mut one = One::new(A);
    assert_eq!(one.report(58_100, 0, 1), deny(20));
    // The clock of the store may be slower, by a thousandth.
    assert_eq!((one.left(), one.until_due()), (1_000, 1_901));
    // A report within a second waits, and is settled with the next order.
    assert_eq!(one.report(58_100, 0, 9), []);
    assert_eq!(one.until_due(), 1_000);
    assert_eq!(one.due(59_100), []);
    assert_eq!(one.due(60_002), pair(56, 20));
}

#[test]
fn a_grant_is_renewed_before_it_ends_if_the_bucket_was_used_lately() {
    let mut one = One::new(A);
    assert_eq!(one.report(0, 0, 1), pair(500, 20));
    assert_eq!(one.report(5_000, 0, 0), []);
    assert_eq!(one.due(19_799), []);
    assert_eq!(one.due(19_800), pair(20, 20));
    assert_eq!((one.report(25_000, 0, 0), one.left()), (vec![], 980));
    assert_eq!(one.due(39_600), deny(23));
}

#[test]
fn where_there_is_plenty_a_grant_is_for_three_reports_and_takes_what_was_not_used() {
    let mut one = One::new(HOURLY);
    assert_eq!((one.report(0, 0, 1), one.left()), (pair(500, 20), 500));
    assert_eq!((one.report(5_000, 5, 0), one.left()), (pair(40, 20), 460));
    // More than the next grant can take is returned at once.
    assert_eq!((one.report(10_000, 5, 0), one.left()), (vec![], 950));
    assert_eq!((one.report(15_000, 5, 0), one.left()), (vec![], 950));
    assert_eq!((one.report(20_000, 5, 0), one.left()), (pair(40, 20), 910));
    assert_eq!((one.report(25_000, 5, 0), one.left()), (vec![], 910));
    assert_eq!((one.report(30_000, 5, 0), one.left()), (vec![], 910));
    // 15 hits of all grants before this one are neither reported nor returned.
    assert_eq!((one.report(35_000, 5, 0), one.left()), (pair(40, 20), 885));
    let bucket = one.listed();
    assert_eq!((bucket.granted, bucket.admitted, bucket.returned), (620, 35, 505));
    // A client that needs more gets it at once.
    assert_eq!(one.report(40_000, 40, 10), pair(110, 20));
}

#[test]
fn where_nothing_is_left_it_is_denied_until_the_next_window_which_is_granted_at_once() {
    let mut one = One::new(FEW);
    one.bench.ask(FEW, 3);
    assert_eq!(one.report(10_000, 0, 1), deny(53));
    assert_eq!(one.report(15_000, 0, 5), []);
    assert_eq!(one.until_due(), 45_045);
    assert_eq!(one.due(60_045), pair(2, 20));
    assert_eq!(one.left(), 1);
}

#[test]
fn an_idle_bucket_shrinks_to_one_hit_and_is_abandoned() {
    let mut one = One::new(A);
    assert_eq!(one.report(0, 0, 1), pair(500, 20));
    assert_eq!(one.report(5_000, 0, 0), []);
    assert_eq!(one.report(10_000, 0, 0), []);
    assert_eq!(one.report(15_000, 0, 0), pair(1, 20));
    assert_eq!(one.left(), 499);
    assert_eq!(one.report(20_000, 0, 0), [None]);
    assert_eq!((one.left(), one.buckets(), one.stream.until_due()), (999, 0, None));
    // Its next request is reported at once.
    assert!(matches!(one.report(21_000, 0, 1)[..], [_, Some((Order::Admit(_), 20))]));
}

#[test]
fn a_bucket_that_begins_to_be_idle_keeps_little_where_others_have_a_load() {
    let mut one = One::new(A);
    let mut other = one.bench.open();
    let mut report = |one: &mut One, ms: u64, admitted: u64, denied: u64| {
        one.bench.clock.set(START + ms * 1_000);
        let reports = [(Some(id(A)), usage(admitted, denied))];
        other.report(message("d", reports.into_iter()), |_| true).expect("a valid report");
        orders(sent(&mut other))
    };
    assert_eq!(report(&mut one, 0, 0, 1), pair(500, 20));
    assert_eq!(one.report(1_000, 0, 1), pair(125, 20));
    assert_eq!(report(&mut one, 5_000, 500, 900), pair(187, 20));
    assert_eq!(one.report(6_000, 0, 0), pair(1, 20));
    // Its hits are back a report later; it is granted no more until it has requests.
    assert_eq!((one.report(11_000, 0, 0), one.left()), (vec![], 312));
    // Denials show that nothing is left of a grant, although some hits of all may not be reported yet.
    assert_eq!(report(&mut one, 11_000, 180, 1_000), pair(93, 20));
}

#[test]
fn an_idle_bucket_without_hits_left_stays_denied_to_the_end_of_the_window() {
    let mut one = One::new(FEW);
    one.bench.ask(FEW, 3);
    assert_eq!(one.report(0, 0, 1), deny(63));
    for ms in [5_000, 10_000, 15_000, 20_000, 25_000] {
        assert_eq!(one.report(ms, 0, 0), []);
    }
    assert_eq!(one.until_due(), 62_800 - 25_000);
    assert_eq!(one.due(62_800), [None]);
}

#[test]
fn without_limits_all_is_allowed_for_a_minute_and_renewed() {
    for bucket in [&[("free", "x")], &[("unknown", "x")]] {
        let mut one = One::new(bucket);
        assert_eq!(one.report(0, 0, 1), ALLOW);
        assert_eq!(one.report(30_000, 100, 0), []);
        assert_eq!(one.until_due(), 29_800);
        assert_eq!(one.due(59_800), ALLOW);
    }
}

#[test]
fn controls_are_followed_and_their_end() {
    let mut one = One::new(A);
    one.report(0, 0, 1);
    assert_eq!(one.follow(500), []);
    let set = |one: &One, action| {
        let [id, reason, by] = ["c", "", ""].map(str::to_owned);
        let (domain, entries) = ("d".to_owned(), OwnedEntry::copied(A.iter().copied()));
        let (exact, text, except, until, at) = Default::default();
        let control =
            Control { id, domain, entries, exact, text, action, except, until, reason, by, at };
        one.bench.rules.set_controls(vec![Arc::new(control)]);
    };
    set(&one, Do::Block);
    assert_eq!(one.follow(1_000), deny(60));
    assert_eq!(one.follow(1_500), []);
    one.bench.rules.set_controls(vec![]);
    assert_eq!(one.follow(2_000), pair(250, 20));
    set(&one, Do::Allow { count: true });
    assert_eq!(one.follow(2_500), ALLOW);
}

#[test]
fn a_rule_in_shadow_mode_allows_and_is_charged() {
    let mut one = One::new(&[("shadow", "x")]);
    assert_eq!((one.report(0, 3, 0), one.left()), (ALLOW.to_vec(), 7));
    assert_eq!((one.report(5_000, 4, 0), one.left()), (vec![], 3));
    assert_eq!((one.report(10_000, 20, 0), one.left()), (vec![], 0));
    assert_eq!(one.excess(), 0);
}

#[test]
fn a_report_that_had_to_wait_returns_what_was_replaced_before_it_arrived() {
    for (waited, returned) in [(0, 300), (1, 300), (2, 0)] {
        let mut one = One::new(A);
        one.report(0, 0, 1);
        assert_eq!((one.report(5_000, 100, 0), one.left()), (pair(210, 20), 290));
        let buckets = [(Some(id(A)), usage(100, 0))].into_iter();
        let report = QuotaReport { waited: Duration::from_secs(waited), ..message("d", buckets) };
        one.at(10_000).report(report, |_| true).unwrap();
        sent(&mut one.stream);
        assert_eq!(one.listed().returned, returned);
    }
}

#[test]
fn a_report_that_waits_leaves_the_order_as_it_is() {
    let mut one = One::new(A);
    assert_eq!(one.report(0, 0, 1), pair(500, 20));
    assert_eq!((one.report(500, 0, 0), one.until_due()), (vec![], 500));
    assert_eq!((one.due(1_000), one.until_due()), (vec![], 18_800));
    assert_eq!(one.left(), 500);
}

#[test]
fn rules_that_cannot_be_divided_are_allowed_or_denied_as_set() {
    for (unsupported, expected) in [(Fallback::Deny, deny(60)), (Fallback::Allow, ALLOW.to_vec())] {
        let mut one = One::with(&[("short", "x")], QuotaOptions { unsupported, ..OPTIONS });
        assert_eq!(one.report(0, 0, 1), expected);
        assert_eq!(one.report(5_000, 0, 0), []);
        assert_eq!(one.bench.quotas.counts.unsupported.load(Relaxed), 2);
        assert_eq!(one.left(), 10);
    }
}

#[test]
fn hits_before_the_first_order_are_charged_where_the_fallback_allows_them() {
    for (fallback, hits, excess) in [(Fallback::Allow, 497, 7), (Fallback::Deny, 500, 0)] {
        let mut one = One::with(A, QuotaOptions { fallback, ..OPTIONS });
        assert_eq!(one.report(0, 7, 0), pair(hits, 20));
        assert_eq!((one.left(), one.excess()), (1_000 - u64::from(hits) - excess, excess));
        // Those beyond a grant always.
        one.report(10_000, u64::from(hits) + 20, 0);
        let charged = one.listed().granted + excess + 20;
        assert_eq!((one.left(), one.excess()), (1_000 - charged, excess + 20));
    }
}

#[test]
fn unused_hits_return_one_report_late() {
    let mut one = One::new(A);
    assert_eq!(one.report(0, 0, 1), pair(500, 20));
    assert_eq!((one.report(5_000, 100, 0), one.left()), (pair(210, 20), 290));
    // It keeps what it has: enough for its demand.
    assert_eq!((one.report(10_000, 100, 0), one.left()), (vec![], 590));
    let listed = one.listed();
    let sums = (listed.granted, listed.admitted, listed.returned, listed.outstanding);
    assert_eq!(sums, (710, 200, 300, 210));
    assert_eq!((&*listed.order, listed.ends_ms, listed.demand), ("admit", 15_000, Some(100)));
}

#[test]
fn hits_of_one_key_are_not_returned_to_another_that_rules_have_now() {
    let mut one = One::new(CLIENT);
    assert_eq!(one.report(0, 100, 0), pair(500, 20));
    let swapped = RULES.replace("path", "other").replace("client", "path");
    one.set_rules(&swapped.replace("other", "client"));
    for ms in [5_000, 10_000, 15_000] {
        assert_eq!(one.follow(ms), []);
        one.report(ms, 100, 0);
        // What was granted of the new key is charged to it.
        let listed = one.listed();
        assert_eq!(1_000 - one.left(), listed.granted - 500 - listed.returned, "{ms}: {listed:?}");
        assert!(one.left() <= 790, "{ms}: {listed:?}");
    }
}

#[test]
fn a_domain_is_named_first_and_does_not_change() {
    let mut one = One::new(A);
    let report = (Some(id(A)), usage(0, 1));
    let (good, bad) = ([report.clone()], [(None, usage(0, 1)), report]);
    assert_eq!(one.send(0, "", &good), Err(ReportError::NoDomain));
    assert_eq!(one.send(0, "d", &good), Ok(pair(500, 20)));
    assert_eq!(one.send(0, "e", &good), Err(ReportError::OtherDomain));
    assert_eq!(one.send(0, "d", &bad), Err(ReportError::BadBucket));
    // Nothing of the invalid ones was counted.
    assert_eq!(one.bench.quotas.counts.denied.load(Relaxed), 1);
    assert!(one.send(5_000, "", &good).is_ok());
}

#[test]
fn an_id_has_1_to_16_entries_with_different_keys_and_4096_bytes() {
    let is_valid = |entries: &[Entry<'_>]| try_id(entries).is_some();
    let keys: Vec<String> = (0..17).map(|key| format!("key {key}")).collect();
    let entries: Vec<Entry<'_>> = keys.iter().map(|key| (&**key, "")).collect();
    let long = "x".repeat(4_096);
    let valid: [&[Entry<'_>]; 3] = [&entries[..1], &entries[..16], &[("a", &long[1..])]];
    assert!(valid.into_iter().all(is_valid));
    let invalid: [&[Entry<'_>]; 5] =
        [&[], &entries, &[("a", "x"), ("a", "y")], &[("", "x")], &[("a", &long[..])]];
    assert!(!invalid.into_iter().any(is_valid));
    assert_eq!(id(PATH), id(CLIENT));
}

#[test]
fn buckets_beyond_the_bounds_are_denied_and_not_kept() {
    for options in [
        QuotaOptions { max_stream_buckets: 1, ..OPTIONS },
        QuotaOptions { max_buckets: 1, max_streams: 1, ..OPTIONS },
    ] {
        let mut one = One::with(A, options);
        assert_eq!(one.report(0, 0, 1), pair(500, 20));
        assert_eq!(one.send(0, "d", &[(Some(id(FEW)), usage(0, 1))]), Ok(deny(60)));
        assert_eq!((one.buckets(), one.bench.quotas.counts.buckets.load(Relaxed)), (1, 1));
        assert_eq!(one.bench.ask(FEW, 0), 3);
        assert_eq!(one.report(5_000, 100, 0), pair(210, 20));
        assert_eq!(one.bench.quotas.open(String::new()).is_none(), options.max_streams == 1);
    }
    let (mut one, mut held) = (One::new(A), 0);
    let reports = [(Some(id(A)), usage(0, 1))].into_iter();
    let hold = |bytes: usize| {
        held = bytes;
        false
    };
    one.stream.report(message("d", reports), hold).unwrap();
    let actions = sent(&mut one.stream);
    assert_eq!((orders(actions), held, one.buckets()), (deny(60), 605, 0));
}

#[test]
fn further_reports_of_one_bucket_in_one_message_are_summed_a_second_later() {
    let mut one = One::new(A);
    one.report(0, 0, 1);
    let reports =
        [(0, 1), (40, 0), (55, 5)].map(|(admitted, denied)| (Some(id(A)), usage(admitted, denied)));
    assert_eq!(one.send(5_000, "d", &reports), Ok(pair(24, 20)));
    assert_eq!(one.due(6_000), pair(210, 20));
    assert_eq!((one.listed().admitted, one.listed().demand), (95, Some(100)));
}

#[test]
fn hits_at_the_end_of_their_range_are_charged() {
    for fallback in [Fallback::Allow, Fallback::Deny] {
        let mut one = One::with(A, QuotaOptions { fallback, ..OPTIONS });
        let mut other = one.bench.open();
        for ms in [0, 5_000, 10_000, 15_000] {
            let reports = [usage(u64::MAX, u64::MAX); 2].map(|usage| (Some(id(A)), usage));
            one.send(ms, "d", &reports).unwrap();
            other.report(message("d", reports.into_iter()), |_| true).unwrap();
            sent(&mut other);
        }
        assert_eq!(one.left(), 0);
    }
}

#[test]
fn a_changed_limit_counts_for_the_next_grant_and_at_once_where_it_fell() {
    let mut one = One::new(A);
    one.report(0, 0, 1);
    let rules = |n| RULES.replace("1000", n);
    one.set_rules(&rules("2000"));
    assert_eq!(one.follow(500), []);
    assert_eq!((one.report(5_000, 100, 0), one.left()), (pair(210, 20), 1_290));
    one.set_rules(&rules("600"));
    assert_eq!(one.follow(5_000), deny(58));
    one.set_rules(&rules("2000"));
    assert_eq!(one.due(60_056), pair(210, 20));
    one.set_rules(&rules("600"));
    assert_eq!((one.follow(60_500), one.left()), (pair(210, 20), 180));
}

#[test]
fn a_closed_stream_leaves_no_bucket_and_returns_nothing() {
    let mut one = One::new(A);
    one.report(0, 0, 1);
    let One { bench, stream, .. } = one;
    assert_eq!(bench.quotas.list(0, |_, _| true), (vec![], 1));
    drop(stream);
    assert_eq!(bench.quotas.list(9, |_, _| true), (vec![], 0));
    assert_eq!((bench.quotas.streams(), bench.quotas.counts.buckets.load(Relaxed)), (0, 0));
    assert_eq!(bench.ask(A, 0), 500);
}

#[test]
fn requests_with_the_same_entries_share_the_counter() {
    let mut one = One::new(CLIENT);
    assert_eq!(one.bench.ask(PATH, 200), 800);
    assert_eq!(one.report(0, 0, 1), pair(400, 20));
    assert_eq!(one.bench.ask(PATH, 300), 100);
    // What was left last is no longer: the store decides.
    assert_eq!(one.report(5_000, 400, 1_000), pair(100, 20));
    assert_eq!(one.bench.ask(PATH, 0), 0);
}

/// An entry of the table is 25 bytes, and 9 of 16 may be empty; leaves of the set are half full. With glibc an id of two
/// entries of 20 bytes is 96 bytes and four texts of 32, and the sums of the window are 64. With a bucket of 176 bytes
/// that makes 593. The demand of a key comes to it, for all streams: some 300 bytes.
#[test]
fn a_bucket_takes_at_most_600_bytes() {
    let bucket = size_of::<Bucket>() + 16;
    let entry = 16 * (size_of::<(BucketId, Box<Bucket>)>() + 1) / 7;
    let waiting = 2 * size_of::<(Micros, BucketId)>() + 8;
    let (id, sums) = (96 + 4 * 32, 64);
    let bytes = bucket + entry + waiting + id + sums;
    assert!(bytes <= 600, "{bytes} bytes, of which the bucket takes {bucket}");
}
