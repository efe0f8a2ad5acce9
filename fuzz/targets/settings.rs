//! Settings from all sources at once: no panics, every error names its origin, and no secret is printed.
//!
//! The input consists of lines: `NAME=value` is a variable, `--set name=value` a flag. After a line
//! `[toml]` or `[yaml]` follows the settings file.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use config::{Value, ValueKind};
use libfuzzer_sys::fuzz_target;
use weir::settings::reference::variables::VARIABLES;
use weir::settings::{Inputs, Mistake, Settings, table};

/// The value of secret settings.
const SECRET: &str = "open-sesame";

fuzz_target!(|text: &str| {
    let inputs = inputs(text);
    let loaded = Settings::load(&inputs);
    // In any other setting this value is not a secret.
    let is_secret = |name: &str| name.ends_with("AUTH") || name.ends_with("PASSWORD");
    let kept = inputs.env.iter().filter(|(name, value)| is_secret(name) && value == SECRET);
    let keeps = text.matches(SECRET).count() == kept.count();
    let safe = |shown: &str| assert!(!keeps || !shown.contains(SECRET), "a secret in {shown}");
    match &loaded {
        Ok(settings) => {
            for (setting, shown, origin) in settings.list() {
                assert!(!origin.is_empty(), "{} comes from somewhere", setting.name);
                safe(&shown);
            }
            settings.notes.iter().for_each(|note| safe(note));
            settings.rules.selection();
            settings.rules.options();
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for Mistake { origin, message, help } in mistakes {
                assert!(!origin.is_empty() && !message.is_empty() && !help.is_empty());
                safe(origin);
                safe(message);
                safe(help);
            }
        }
    }
    let mistakes = loaded.err().unwrap_or_default();
    check_all_reported(&inputs, &mistakes);
});

/// Checks that each invalid value is reported, whatever other errors there are.
fn check_all_reported(inputs: &Inputs, mistakes: &[Mistake]) {
    let is_reported = |name: &str| mistakes.iter().any(|mistake| mistake.origin == *name);
    let mut said: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (variable, text) in &inputs.env {
        if let Some(name) = variable.strip_prefix("WEIR__") {
            let name = name.to_ascii_lowercase().replace("__", ".");
            said.entry(name).or_default().push((variable, text));
        }
    }
    for (name, by) in &said {
        let Some(setting) = table::find(name) else {
            by.iter()
                .for_each(|(variable, _)| assert!(is_reported(variable), "{variable} is unknown"));
            continue;
        };
        // Of several values, only one is used.
        let [(variable, text)] = by[..] else { continue };
        let is_wrong = setting.kind.read(&Value::new(None, ValueKind::from(text))).is_err();
        if is_wrong && !inputs.flags.iter().any(|(_, flag, _)| flag == name) {
            assert!(is_reported(variable), "{variable} is {text:?}, which is not reported");
        }
    }
    for variable in VARIABLES {
        let said = inputs.env.iter().find(|(name, _)| name == variable.name);
        let Some((name, text)) = said else { continue };
        let is_of_kubernetes = name.ends_with("PORT") && text.contains("://");
        if !variable.kind.takes(text) && !is_of_kubernetes {
            assert!(is_reported(name), "{name} is {text:?}, which is not reported");
        }
    }
}

fn inputs(text: &str) -> Inputs {
    static FILE: LazyLock<PathBuf> =
        LazyLock::new(|| std::env::temp_dir().join(format!("weir-fuzz-{}", std::process::id())));
    let mut inputs = Inputs::default();
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        match line {
            "[toml]" | "[yaml]" => {
                let path = FILE.with_extension(&line[1..5]);
                std::fs::write(&path, after).expect("a file");
                inputs.file = Some(path);
                break;
            }
            _ => match (line.strip_prefix("--set "), line.split_once('=')) {
                (Some(flag), _) => {
                    let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
                    inputs.flags.push(("--set".into(), name.into(), value.into()));
                }
                // An environment has each name once.
                (None, Some((name, value))) if !inputs.env.iter().any(|(n, _)| n == name) => {
                    inputs.env.push((name.into(), value.into()));
                }
                _ => {}
            },
        }
    }
    inputs
}
