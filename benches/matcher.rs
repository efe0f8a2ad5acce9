//! Time of a look-up by the number of exact rules, by depth, by the number of wildcards on one level, and by the number of
//! items of `values`.
//!
//! The first should hardly grow (a larger table has more cache misses), the second in proportion to the
//! depth, the third in proportion to the wildcards tried.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};

const LIMIT: &str = "rate_limit: { unit: minute, requests_per_unit: 5 }";

fn rules(descriptors: &str) -> RuleSet {
    let text = format!("domain: bench\ndescriptors:\n{descriptors}");
    let file = RuleFile { name: "bench.yaml".into(), text };
    let (set, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert!(problems.is_empty(), "{}", problems[0]);
    set
}

fn exact_rules(c: &mut Criterion) {
    let mut group = c.benchmark_group("exact rules");
    for count in [10, 1_000, 100_000] {
        let mut text = String::new();
        for i in 0..count {
            let _ = writeln!(text, "- {{ key: user, value: user-{i}, {LIMIT} }}");
        }
        let set = rules(&text);
        let domain = set.domain("bench").expect("it was compiled");
        let values: Vec<String> =
            (0..1_000).map(|i| format!("user-{}", i * 7_919 % count)).collect();
        let mut next = values.iter().cycle();
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let value = next.next().map_or("", |value| value);
                assert!(domain.find(black_box(&[("user", value)])).is_some());
            });
        });
    }
    group.finish();
}

fn depth(c: &mut Criterion) {
    let mut group = c.benchmark_group("depth");
    for depth in 1..=4 {
        let mut text = String::new();
        for level in 0..depth {
            let indent = "  ".repeat(level);
            let _ = writeln!(text, "{indent}- key: key{level}\n{indent}  value: value{level}");
            let below = if level + 1 == depth { LIMIT } else { "descriptors:" };
            let _ = writeln!(text, "{indent}  {below}");
        }
        let set = rules(&text);
        let domain = set.domain("bench").expect("it was compiled");
        let entries = [("key0", "value0"), ("key1", "value1"), ("key2", "value2")];
        let entries: Vec<_> = entries.into_iter().chain([("key3", "value3")]).take(depth).collect();
        group.bench_function(BenchmarkId::from_parameter(depth), |b| {
            b.iter(|| assert!(domain.find(black_box(&entries)).is_some()));
        });
    }
    group.finish();
}

fn wildcards(c: &mut Criterion) {
    let mut group = c.benchmark_group("wildcards, the last one matches");
    for count in [1, 10, 100] {
        let mut text = String::new();
        for i in 0..count {
            let _ = writeln!(text, "- {{ key: path, value: \"/api/{i}/*\", {LIMIT} }}");
        }
        let set = rules(&text);
        let domain = set.domain("bench").expect("it was compiled");
        let value = format!("/api/{}/items/4711", count - 1);
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| assert!(domain.find(black_box(&[("path", &value)])).is_some()));
        });
    }
    group.finish();
}

/// The items of one `values`, half of them networks: the time should hardly grow with their number.
fn values(c: &mut Criterion) {
    let mut group = c.benchmark_group("values of one rule");
    for count in [1, 1_000] {
        let items = (0..count)
            .flat_map(|i| [format!("user-{i}"), format!("10.{}.{}.0/24", i / 256, i % 256)]);
        let items: Vec<String> = items.collect();
        let set = rules(&format!("- {{ key: user, values: [{}], {LIMIT} }}\n", items.join(", ")));
        let domain = set.domain("bench").expect("it was compiled");
        let sent: Vec<String> = items.iter().map(|item| item.replace(".0/24", ".7")).collect();
        let mut next = sent.iter().cycle();
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let value = next.next().map_or("", |value| value);
                assert!(domain.find(black_box(&[("user", value)])).is_some());
            });
        });
    }
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = matcher;
    config = short();
    targets = exact_rules, depth, wildcards, values
}
criterion_main!(matcher);
