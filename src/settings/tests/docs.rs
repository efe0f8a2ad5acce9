//! The tables of `docs/settings.md`. A test compares them; `UPDATE_DOCS=1 cargo test --lib docs` writes
//! them.

mod chart;
mod schema;

use std::fmt::Write;

use crate::settings::format::FormatKind;
use crate::settings::reference::variables::{FAMILIES, VARIABLES};
use crate::settings::reference::{Effect, Meaning, OTHERS, RedisEffect, Variable, go};
use crate::settings::table::{SETTINGS, set_by};

/// Returns the table of weir's settings.
fn settings() -> String {
    let mut table =
        "| Setting | Value | Default | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for setting in SETTINGS.iter() {
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            setting.name,
            kind(setting.kind),
            code(setting.default),
            setting.doc
        );
    }
    table
}

/// Returns the table of the reference's variables.
fn variables() -> String {
    let mut table = "| Variable | Value | The reference's default | Here |\n\
                     | --- | --- | --- | --- |\n"
        .to_owned();
    for variable in VARIABLES {
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            variable.name,
            go_kind(variable.kind),
            code(variable.default),
            effect(variable, variable.effect)
        );
    }
    for family in FAMILIES {
        let effect = effect(family, family.effect);
        let _ = writeln!(table, "| `{}…` | text |  | {effect} |", family.name);
    }
    table
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn words(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(|w| code(w)).collect();
    words.join(", ")
}

fn kind(kind: FormatKind) -> String {
    match kind {
        FormatKind::Bool => "switch".into(),
        FormatKind::Int(min, max) => format!("number, {min} to {max}"),
        FormatKind::Ratio => "0 to 1".into(),
        FormatKind::Text => "text".into(),
        FormatKind::Duration => "duration".into(),
        FormatKind::AutoOrDuration => "`auto` or duration".into(),
        FormatKind::Bytes => "size".into(),
        FormatKind::Address => "host:port".into(),
        FormatKind::List => "list".into(),
        FormatKind::LogLevels => "level, or `level,library=level`".into(),
        FormatKind::Choice(choices) => words(&choices()),
    }
}

fn go_kind(kind: go::VariableKind) -> String {
    match kind {
        go::VariableKind::Text => "text".into(),
        go::VariableKind::Bool => "switch".into(),
        go::VariableKind::PORT => "port".into(),
        go::VariableKind::Int(..) | go::VariableKind::Float => "number".into(),
        go::VariableKind::Ratio => "0 to 1".into(),
        go::VariableKind::Duration => "duration".into(),
        go::VariableKind::List => "list".into(),
        go::VariableKind::Map => "`k:v,k2:v2`".into(),
        go::VariableKind::Word(choices)
        | go::VariableKind::AnyCase(choices)
        | go::VariableKind::LogLevels(choices) => words(choices),
    }
}

fn effect(variable: &Variable, effect_of: Effect) -> String {
    let mut settings = set_by(variable.name).map(|setting| code(setting.name));
    let mut setting = || settings.next().unwrap_or_default();
    match effect_of {
        Effect::Set(meaning) => match meaning {
            Meaning::Same | Meaning::Bytes | Meaning::Clamped => setting(),
            Meaning::Source => "`rules.source`: `FILE` is files, `GRPC_XDS_SOTW` is xds".into(),
            Meaning::Host => format!("the host of {}", setting()),
            Meaning::ListenHost => {
                format!("the host of {}; `0.0.0.0` is all addresses, over IPv6 and IPv4", setting())
            }
            Meaning::Port => format!("the port of {}", setting()),
            Meaning::IsPositive => format!("{}, if it is greater than 0", setting()),
            Meaning::ListenOn(address) => {
                format!("{}: `{address}`, if PROMETHEUS_ADDR is not set", setting())
            }
            Meaning::AddressIfSet => format!("{}, with USE_PROMETHEUS", setting()),
            Meaning::LogLevel => {
                "`log.level`; panic and fatal are error; library=level for libraries may follow"
                    .into()
            }
            Meaning::LogFormat => {
                "`log.format`: json in any letter case is reference-json; all else is text".into()
            }
        },
        Effect::SetText => setting(),
        Effect::Defines(what) => what.into(),
        Effect::Ignored(reason) => format!("ignored: {reason}"),
        Effect::Unused(reason) => format!("no effect, with a warning: {reason}"),
        Effect::UnusedIf(_, reason) => {
            format!("no effect, with a warning if it asks for something else: {reason}")
        }
        Effect::NotYet(what) => format!("checked, not effective yet: {what}"),
        Effect::Rejected(help) => format!("rejected: {help}"),
        Effect::NamesRedis => "counts in Redis".into(),
        Effect::Redis(effect) => match effect {
            RedisEffect::Same => setting(),
            RedisEffect::Url => {
                let (url, master) = (setting(), setting());
                format!("{url}; with sentinels the part before the first comma is {master}")
            }
            RedisEffect::Login => {
                let (username, password) = (setting(), setting());
                format!(
                    "{username} before the first colon and {password} after it, or only the \
                     password"
                )
            }
            RedisEffect::PerSecond => "whether `store.redis.per_second` is used; without it, its \
                                       variables have no effect"
                .into(),
            RedisEffect::Ignored(reason) => format!("ignored: {reason}"),
        },
        Effect::ByValue(effects) => {
            let effects = effects.iter().map(|(value, of)| match *value {
                "" => format!("empty: {}", effect(variable, *of)),
                OTHERS => format!("others: {}", effect(variable, *of)),
                value => format!("`{value}`: {}", effect(variable, *of)),
            });
            effects.collect::<Vec<_>>().join("; ")
        }
    }
}

/// Returns the document with a new table between two markers.
fn replaced(document: &str, name: &str, table: &str) -> String {
    let (begin, end) =
        (format!("<!-- {name}: from the code -->\n"), format!("<!-- end of {name} -->"));
    let (head, rest) = document.split_once(&begin).expect("the beginning is marked");
    let (_, tail) = rest.split_once(&end).expect("the end is marked");
    format!("{head}{begin}\n{table}\n{end}{tail}")
}

#[test]
fn the_document_has_the_tables_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
    let document = std::fs::read_to_string(path).unwrap();
    let wanted = replaced(&document, "settings", &settings());
    let wanted = replaced(&wanted, "variables", &variables());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert!(document == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
}
