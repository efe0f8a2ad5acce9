//! `weir check`: checks rule files, those that `weir serve` reads with the same settings.

use std::io::{self, Write};
use std::process::ExitCode;

use super::serve::load_settings;
use crate::settings::Inputs;
use crate::settings::reference::variables::about_rules;
use weir_common::escape::escape;
use weir_tools::check::CheckArgs;
use weir_tools::print::{finish, on_stderr};
use weir_tools::{USAGE, environment};

/// Checks the settings file, if one is named, and rules.
pub fn run(args: CheckArgs) -> ExitCode {
    if args.schema {
        return weir_tools::check::print_schema();
    }
    match with_settings(args, environment()) {
        Ok(args) => weir_tools::check::run(&args),
        Err(code) => code,
    }
}

/// Returns the arguments with what the settings say about rules; an exit code if there is nothing to check.
fn with_settings(mut args: CheckArgs, env: Vec<(String, String)>) -> Result<CheckArgs, ExitCode> {
    let file = args.settings.take();
    let has_file = file.is_some();
    // Without a settings file, errors in settings of the service do not matter.
    let env = if has_file { env } else { about_rules(env) };
    let paths: Vec<String> = args.paths.iter().map(|path| path.display().to_string()).collect();
    let is_named = !paths.is_empty();
    // As `weir serve --rules` does.
    let flags = is_named.then(|| ("RULES".to_owned(), "rules.paths".to_owned(), paths.into()));
    let inputs = Inputs { file, env, flags: flags.into_iter().collect() };
    let settings = load_settings(&inputs).map_err(|errors| {
        eprintln!("{errors}");
        ExitCode::FAILURE
    })?;
    settings.warnings.iter().for_each(|detail| eprintln!("warning: {}", escape(detail)));
    args.calendar_months = *settings.rules.calendar_months;
    args.rule_files.merge_domains |= *settings.rules.merge_domains;
    let from_server = !is_named && settings.xds_options().is_some();
    let Some(selection) = settings.rule_files().filter(|_| !from_server) else {
        if has_file {
            return Err(finish(writeln!(io::stdout(), "ok: no rule files"), ExitCode::SUCCESS));
        }
        on_stderr("error: no rules are named: write files or directories, or set RUNTIME_ROOT");
        return Err(ExitCode::from(USAGE));
    };
    if !is_named {
        args.paths = selection.roots.clone();
        args.rule_files.overlay.extend(settings.rules.overlay.to_vec());
    }
    let runtime = settings.runtime_origins().join(", ");
    if !runtime.is_empty() {
        let read = if selection.yaml_only { "named, ignoring" } else { "those of" };
        on_stderr(&format!("note: rules are {read} {runtime}"));
    }
    args.selection = selection;
    Ok(args)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::health::Health;
    use crate::rls::service::Rules;
    use crate::rule_sources::loader::Loader;
    use crate::rule_sources::watch::{RuleFiles, WatchContext, WatchKind};
    use crate::settings::Settings;
    use weir_rules::{Document, Lists, RuleOptions};

    /// A start of weir: rules that are named, the settings file, and the environment.
    struct Layout<'l> {
        rules: &'l [&'l str],
        settings: &'l str,
        env: &'l [(&'l str, &'l str)],
    }

    const FILES: [&str; 11] = [
        "ratelimit/config/.hidden.yaml",
        "ratelimit/config/a.yaml",
        "ratelimit/config/deep/b.yml",
        "ratelimit/config/deep/c.txt",
        "ratelimit/config/no_extension",
        "ratelimit/config/o.overlay.yaml",
        "ratelimit/config/t.test.yaml",
        "ratelimit/config/x.json",
        "ratelimit/config.yaml",
        "ratelimit/configured.yaml",
        "ratelimit/other/d.yaml",
    ];

    impl Layout<'_> {
        fn env(&self, directory: &Path) -> Vec<(String, String)> {
            let root = directory.display().to_string();
            let variables = self.env.iter();
            variables
                .map(|(name, text)| ((*name).to_owned(), text.replace("ROOT", &root)))
                .collect()
        }

        fn named(&self, directory: &Path) -> Vec<String> {
            self.rules.iter().map(|path| directory.join(path).display().to_string()).collect()
        }

        fn settings(&self, directory: &Path) -> Option<std::path::PathBuf> {
            let text = self.settings.replace("ROOT", &directory.display().to_string());
            let path = directory.join("weir.toml");
            fs::write(&path, &text).unwrap();
            (!text.is_empty()).then_some(path)
        }

        /// Loads rules as the service does. Returns their files.
        async fn served(&self, directory: &Path) -> Vec<String> {
            let named = self.named(directory);
            let flag = ("--rules".to_owned(), "rules.paths".to_owned(), named.clone().into());
            let flags = if named.is_empty() { vec![] } else { vec![flag] };
            let (file, env) = (self.settings(directory), self.env(directory));
            let settings = Settings::load(&Inputs { file, env, flags }).unwrap();
            let rules = Rules::default();
            let health = Arc::new(Health::new(Default::default()));
            let loader = Arc::new(Loader::new(rules.clone(), settings.rule_options(), health));
            let context = WatchContext { poll: Duration::ZERO, loader, metrics: Arc::default() };
            RuleFiles::new(WatchKind::Rules, settings.rule_files().unwrap(), &context).load().await;
            let rules = rules.load_full().expect("valid rules");
            rules.rules().map(|rule| rule.origin.file.to_string()).collect()
        }

        fn checked(&self, directory: &Path) -> Vec<String> {
            let mut line = vec!["weir".to_owned(), "check".to_owned()];
            line.extend(self.named(directory));
            if let Some(settings) = self.settings(directory) {
                line.extend(["--settings".to_owned(), settings.display().to_string()]);
            }
            let Command::Check(args) = Cli::try_parse_from(line).unwrap().command else { panic!() };
            let args = with_settings(args, self.env(directory)).expect("rules");
            let options = RuleOptions {
                merge_domains: args.rule_files.merge_domains,
                lists: Lists::BesideRules,
                ..RuleOptions::default()
            };
            let read = weir_tools::rule_files::load(&args.paths, &[], &options, &args.selection);
            assert!(read.loaded.is_good(), "{:?}", read.loaded.problems);
            read.loaded.files.iter().map(|file| file.name().to_owned()).collect()
        }
    }

    #[tokio::test]
    async fn the_files_that_are_checked_are_those_that_are_served() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for (i, name) in FILES.iter().enumerate() {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // With merged domains only.
            let i = if name.ends_with("c.txt") { 1 } else { i };
            let rules = format!("domain: d{i}\ndescriptors: [{{ key: '{name}', rate: 1/d }}]\n");
            fs::write(path, rules).unwrap();
        }
        let root = [("RUNTIME_ROOT", "ROOT"), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
        let merged = [root[0], root[1], ("MERGE_DOMAIN_CONFIG", "true")];
        let below = [merged[0], merged[1], merged[2], ("RUNTIME_WATCH_ROOT", "false")];
        let hidden = [below[0], below[1], below[2], below[3], ("RUNTIME_IGNOREDOTFILES", "0")];
        let (config, deep) = ("ratelimit/config", "ratelimit/config/deep");
        for (rules, settings, env, wanted) in [
            (&[config][..], "", &[][..], &[1, 2][..]),
            (&["ratelimit/config/x.json", deep], "", &[], &[2, 7]),
            (&[config], "", &hidden, &[0, 1, 2]),
            (&[], "", &[("WEIR__RULES__PATHS", "ROOT/ratelimit/other")], &[10]),
            (&[], "", &merged, &[1, 2, 3, 4, 7, 8]),
            (&[], "", &below, &[1, 2, 3, 4, 7]),
            (&[], "", &hidden, &[0, 1, 2, 3, 4, 7]),
            (&[], "rules.paths = [\"ROOT/ratelimit/config/deep\"]", &root, &[2]),
            (
                &[],
                "[rules]\nmerge_domains = true\nruntime.root = \"ROOT/ratelimit\"",
                &[],
                &[1, 2, 3, 4, 7, 8],
            ),
            (&["ratelimit/other"], "rules.paths = [\"ROOT/none\"]", &root, &[10]),
        ] {
            let layout = Layout { rules, settings, env };
            let served = layout.served(directory).await;
            let mut wanted: Vec<String> =
                wanted.iter().map(|i| directory.join(FILES[*i]).display().to_string()).collect();
            wanted.sort();
            let mut sorted = served.clone();
            sorted.sort();
            assert_eq!(sorted, wanted, "{rules:?} {settings} {env:?}");
            assert_eq!(layout.checked(directory), served, "{rules:?} {settings} {env:?}");
        }
    }
}
