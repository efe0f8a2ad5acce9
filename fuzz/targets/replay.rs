//! Lines of a log: never a panic; each is a request, ignored, or reported, and no line that is not JSON is a
//! request.
//!
//! The input is a byte that says in which format the lines after it are.

#![no_main]

use std::collections::HashMap;
use std::io::Cursor;

use clap::Parser;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use weir_replay::{Input, Mapping, MappingArgs, Replay, ReplayOutput};
use weir_rules::{RuleOptions, RuleSet, source::RuleFile};

const RULES: &str = "
domain: d
descriptors:
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2, algorithm: sliding_log }
";

const FORMATS: [&str; 6] = ["jsonl", "csv", "envoy", "istio", "envoy-gateway", "combined"];

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    mapping: MappingArgs,
}

fuzz_target!(|input: &[u8]| {
    let Some((format, log)) = input.split_first() else { return };
    let format = FORMATS[usize::from(*format) % FORMATS.len()];
    let fields = match format {
        "jsonl" | "csv" => ["path={path}", "user={user.name}"],
        _ => ["path={path}", "user={client_address}"],
    };
    let arguments = ["replay", "--domain", "d", "--format", format, "--hits", "hits"];
    let descriptors = ["--descriptor", fields[0], "--descriptor", fields[1]];
    let arguments = arguments.iter().take(if matches!(format, "jsonl" | "csv") { 7 } else { 5 });
    let args = Args::parse_from(arguments.chain(&descriptors));
    let mapping = Mapping::read(&args.mapping).expect("a mapping");
    let file = RuleFile { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
    let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert!(problems.is_empty(), "{problems:?}");
    let rules = ("rules.yaml".to_owned(), rules);
    // What is compressed may be a thousand times as long.
    if log.starts_with(&[0x1f, 0x8b]) {
        return;
    }
    let Ok(lines) = Input::new(Cursor::new(log.to_vec()), "log".to_owned(), None) else { return };
    let (report, _) = Replay::new(mapping, rules, None, 1_000).run(lines);
    let mut text = Vec::new();
    for output in [ReplayOutput::Text, ReplayOutput::Html, ReplayOutput::Json] {
        text.clear();
        report.print(output, &mut text).expect("memory takes it");
        assert!(std::str::from_utf8(&text).is_ok());
    }
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let count = |name: &str| json["traffic"][name].as_u64().expect("a number");
    let (requests, invalid) = (count("requests"), count("invalid"));
    assert!(requests + invalid + count("without_descriptors") <= count("lines"), "{json}");
    if format == "jsonl" {
        let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
        let is_object = |line: &&[u8]| {
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            // Proxies log paths and headers as the client sent them, in whatever encoding.
            let line = String::from_utf8_lossy(line);
            serde_json::from_str::<HashMap<String, IgnoredAny>>(&line).is_ok()
        };
        let objects = lines.filter(is_object).count() as u64;
        assert!(requests <= objects, "{requests} requests, {objects} objects: {json}");
    }
});
