//! How the process is set up: every setting typed, from layers of which later ones win.

mod layers;
pub mod reference;
pub mod table;
pub mod value;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::limiter::Behaviour;
use crate::near::nearest;
use crate::rules::{self, source::Selection};
use crate::watch;
use layers::All;
use value::Parsed;

/// Where settings may be said, apart from their defaults.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub file: Option<PathBuf>,
    /// The environment: names and values.
    pub env: Vec<(String, String)>,
    /// Command-line flags: the flag, the setting it means, its text.
    pub flags: Vec<(String, String, String)>,
}

/// Something wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, variable or flag that says it.
    pub origin: String,
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Mistake {
    fn unknown(name: &str, origin: &str) -> Mistake {
        let nearest = nearest(name, table::SETTINGS.iter().map(|setting| setting.name));
        Mistake {
            origin: origin.to_owned(),
            message: format!("there is no setting {name:?}"),
            help: match nearest {
                Some(near) => format!("did you mean {near}?"),
                None => "leave it out".to_owned(),
            },
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.origin, self.message, self.help)
    }
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub rules: Rules,
    pub grpc: Grpc,
    pub http: Http,
    pub debug: Http,
    pub response: Response,
    pub store: Store,
    pub health: Health,
    pub drain: Drain,
    /// Threads that serve; 0: as many as cores.
    pub threads: usize,
    pub log: Log,
    /// How requests are judged.
    pub behaviour: Behaviour,
    all: All,
}

/// Where rules come from.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Files, or directories of them.
    pub paths: Vec<PathBuf>,
    pub merge_domains: bool,
    /// How changes are found.
    pub watch: watch::Options,
    pub ignore_dot_files: bool,
    /// In bytes.
    pub max_file: u64,
    /// What the state of one key may come to, in bytes.
    pub max_log_bytes: u64,
    /// The reference's layout of directories, where it was asked for and `paths` is empty.
    pub runtime: Option<Runtime>,
}

/// The reference's layout of directories.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub root: PathBuf,
    pub subdirectory: String,
    pub app_directory: String,
    pub watch_root: bool,
}

#[derive(Clone, Debug)]
pub struct Grpc {
    pub address: String,
    /// In bytes.
    pub max_message: usize,
    pub max_streams: u32,
}

/// One HTTP listener.
#[derive(Clone, Debug)]
pub struct Http {
    pub address: String,
}

/// What is added to answers.
#[derive(Clone, Debug)]
pub struct Response {
    pub headers: bool,
    pub limit_header: String,
    pub remaining_header: String,
    pub reset_header: String,
    pub retry_after: bool,
    pub ratelimit_fields: bool,
    pub dynamic_metadata: bool,
}

#[derive(Clone, Debug)]
pub struct Store {
    pub kind: &'static str,
    pub budget: Duration,
    pub max_keys: usize,
}

#[derive(Clone, Debug)]
pub struct Health {
    pub require_rules: bool,
}

#[derive(Clone, Debug)]
pub struct Drain {
    pub delay: Duration,
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Log {
    pub level: &'static str,
    pub format: &'static str,
}

impl Rules {
    /// How the files are compiled.
    pub fn options(&self) -> rules::Options {
        rules::Options { merge_domains: self.merge_domains, max_log_bytes: self.max_log_bytes }
    }

