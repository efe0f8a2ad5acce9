//! The tables of `docs/reference/settings.md`. A test compares them; `UPDATE_DOCS=1 cargo test --lib docs` writes
//! them.

mod chart;
mod schema;

use std::fmt::Write;

use crate::settings::format::FormatKind;
use crate::settings::reference::no_effect::{NO_EFFECT, Warning};
use crate::settings::reference::variables::VARIABLES;
use crate::settings::reference::{Meaning, RedisEffect, VariableEffect, go};
use crate::settings::setting::Setting;
use crate::settings::table::SETTINGS;

/// Returns what a setting means, by the name of an earlier setting that means the same.
fn meaning(setting: &Setting) -> String {
    let mut earlier = SETTINGS.iter().take_while(|other| other.name != setting.name);
    match earlier.find(|other| other.doc == setting.doc) {
        Some(same) => format!("As `{}`.", same.name),
        None => setting.doc.to_owned(),
    }
}

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
            meaning(setting)
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
            effect(variable.effect)
        );
    }
    table
}

/// Returns the table of the variables without effect.
fn no_effect() -> String {
    let mut table = "| Variables | Why | Warning |\n| --- | --- | --- |\n".to_owned();
    for entry in NO_EFFECT {
        let names: Vec<_> = entry.names.iter().map(|name| code(&name.replace('*', "…"))).collect();
        let warning = match entry.warning {
            Warning::Never => "",
            Warning::Always => "yes",
            Warning::If(_) => "if it asks for something else",
        };
        let _ = writeln!(table, "| {} | {} | {warning} |", names.join(", "), entry.reason);
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

fn effect(effect: VariableEffect) -> String {
    match effect {
        VariableEffect::Set(setting, meaning) => match meaning {
            Meaning::Same | Meaning::Bytes | Meaning::Clamped => code(setting),
            Meaning::Source => "`rules.source`: `FILE` is files, `GRPC_XDS_SOTW` is xds".into(),
            Meaning::Host | Meaning::ListenHost => format!("the host of {}", code(setting)),
            Meaning::Port => format!("the port of {}", code(setting)),
            Meaning::IsPositive => format!("{}, if it is greater than 0", code(setting)),
            Meaning::ListenOn(address) => {
                format!("{}: `{address}`, if PROMETHEUS_ADDR is not set", code(setting))
            }
            Meaning::AddressIfSet => format!("{}, with USE_PROMETHEUS", code(setting)),
            Meaning::LogLevel => {
                "`log.level`; panic and fatal are error; library=level for libraries may follow"
                    .into()
            }
            Meaning::LogFormat => {
                "`log.format`: json in any letter case is reference-json; all else is text".into()
            }
        },
        VariableEffect::SetText(setting) | VariableEffect::Redis(RedisEffect::Same(setting)) => {
            code(setting)
        }
        VariableEffect::Defines(what) => what.into(),
        VariableEffect::Backend => {
            "`redis`: counts in Redis; `memcache`: rejected; empty: weir counts in \
                            memory unless Redis is configured"
                .into()
        }
        VariableEffect::Redis(RedisEffect::Url(url, master)) => format!(
            "{}; with sentinels the part before the first comma is {}",
            code(url),
            code(master)
        ),
        VariableEffect::Redis(RedisEffect::Login(username, password)) => format!(
            "{} before the first colon and {} after it, or only the password",
            code(username),
            code(password)
        ),
        VariableEffect::Redis(RedisEffect::PerSecond) => {
            "whether `store.redis.per_second` is used; without \
                                                  it, its variables have no effect"
                .into()
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
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/settings.md");
    let document = std::fs::read_to_string(path).unwrap();
    let wanted = replaced(&document, "settings", &settings());
    let wanted = replaced(&wanted, "variables", &variables());
    let wanted = replaced(&wanted, "variables without effect", &no_effect());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert!(document == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
}
