//! Reports that the tests print: of a day in a shop, and the odd ones.

use crate::distinct::NearlyDistinct;
use crate::report::{
    Comparison, Count, DescriptorReport, Difference, InvalidLine, KeyCount, Report, RequestSeries,
    RuleCount, RuleReport, SideReport, Traffic, WorstMinute, share,
};
use crate::time::stamp;
use weir_limit::{Micros, SECOND};
use weir_rules::{Origin, Position};

/// 2026-11-22 08:00:00 UTC.
const START: Micros = 1_795_334_400 * SECOND;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const DAY: Micros = 24 * HOUR;
const MINUTES: usize = 6 * 60;
/// Why a line cannot be read.
const NO_TIME: &str = "no field 'time': name it with --time";

/// Numbers that look random, and are the same each time.
struct Noise(u64);

impl Noise {
    fn up_to(&mut self, max: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % max.max(1)
    }
}

fn origin(file: &str, line: u32) -> String {
    Origin { file: file.into(), position: Position::in_text(line, 5) }.to_string()
}

/// Returns the count of a series of minutes, with keys of falling numbers.
fn count(series: Vec<u64>, keys: u64, key: impl Fn(u64) -> String) -> Count {
    let requests: u64 = series.iter().sum();
    let worst = series.iter().enumerate().rev().max_by_key(|(_, n)| **n);
    let worst_minute = worst.filter(|(_, n)| **n > 0).map(|(minute, n)| WorstMinute {
        start: stamp(START + minute as Micros * MINUTE),
        requests: *n,
    });
    let worst_keys = (0..keys.min(20))
        .map(|i| KeyCount { key: key(i), requests: requests / (i * i + 3) })
        .take_while(|key| key.requests > 0);
    let worst_keys = worst_keys.collect();
    Count { requests, worst_minute, worst_keys, keys, series, ..none() }
}

/// Returns the count of nothing.
fn none() -> Count {
    Count { keys_are_complete: true, ..Count::default() }
}

/// Returns a report with all of its shares.
fn with_shares(mut report: Report) -> Report {
    let requests = report.traffic.requests;
    let set = |count: &mut Count, all| count.share = share(count.requests, all);
    let set_side = |side: &mut SideReport| {
        set(&mut side.denied, requests);
        side.rules.iter_mut().for_each(|rule| set(&mut rule.denied, rule.requests));
    };
    set_side(&mut report.rules);
    if let Some(comparison) = &mut report.comparison {
        set_side(&mut comparison.other);
        set(&mut comparison.newly_denied.total, requests);
        set(&mut comparison.no_longer_denied.total, requests);
    }
    report
}

fn rule(
    (name, file, line): (&str, &str, u32),
    series: Vec<u64>,
    denied: impl Fn(usize, u64) -> u64,
    keys: u64,
    key: impl Fn(u64) -> String,
) -> RuleReport {
    let over = series.iter().enumerate().map(|(i, n)| denied(i, *n)).collect();
    RuleReport {
        name: name.to_owned(),
        origin: origin(file, line),
        limits: "gcra 10/s, burst 20".into(),
        is_shadow: false,
        requests: series.iter().sum(),
        denied: count(over, keys, key),
        bans: None,
        series,
    }
}

fn side(name: &str, rules: Vec<RuleReport>, unused: usize) -> SideReport {
    let mut series = vec![0; MINUTES];
    let mut worst_keys = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.is_shadow) {
        for (sum, n) in series.iter_mut().zip(&rule.denied.series) {
            *sum += n;
        }
        worst_keys.extend(rule.denied.worst_keys.iter().cloned());
    }
    worst_keys.sort_by_key(|key: &KeyCount| std::cmp::Reverse(key.requests));
    worst_keys.truncate(20);
    let keys = rules.iter().map(|rule| rule.denied.keys).sum();
    let denied = Count { worst_keys, ..count(series, keys, |_| String::new()) };
    SideReport {
        files: name.to_owned(),
        denied,
        rules,
        unused_rules: unused,
        unmatched_descriptors: 0,
        unmatched_example: None,
    }
}

/// Returns the requests of each minute of a morning, with a rush.
fn morning(noise: &mut Noise, part: u64) -> Vec<u64> {
    let minute = |minute: usize| {
        let rush = if (205..232).contains(&minute) { 1_900 } else { 0 };
        let slow = 1_200 + minute as u64 * 5;
        (slow + rush + noise.up_to(400)) * part / 100
    };
    (0..MINUTES).map(minute).collect()
}