    /// The files these settings name; none where they name nothing.
    pub fn selection(&self) -> Option<Selection> {
        let (roots, prefix) = match &self.runtime {
            _ if !self.paths.is_empty() => (self.paths.clone(), None),
            None => return None,
            Some(runtime) => {
                let directory = runtime.root.join(&runtime.subdirectory);
                match runtime.watch_root {
                    true => (vec![directory], Some(format!("{}.", runtime.app_directory))),
                    false => (vec![directory.join(&runtime.app_directory)], None),
                }
            }
        };
        Some(Selection {
            roots,
            prefix,
            // The reference reads every file, whatever its name.
            yaml_only: !self.paths.is_empty(),
            ignore_dot_files: self.ignore_dot_files,
            max_file: self.max_file,
        })
    }
}

impl Settings {
    /// Puts the layers together, or says everything that is wrong with them.
    pub fn load(inputs: &Inputs) -> Result<Settings, Vec<Mistake>> {
        let all = layers::resolve(inputs)?;
        let get = |name: &str| &all[name].value;
        let flag = |name| matches!(get(name), Parsed::Bool(true));
        let int = |name| if let Parsed::Int(n) = get(name) { *n } else { 0 };
        let size = |name| usize::try_from(int(name)).unwrap_or(usize::MAX);
        let text =
            |name| if let Parsed::Text(text) = get(name) { text.clone() } else { String::new() };
        let time =
            |name| if let Parsed::Duration(time) = get(name) { *time } else { Duration::ZERO };
        let choice = |name| if let Parsed::Choice(word) = get(name) { *word } else { "" };
        let ratio = |name| if let Parsed::Ratio(ratio) = get(name) { *ratio } else { 0.0 };
        let list =
            |name| if let Parsed::List(list) = get(name) { list.clone() } else { Vec::new() };

        let runtime_asked = all.iter().any(|(name, resolved)| {
            name.starts_with("rules.runtime.") && resolved.origin != "default"
        });
        let root = Some(text("rules.runtime.root"))
            .filter(|root| !root.is_empty())
            .unwrap_or_else(|| reference::DEFAULT_RUNTIME_ROOT.to_owned());
        Ok(Settings {
            rules: Rules {
                paths: list("rules.paths").into_iter().map(PathBuf::from).collect(),
                merge_domains: flag("rules.merge_domains"),
                watch: watch::Options { watch: flag("rules.watch"), poll: time("rules.poll") },
                ignore_dot_files: flag("rules.ignore_dot_files"),
                max_file: int("rules.max_file"),
                max_log_bytes: int("rules.max_log_bytes"),
                runtime: runtime_asked.then(|| Runtime {
                    root: root.into(),
                    subdirectory: text("rules.runtime.subdirectory"),
                    app_directory: text("rules.runtime.app_directory"),
                    watch_root: flag("rules.runtime.watch_root"),
                }),
            },
            grpc: Grpc {
                address: text("grpc.address"),
                max_message: size("grpc.max_message"),
                max_streams: u32::try_from(int("grpc.max_streams")).unwrap_or(u32::MAX),
            },
            http: Http { address: text("http.address") },
            debug: Http { address: text("debug.address") },
            response: Response {
                headers: flag("response.headers"),
                limit_header: text("response.limit_header"),
                remaining_header: text("response.remaining_header"),
                reset_header: text("response.reset_header"),
                retry_after: flag("response.retry_after"),
                ratelimit_fields: flag("response.ratelimit_fields"),
                dynamic_metadata: flag("response.dynamic_metadata"),
            },
            store: Store {
                kind: choice("store.kind"),
                budget: time("store.budget"),
                max_keys: size("store.memory.max_keys"),
            },
            health: Health {
                require_rules: flag("health.require_rules")
                    && !(flag("health.force_start")
                        && all["health.require_rules"].origin == "default"),
            },
            drain: Drain { delay: time("drain.delay"), timeout: time("drain.timeout") },
            threads: size("runtime.threads"),
            log: Log { level: choice("log.level"), format: choice("log.format") },
            behaviour: Behaviour {
                shadow_mode: flag("response.shadow_mode"),
                quota_mode: flag("response.quota_mode"),
                near_limit_ratio: ratio("metrics.near_limit_ratio"),
                allow_overrides: flag("grpc.allow_overrides"),
                allow_negative_hits: flag("grpc.allow_negative_hits"),
                max_descriptors: size("grpc.max_descriptors"),
            },
            all,
        })
    }

