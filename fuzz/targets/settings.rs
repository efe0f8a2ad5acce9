//! Settings from all sources at once: no panic, every error is reported with its origin, and no
//! secret is shown.
//!
//! The input is lines: `NAME=value` is a variable, `--set name=value` a flag. After a line
//! `[toml]` or `[yaml]` comes the settings file.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use config::{Value, ValueKind};
use libfuzzer_sys::fuzz_target;
use weir::settings::reference::variables::VARIABLES;
use weir::settings::{Inputs, SettingError, Settings, table};

/// A secret, in a variable for secrets.
const SECRET: &str = "open-sesame";

fuzz_target!(|text: &str| {
    let inputs = inputs(text);
    let loaded = Settings::load(&inputs);
    // In any other place the text is not a secret.
    let is_secret = |name: &str| name.ends_with("AUTH") || name.ends_with("PASSWORD");
    let kept = inputs.env.iter().filter(|(name, value)| is_secret(name) && value == SECRET);
    let keeps = text.matches(SECRET).count() == kept.count();
    let safe = |shown: &str| assert!(!keeps || !shown.contains(SECRET), "a secret in {shown}");
    match &loaded {
        Ok(settings) => {
            for entry in settings.list() {
                assert!(!entry.origin.is_empty(), "{} has an origin", entry.setting.name);
                safe(entry.shown);
            }
            settings.warnings.iter().for_each(|warning| safe(warning));
            settings.rule_files();
            settings.rule_options();
            settings.redis_options();
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for SettingError { origin, message, help } in errors {
                assert!(!origin.is_empty() && !message.is_empty() && !help.is_empty());
                safe(origin);
                safe(message);
                safe(help);
            }
        }
    }
    let errors = loaded.err().unwrap_or_default();
    every_error_is_reported(&inputs, &errors);
});

/// Every error is reported, whatever the other errors are.
fn every_error_is_reported(inputs: &Inputs, errors: &[SettingError]) {
    let is_reported = |name: &str| errors.iter().any(|error| error.origin == *name);
    let mut set: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (variable, text) in &inputs.env {
        if let Some(name) = variable.strip_prefix("WEIR__") {
            let name = name.to_ascii_lowercase().replace("__", ".");
            set.entry(name).or_default().push((variable, text));
        }
    }
    for (name, by) in &set {
        let Some(setting) = table::find(name) else {
            by.iter()
                .for_each(|(variable, _)| assert!(is_reported(variable), "{variable} is unknown"));
            continue;
        };
        // If several set it, the last one wins.
        let [(variable, text)] = by[..] else { continue };
        let is_wrong = !setting.accepts(&Value::new(None, ValueKind::from(text)));
        if is_wrong && !inputs.flags.iter().any(|(_, flag, _)| flag == name) {
            assert!(is_reported(variable), "{variable} is {text:?}, and no error reports it");
        }
    }
    for variable in VARIABLES {
        let set = inputs.env.iter().find(|(name, _)| name == variable.name);
        let Some((name, text)) = set else { continue };
        let is_from_kubernetes = name.ends_with("PORT") && text.contains("://");
        if !variable.kind.accepts(text) && !is_from_kubernetes {
            assert!(is_reported(name), "{name} is {text:?}, and no error reports it");
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