fn shop(file: &str, strictness: u64) -> SideReport {
    let mut noise = Noise(42);
    let address = |i: u64| format!("shop_remote_address_203.0.113.{}", (i * 37 + 9) % 250);
    let path = |i: u64| {
        let paths = ["search", "cart", "checkout/confirm", "products/4711/reviews", "login"];
        format!("shop_path_/api/v1/{}", paths[i as usize % paths.len()])
    };
    let over = |limit: u64| move |_: usize, n: u64| n.saturating_sub(limit * 100 / strictness);
    let mut rules = vec![
        rule(("shop.remote_address", file, 4), morning(&mut noise, 70), over(1_900), 312, address),
        rule(("shop.path", file, 12), morning(&mut noise, 30), over(830), 4, path),
        rule(
            ("shop.api_key_*.method_POST", file, 21),
            morning(&mut noise, 9),
            |i, n| if (90..96).contains(&i) { n / 3 } else { 0 },
            2,
            |i| format!("shop_api_key_team-{}_method_POST", ["billing", "mobile"][i as usize % 2]),
        ),
        rule(
            ("shop.path_/login.remote_address", file, 31),
            morning(&mut noise, 5),
            over(110),
            57,
            |i| format!("shop_path_/login_remote_address_198.51.100.{}", i * 11 + 3),
        ),
        rule(("shop.user_agent", file, 44), morning(&mut noise, 88), |_, _| 0, 0, path),
    ];
    rules[3].is_shadow = true;
    rules[3].bans = Some(41);
    rules.sort_by_key(|rule| (rule.is_shadow, std::cmp::Reverse(rule.denied.requests)));
    side(file, rules, 3)
}

/// Returns a morning of a shop.
pub(super) fn plain() -> Report {
    let mut noise = Noise(7);
    let series = morning(&mut noise, 100);
    let requests = series.iter().sum();
    let mut rules = shop("shop.yaml", 100);
    rules.unmatched_descriptors = 1_932;
    rules.unmatched_example = Some("shop: remote_address=203.0.113.9,path=/healthz".into());
    let traffic = Traffic {
        name: "access.log.gz".into(),
        domain: "shop".into(),
        descriptors: vec![
            DescriptorReport {
                descriptor: "remote_address={x_forwarded_for}".into(),
                lines_without_it: 4_310,
                first_missing_field: Some("x_forwarded_for".into()),
                nearly_distinct: None,
            },
            DescriptorReport { descriptor: "path={path}".into(), ..DescriptorReport::default() },
        ],
        lines: requests + 40 + 310,
        requests,
        without_descriptors: 310,
        invalid: 40,
        invalid_lines: vec![
            InvalidLine { line: 17, error: NO_TIME.into() },
            InvalidLine { line: 2_203, error: NO_TIME.into() },
            InvalidLine { line: 48_211, error: "expected a JSON object, found 'Killed'".into() },
        ],
        late_after: None,
        late: 12,
        first: Some(stamp(START + 7 * SECOND)),
        last: Some(stamp(START + 6 * HOUR - 2 * SECOND)),
        evicted_counters: 0,
        concurrency_rules: Vec::new(),
    };
    let series = RequestSeries { start: stamp(START), bucket_seconds: 60, requests: series };
    with_shares(Report { traffic, rules, comparison: None, series })
}

/// Returns the report of [`plain`], compared with stricter limits.
pub(super) fn compared() -> Report {
    let report = plain();
    let mut other = shop("strict.yaml", 112);
    other.unmatched_descriptors = report.rules.unmatched_descriptors;
    other.unmatched_example = report.rules.unmatched_example.clone();
    other.denied.keys += 402;
    let minutes = |side: &SideReport| side.denied.series.clone();
    let pairs: Vec<_> = minutes(&report.rules).into_iter().zip(minutes(&other)).collect();
    let newly: Vec<u64> = pairs.iter().map(|(now, other)| other.saturating_sub(*now)).collect();
    let freed: Vec<u64> = pairs.iter().map(|(now, _)| now / 23).collect();
    let address = |i: u64| format!("shop_remote_address_203.0.113.{}", i * 7 + 1);
    let difference = |series: Vec<u64>, keys| {
        let total = count(series, keys, address);
        let rules =
            [("shop.remote_address", total.requests * 4 / 5), ("shop.path", total.requests / 5)];
        let rules = rules.map(|(name, requests)| RuleCount { name: name.to_owned(), requests });
        let rules = rules.into();
        Difference { total, rules }
    };
    let comparison = Comparison {
        other,
        newly_denied: difference(newly, 402),
        no_longer_denied: difference(freed, 8),
    };
    with_shares(Report { comparison: Some(comparison), ..report })
}

/// Returns the report of [`compared`] over 15 days, with the worst minute on the tenth.
pub(super) fn days() -> Report {
    let mut report = compared();
    let worst = START + 9 * DAY + 6 * HOUR + 13 * MINUTE;
    let stretch = |count: &mut Count| {
        if let Some(minute) = &mut count.worst_minute {
            minute.start = stamp(worst);
        }
    };
    let stretch_side = |side: &mut SideReport| {
        stretch(&mut side.denied);
        side.rules.iter_mut().for_each(|rule| stretch(&mut rule.denied));
    };
    stretch_side(&mut report.rules);
    if let Some(comparison) = &mut report.comparison {
        stretch_side(&mut comparison.other);
        stretch(&mut comparison.newly_denied.total);
        stretch(&mut comparison.no_longer_denied.total);
    }
    report.series.bucket_seconds = 3_600;
    report.traffic.last = Some(stamp(START + MINUTES as u64 * HOUR - SECOND));
    report
}

