//! A settings file with every setting at its default, for people to start from.

use super::table::{SETTINGS, Setting};
use super::value::Kind;

const HEAD: &str = "\
# Every setting of weir, at its default. Keep what you change and delete the rest: then what a
# later version does better by default reaches you. In the environment a.b is WEIR__A__B.
";

/// The file, as TOML.
pub fn toml() -> String {
    let mut file = HEAD.to_owned();
    let mut group = "";
    for setting in SETTINGS {
        let (of, name) = setting.name.rsplit_once('.').unwrap_or(("", setting.name));
        if of != group {
            file.push_str(&format!("\n[{of}]\n"));
            group = of;
        }
        file.push_str(&format!("# {}\n", setting.about));
        if let Kind::Choice(words) = setting.kind {
            file.push_str(&format!("# One of {}.\n", words.join(", ")));
        }
        file.push_str(&format!("{name} = {}\n", value(setting)));
    }
    file
}

/// A setting's default as TOML writes it.
fn value(setting: &Setting) -> String {
    match setting.kind {
        Kind::Bool | Kind::Int(..) | Kind::Ratio => setting.default.to_owned(),
        Kind::List if setting.default.is_empty() => "[]".to_owned(),
        _ => format!("{:?}", setting.default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Inputs, Settings};

    #[test]
    fn the_example_loads_as_it_is_and_says_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.toml");
        std::fs::write(&file, toml()).unwrap();
        let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
        let (said, defaults) =
            (Settings::load(&inputs).unwrap(), Settings::load(&Inputs::default()).unwrap());
        for ((setting, said, origin), (_, default, _)) in said.list().zip(defaults.list()) {
            assert_eq!(origin, file.to_str().unwrap(), "{}", setting.name);
            assert_eq!(said.replace('_', ""), default.replace('_', ""), "{}", setting.name);
        }
        assert!(said.rules.runtime.is_none());
    }

    #[test]
    fn a_group_has_one_table() {
        let toml = toml();
        let mut tables: Vec<_> = toml.lines().filter(|line| line.starts_with('[')).collect();
        let all = tables.len();
        tables.sort_unstable();
        tables.dedup();
        assert_eq!(tables.len(), all);
    }
}