    /// Each setting with its value as written and where that came from, in the table's order.
    pub fn list(&self) -> impl Iterator<Item = (&'static table::Setting, &str, &str)> {
        table::SETTINGS.iter().map(|setting| {
            let resolved = &self.all[setting.name];
            (setting, resolved.text.as_str(), resolved.origin.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(env: &[(&str, &str)]) -> Inputs {
        let env = env.iter().map(|&(name, text)| (name.into(), text.into())).collect();
        Inputs { env, ..Inputs::default() }
    }

    #[test]
    fn defaults_are_of_their_kinds() {
        let settings = Settings::load(&Inputs::default()).unwrap();
        assert_eq!(settings.grpc.address, "0.0.0.0:8081");
        assert_eq!(settings.http.address, "0.0.0.0:8080");
        assert_eq!(settings.debug.address, "0.0.0.0:6070");
        assert_eq!(settings.store.budget, Duration::from_millis(8));
        assert_eq!(settings.store.max_keys, 10_000_000);
        assert_eq!(settings.grpc.max_message, 1 << 20);
        assert!(settings.rules.runtime.is_none() && settings.rules.paths.is_empty());
    }

    #[test]
    fn later_layers_win_and_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.toml");
        std::fs::write(
            &file,
            "[grpc]\naddress = \"127.0.0.1:1\"\nmax_descriptors = 3\n[drain]\ndelay = \"1s\"\n",
        )
        .unwrap();
        let mut inputs = inputs(&[
            ("GRPC_PORT", "2"),
            ("WEIR__GRPC__MAX_DESCRIPTORS", "4"),
            ("WEIR__DRAIN__DELAY", "2s"),
            ("SHADOW_MODE", "T"),
        ]);
        inputs.file = Some(file);
        inputs.flags = vec![("--drain-delay".into(), "drain.delay".into(), "3s".into())];
        let settings = Settings::load(&inputs).unwrap();
        assert_eq!(settings.grpc.address, "127.0.0.1:2");
        assert_eq!(settings.behaviour.max_descriptors, 4);
        assert_eq!(settings.drain.delay, Duration::from_secs(3));
        assert!(settings.behaviour.shadow_mode);
        let origin = |name| settings.list().find(|(s, ..)| s.name == name).unwrap().2.to_owned();
        assert_eq!(origin("grpc.address"), "GRPC_PORT");
        assert_eq!(origin("grpc.max_descriptors"), "WEIR__GRPC__MAX_DESCRIPTORS");
        assert_eq!(origin("drain.delay"), "--drain-delay");
        assert_eq!(origin("http.address"), "default");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let mistakes = Settings::load(&inputs(&[
            ("WEIR__GRCP__ADDRESS", "1:2"),
            ("WEIR__STORE__KIND", "disk"),
            ("GRPC_PORT", "99999"),
            ("LOG_LEVEL", "loud"),
            ("RUNTIME_WATCH_ROOT", ""),
        ]))
        .unwrap_err();
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        for wanted in [
            "WEIR__GRCP__ADDRESS: there is no setting \"grcp.address\"; did you mean grpc.address?",
            "WEIR__STORE__KIND: store.kind is \"disk\"; write one of memory, redis",
            "GRPC_PORT: grpc.address is \"0.0.0.0:99999\"; \
             write host:port, such as 0.0.0.0:8081 or [::]:8081",
            "LOG_LEVEL: log.level is \"loud\"; \
             write one of off, error, warn, info, debug, trace",
            "RUNTIME_WATCH_ROOT: rules.runtime.watch_root is \"\"; write true or false",
        ] {
            assert!(told.iter().any(|t| t == wanted), "{wanted:?} is not among {told:#?}");
        }
        assert_eq!(told.len(), 5);
    }

    #[test]
    fn variables_of_kubernetes_services_do_no_harm() {
        let settings = Settings::load(&inputs(&[
            ("WEIR_PORT", "tcp://10.0.0.1:8081"),
            ("WEIR_SERVICE_HOST", "10.0.0.1"),
            ("RATELIMIT_PORT", "tcp://10.0.0.2:8081"),
        ]));
        assert!(settings.is_ok());
    }

    #[test]
    fn health_waits_for_rules_unless_told_otherwise() {
        let waits =
            |env: &[(&str, &str)]| Settings::load(&inputs(env)).unwrap().health.require_rules;
        let force = ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true");
        assert!(waits(&[]));
        assert!(!waits(&[force]));
        assert!(waits(&[force, ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")]));
        assert!(!waits(&[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false")]));
    }

    #[test]
    fn a_runtime_variable_asks_for_the_references_layout() {
        let settings = Settings::load(&inputs(&[("RUNTIME_SUBDIRECTORY", "ratelimit")])).unwrap();
        let runtime = settings.rules.runtime.unwrap();
        assert_eq!(runtime.root, PathBuf::from("/srv/runtime_data/current"));
        assert_eq!(runtime.subdirectory, "ratelimit");
        assert_eq!(runtime.app_directory, "config");
    }
}
