//! The memory for reading files and messages that are designed to take as much as possible.

#[path = "support/allocator.rs"]
mod allocator;
#[path = "support/messages.rs"]
mod messages;

use std::fs;
use std::net::Ipv4Addr;

use allocator::{kept, peak};
use weir_rules::source::{RuleFile, Selection};
use weir_rules::{Document, Loaded, Problems, Rule, RuleOptions, xds};

/// The size of each file and message, in bytes.
const SIZE: usize = 200_000;

/// The maximum allocated at a time, from `docs/reference/rule-keys.md`.
const MOST: usize = (16 << 20) + 100 * SIZE;

/// A file that repeats `item`, between `head` and `tail`.
fn repeated(head: &str, item: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for i in 0.. {
        text += &item(i);
        if text.len() >= SIZE {
            break;
        }
    }
    text + tail
}

/// A list of descriptors in flow style.
fn descriptors(item: impl Fn(usize) -> String) -> String {
    repeated("domain: d\ndescriptors: [", item, "]")
}

/// The metadata of one descriptor.
fn metadata(head: &str, item: impl Fn(usize) -> String, tail: &str) -> String {
    let head =
        format!("domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: day}}, metadata: {head}");
    repeated(&head, item, &format!("{tail}}}]"))
}

/// Descriptors below one with a key of this length.
fn below(key_bytes: usize, item: impl Fn(usize) -> String) -> String {
    let key = "k".repeat(key_bytes);
    repeated(&format!("domain: d\ndescriptors: [{{key: {key}, descriptors: ["), item, "]}]")
}

/// Descriptors nested 120 levels deep.
fn deep(i: usize) -> String {
    let levels: String = (0..120)
        .map(|level| format!("{{key: k{i}_{level},rate_limit: {{unit: day}},descriptors: ["))
        .collect();
    levels + &"]}".repeat(120) + ","
}

fn of(text: &'static str) -> impl Fn(usize) -> String {
    move |_| text.to_owned()
}

/// Compiles a file and returns the length of its rendered problems.
fn read<D: Document>(document: D, render: fn(&Loaded<D>) -> String) -> usize {
    let loaded = Loaded::compile(vec![document], Problems::new(100), &RuleOptions::default(), None);
    render(&loaded).len()
}

/// Compares the memory that `run` takes with the maximum.
fn check(name: &str, run: impl FnOnce() -> usize) {
    let mut rendered = 0;
    let peak = peak(|| rendered = run());
    println!("{name}: {peak} bytes, {} a byte", peak / SIZE);
    assert!(peak <= MOST, "{name}: {peak} bytes, {} a byte", peak / SIZE);
    assert!(rendered <= 200_000, "{name}: {rendered} bytes of problems");
}

