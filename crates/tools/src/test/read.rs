//! Reads a test file of `weir test` (YAML), and reports every problem in it.

mod expect;
mod step;

pub(super) use self::expect::RESULTS;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::Timestamp;

use super::file::{ResponseOptions, Test, TestFile};
use weir_limit::{Micros, SECOND};
use weir_rules::tree::{Content, Node};
use weir_rules::values::{Reader, Section};
use weir_rules::{Origin, Position, Problem, Problems};

static FILE: Section = Section {
    what: "a test file",
    keys: &["rules", "overlay", "merge_domains", "domain", "start", "response", "tests"],
};
#[rustfmt::skip]
static RESPONSE: Section = Section {
    what: "`response`",
    keys: &["headers", "limit_header", "remaining_header", "reset_header", "retry_after", "ratelimit_fields", "shadow_mode", "quota_mode"],
};
static TEST: Section = Section { what: "a test", keys: &["name", "domain", "start", "steps"] };
static SECTIONS: &[&Section] = &[
    &FILE,
    &TEST,
    &step::STEP,
    &step::DESCRIPTOR,
    &step::ENTRY,
    &step::LIMIT,
    &step::RESERVE,
    &step::SETTLE,
    &step::CANCEL,
    &expect::EXPECT,
    &expect::STATUS,
    &RESPONSE,
];

/// When tests start by default: 2026-01-01T00:00:00Z.
const START: Micros = 1_767_225_600 * SECOND;

/// The first second after the times at which a test may start: 2100-01-01T00:00:00Z.
const END: i64 = 4_102_444_800;

/// What tests take over from the file, and steps from their test.
#[derive(Clone)]
struct Defaults {
    domain: Option<Rc<str>>,
    start: Micros,
}

/// Reads a test file; none if it has no tests. `root` is its tree.
pub(super) fn read(
    file: &str,
    root: Option<&Node<'_>>,
    problems: &mut Problems,
) -> Option<TestFile> {
    let mut reader = Reader { file, problems, sections: SECTIONS };
    let Some(root) = root.filter(|root| !root.is_null()) else {
        let help = "write `rules:`, `domain:` and `tests:`";
        reader.error(Position::in_text(1, 1), "", "the test file is empty", help);
        return None;
    };
    let mut read = TestFile::default();
    let mut defaults = Defaults { domain: None, start: START };
    let (mut has_rules, mut tests) = (false, None);
    for (key, value) in reader.fields(root, &FILE) {
        match key {
            "rules" => {
                has_rules = true;
                read.rules = paths(&mut reader, key, value);
            }
            "overlay" if matches!(value.content(), Content::List(list) if list.is_empty()) => {}
            "overlay" => read.overlay = paths(&mut reader, key, value),
            "merge_domains" => {
                read.merge_domains = reader.bool(value, key).unwrap_or_default();
            }
            "response" => response(&mut reader, value, &mut read.response),
            "tests" => tests = Some(value),
            _ => default(&mut reader, key, value, &mut defaults),
        }
    }
    if !has_rules {
        let help = "write `rules: [FILE]`; a path is relative to the test file";
        reader.missing(root, &FILE, "rules", help);
    }
    match tests {
        Some(tests) => read.tests = read_tests(&mut reader, tests, &defaults),
        None => reader.missing(root, &FILE, "tests", "write `tests:` and a list of tests"),
    }
    Some(read)
}

/// Reads paths relative to the test file.
fn paths(reader: &mut Reader<'_>, key: &str, value: &Node<'_>) -> Vec<PathBuf> {
    let directory = Path::new(reader.file).parent().unwrap_or(Path::new("")).to_owned();
    let list = reader.list(value, key, "files");
    list.iter().filter_map(|item| reader.name(item, key)).map(|name| directory.join(name)).collect()
}

fn default(reader: &mut Reader<'_>, key: &str, value: &Node<'_>, defaults: &mut Defaults) {
    match key {
        "domain" => defaults.domain = Some(reader.name(value, key).unwrap_or_default().into()),
        _ => {
            let start = value.text().and_then(|text| text.parse::<Timestamp>().ok());
            match start.filter(|start| (0..END).contains(&start.as_second())) {
                Some(start) => {
                    let millis = u64::try_from(start.as_millisecond()).unwrap_or_default();
                    defaults.start = millis * (SECOND / 1_000);
                }
                None => {
                    let help = "write a time from 1970 to 2099, such as 2026-01-01T00:00:00Z";
                    reader.invalid(value, key, help);
                }
            }
        }
    }
}

fn response(reader: &mut Reader<'_>, node: &Node<'_>, options: &mut ResponseOptions) {
    for (key, value) in reader.fields(node, &RESPONSE) {
        let flag = match key {
            "headers" => &mut options.headers,
            "retry_after" => &mut options.retry_after,
            "ratelimit_fields" => &mut options.ratelimit_fields,
            "shadow_mode" => &mut options.limiter.shadow_mode,
            "quota_mode" => &mut options.limiter.quota_mode,
            _ => {
                let name = match key {
                    "limit_header" => &mut options.names.limit,
                    "remaining_header" => &mut options.names.remaining,
                    _ => &mut options.names.reset,
                };
                if let Some(text) = reader.name(value, key) {
                    text.clone_into(name);
                }
                continue;
            }
        };
        *flag = reader.bool(value, key).unwrap_or(*flag);
    }
}

fn read_tests(reader: &mut Reader<'_>, list: &Node<'_>, defaults: &Defaults) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut names = HashMap::new();
    let mut requests = 0;
    for item in reader.list(list, "tests", "tests") {
        let mut defaults = defaults.clone();
        let (mut name, mut steps) = (None, None);
        for (key, value) in reader.fields(item, &TEST) {
            match key {
                "name" => name = reader.name(value, key).map(|name| (name, value)),
                "steps" => steps = Some(value),
                _ => default(reader, key, value, &mut defaults),
            }
        }
        match name {
            None => reader.missing(item, &TEST, "name", "write `name: TEXT`"),
            Some((name, node)) => {
                if let Some(first) = names.insert(name, node.position) {
                    duplicate(reader, name, node.position, first);
                }
            }
        }
        let steps = match steps {
            Some(steps) => step::read(reader, steps, defaults.domain.as_ref(), &mut requests),
            None => {
                reader.missing(item, &TEST, "steps", "write `steps:` and a list of requests");
                Vec::new()
            }
        };
        let name = name.map(|(name, _)| name.to_owned()).unwrap_or_default();
        tests.push(Test { name, position: item.position, start: defaults.start, steps });
    }
    tests
}

fn duplicate(reader: &mut Reader<'_>, name: &str, position: Position, first: Position) {
    let message = format!("two tests have the name '{name}'");
    let problem = Problem::of_file(reader.file, message, "give each test a name of its own");
    let first = Origin { file: reader.file.into(), position: first };
    let first = Some(Box::new(first));
    reader.problems.push(Problem { first, ..problem.at(position).about(name) });
}