/// Returns a report in which nothing was denied.
pub(super) fn calm() -> Report {
    let mut report = plain();
    for rule in &mut report.rules.rules {
        rule.denied = none();
    }
    report.rules.denied = none();
    report
}

/// Returns a report without requests.
pub(super) fn empty() -> Report {
    let traffic = Traffic {
        name: "<stdin>".into(),
        domain: "shop".into(),
        lines: 12,
        without_descriptors: 12,
        ..Traffic::default()
    };
    let rules = side("shop.yaml", Vec::new(), 5);
    let series = RequestSeries { start: stamp(0), bucket_seconds: 0, requests: Vec::new() };
    Report { traffic, rules, comparison: None, series }
}

/// Returns a report of one bucket.
pub(super) fn brief() -> Report {
    let mut report = plain();
    report.rules.rules.truncate(1);
    let rule = &mut report.rules.rules[0];
    (rule.requests, rule.series) = (6, vec![6]);
    rule.denied = count(vec![1], 1, |_| "shop_remote_address_203.0.113.9".into());
    report.rules.denied = count(vec![1], 1, |_| "shop_remote_address_203.0.113.9".into());
    report.traffic.requests = 6;
    report.traffic.lines = 6;
    report.traffic.first = Some(stamp(START));
    report.traffic.last = Some(stamp(START + 400_000));
    report.series.requests = vec![6];
    with_shares(report)
}

/// Names and keys that a page must not believe.
pub(super) const HOSTILE: [&str; 7] = [
    "<script>window.hacked=1</script>",
    "\"><img src=x onerror=window.hacked=1>",
    "</style></title></code><svg onload=window.hacked=1>",
    "a\u{202e}gpj.exe\u{0}\u{1b}[31m\r\n",
    "&lt;b&gt; '; alert(1) //",
    "عنوان-السلة-/مسار",
    "a\u{200b}b\u{feff}\u{e0041}",
];

/// Returns a report whose texts are all hostile and long, and that has too much of everything.
pub(super) fn hostile() -> Report {
    let mut report = compared();
    let text = |i: usize| {
        let text = HOSTILE[i % HOSTILE.len()];
        // Nowhere to break, and too long.
        if i % 8 == 1 { text.to_owned() + &"W".repeat(65_536) } else { text.to_owned() }
    };
    let spoil_count = |count: &mut Count| {
        let key = |i| KeyCount { key: text(i), requests: 999_999_999_999 / (i as u64 + 1) };
        count.worst_keys = (0..25).map(key).collect();
        count.requests = count.requests.max(1);
        count.keys = 999_999_999;
        count.keys_are_complete = false;
    };
    let spoil = |side: &mut SideReport| {
        side.files = text(1);
        side.unmatched_descriptors = u64::MAX;
        side.unmatched_example = Some(text(3));
        let one = || RuleReport {
            name: String::new(),
            origin: Origin { file: text(1).into(), position: Position::in_text(u32::MAX, 1) }
                .to_string(),
            limits: text(2),
            is_shadow: true,
            requests: 999_999_999_999,
            denied: Count { series: vec![u64::MAX; MINUTES], ..none() },
            bans: Some(999_999_999_999),
            series: (0..MINUTES as u64).collect(),
        };
        side.rules.resize_with(130, one);
        for (i, rule) in side.rules.iter_mut().enumerate() {
            rule.name = text(i);
            spoil_count(&mut rule.denied);
        }
        spoil_count(&mut side.denied);
    };
    spoil(&mut report.rules);
    report.series.requests = (0..MINUTES as u64).map(|i| i % 70 * 100_000_000).collect();
    if let Some(comparison) = &mut report.comparison {
        spoil(&mut comparison.other);
        for difference in [&mut comparison.newly_denied, &mut comparison.no_longer_denied] {
            spoil_count(&mut difference.total);
            let rule = |i| RuleCount { name: text(i), requests: 1_000 - i as u64 };
            difference.rules = (0..200).map(rule).collect();
        }
    }
    let traffic = &mut report.traffic;
    (traffic.name, traffic.domain) = (text(0), text(1));
    let descriptor = |i| DescriptorReport {
        descriptor: text(i),
        lines_without_it: u64::MAX,
        first_missing_field: Some(text(i)),
        nearly_distinct: Some(NearlyDistinct { requests: u64::MAX, keys: u64::MAX }),
    };
    traffic.descriptors = (0..140).map(descriptor).collect();
    traffic.invalid_lines =
        (0..5).map(|i| InvalidLine { line: u64::MAX, error: text(i) }).collect();
    traffic.invalid = u64::MAX;
    traffic.evicted_counters = u64::MAX;
    with_shares(report)
}