#[test]
fn memory_for_files_is_limited_by_their_size() {
    let anchor = "descriptors: [{key: a, rate_limit: &l {unit: day}}, ";
    let long = "x".repeat(SIZE / 20);
    let value = format!("domain: d\ndescriptors: [{{key: a, value: &v {long}}}, ");
    let items: String = (0..SIZE / 60).map(|i| format!("{i},")).collect();
    let listed = format!("domain: d\ndescriptors: [{{key: a, values: &v [{items}]}}, ");
    let aliased = format!("domain: d\ndescriptors: [{{key: a, metadata: &m {{a: {long}}}}}, ");
    let files = [
        ("bad keys", repeated("{", of("a,"), "}")),
        ("bad numbers", repeated("", |i| format!("{i}:\n"), "")),
        ("words", descriptors(of("a,"))),
        ("lists", descriptors(of("[],"))),
        ("maps", descriptors(of("{},"))),
        ("tags", descriptors(of("!a b,"))),
        ("anchors", descriptors(|i| format!("&{i} a,"))),
        ("keys", descriptors(|i| format!("{{key: k{i}}},"))),
        ("one key", descriptors(of("{key: k},"))),
        ("rules", descriptors(|i| format!("{{key: k{i},rate_limit: {{unit: day}}}},"))),
        ("aliased limits", repeated(anchor, |i| format!("{{key: k{i},rate_limit: *l}},"), "]")),
        ("wildcards", descriptors(|i| format!("{{key: 'k{i}*'}},"))),
        ("stars", repeated("domain: d\ndescriptors: [{key: '", of("a*"), "'}]")),
        (
            "values",
            repeated("domain: d\ndescriptors: [{key: k, values: [", |i| format!("{i},"), "]}]"),
        ),
        (
            "networks",
            repeated(
                "domain: d\ndescriptors: [{key: k, values: [",
                |i| format!("10.{}.{}.0/24,", i / 256, i % 256),
                "]}]",
            ),
        ),
        (
            "values with wildcards",
            repeated("domain: d\ndescriptors: [{key: k, values: [", |i| format!("'{i}*',"), "]}]"),
        ),
        ("equal values", repeated("domain: d\ndescriptors: [{key: k, values: [", of("a,"), "]}]")),
        (
            "values with stars",
            repeated("domain: d\ndescriptors: [{key: k, values: '", of("a*"), "'}]"),
        ),
        (
            "values of rules",
            descriptors(|i| format!("{{key: k,values: v{i},rate_limit: {{unit: day}}}},")),
        ),
        (
            "aliased lists",
            repeated(
                &listed,
                |i| format!("{{key: k{i},values: *v,rate_limit: {{unit: day}}}},"),
                "]",
            ),
        ),
        ("metadata lists", metadata("{a: [", of("a,"), "]}")),
        ("metadata maps", metadata("{", |i| format!("k{i},"), "}")),
        ("metadata maps in lists", metadata("{a: [", of("{a},"), "]}")),
        ("long names", below(10_000, |i| format!("{{key: k{i},rate_limit: {{unit: day}}}},"))),
        ("longer names", below(SIZE / 2, |i| format!("{{key: k{i},rate_limit: {{unit: day}}}},"))),
        ("long duplicates", below(10_000, of("{key: a},"))),
        ("deep", descriptors(deep)),
        ("aliased values", repeated(&value, |i| format!("{{key: k{i},value: *v}},"), "]")),
        (
            "aliased metadata",
            repeated(
                &aliased,
                |i| format!("{{key: k{i},rate_limit: {{unit: day}},metadata: *m}},"),
                "]",
            ),
        ),
    ];
    for (name, text) in files {
        let file = RuleFile { name: "rules.yaml".into(), text };
        check(name, || read(file, Loaded::render_errors));
    }
}

#[test]
fn memory_for_messages_is_limited_by_their_size() {
    for (name, message) in messages::messages(SIZE) {
        check(name, || {
            let resource = xds::Resource::decode(message.into(), "resource").expect("a message");
            read(resource, Loaded::render_errors)
        });
    }
}

#[test]
fn a_line_of_a_list_takes_few_bytes() {
    const LINES: u32 = 1_000_000;
    let rules = "domain: d\ndescriptors: [{ key: ip, values_file: blocked.txt, rate_limit: { unit: day } }]\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let spread = |line: u32| Ipv4Addr::from_bits(line.wrapping_mul(2_654_435_761));
    let list: String = (0..LINES).map(|line| format!("{}\n", spread(line))).collect();
    fs::write(directory.path().join("blocked.txt"), list).unwrap();
    let selection = Selection::of(directory.path());
    let (mut loaded, mut left) = (None, 0);
    let peak = peak(|| {
        let read = || Loaded::read(&selection, &RuleOptions::default(), None);
        let (read, bytes) = kept(read);
        (loaded, left) = (Some(read), bytes);
    });
    let loaded = loaded.unwrap();
    let values = loaded.rules.rules().next().and_then(Rule::listed_values);
    assert_eq!(values, Some(LINES as usize));
    let address = spread(LINES - 1).to_string();
    assert!(loaded.rules.domain("d").unwrap().find(&[("ip", &address)]).is_some());
    println!(
        "a line takes {} bytes, while it is read {}",
        left / LINES as usize,
        peak / LINES as usize
    );
    // From docs/reference/rule-keys.md.
    assert!(left <= 21 * LINES as usize, "{left} bytes");
    assert!(peak <= 40 * LINES as usize, "{peak} bytes");
}
