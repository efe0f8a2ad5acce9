//! A settings file with every setting at its default, as `weir settings` prints it.

use super::format::FormatKind;
use super::setting::Setting;
use super::table::SETTINGS;

const HEAD: &str = "\
# Every setting of weir, at its default. Keep the settings that you change and delete the rest, so
# that you get the defaults of later versions. In the environment a.b is WEIR__A__B.
";

/// Returns the file, as TOML.
pub fn toml() -> String {
    let mut file = HEAD.to_owned();
    let mut group = "";
    for setting in SETTINGS.iter() {
        let (of, name) = setting.name.rsplit_once('.').unwrap_or(("", setting.name));
        if of != group {
            file.push_str(&format!("\n[{of}]\n"));
            group = of;
        }
        file.push_str(&format!("# {}\n", setting.doc));
        if let FormatKind::Choice(words) = setting.kind {
            file.push_str(&format!("# One of {}.\n", words().join(", ")));
        }
        file.push_str(&format!("{name} = {}\n", value(setting)));
    }
    file
}

/// Returns a setting's default as TOML.
fn value(setting: &Setting) -> String {
    match setting.kind {
        FormatKind::Bool | FormatKind::Int(..) | FormatKind::Ratio => setting.default.to_owned(),
        FormatKind::List if setting.default.is_empty() => "[]".to_owned(),
        _ => format!("{:?}", setting.default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Inputs, Settings};

    #[test]
    fn the_example_loads_and_has_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.toml");
        std::fs::write(&file, toml()).unwrap();
        let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
        let (example, defaults) =
            (Settings::load(&inputs).unwrap(), Settings::load(&Inputs::default()).unwrap());
        for (entry, default) in example.list().into_iter().zip(defaults.list()) {
            let name = entry.setting.name;
            let start = format!("{}:", file.display());
            assert!(entry.origin.starts_with(&start), "{name}: {}", entry.origin);
            assert_eq!(entry.shown.replace('_', ""), default.shown.replace('_', ""), "{name}");
        }
        assert!(example.rule_files().is_none());
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
