//! How the process is set up: every setting typed, from layers of which later ones win.

pub mod docs;
pub mod example;
mod layers;
pub mod redis;
pub mod reference;
mod secret;
pub mod table;
#[cfg(test)]
mod tests;
pub mod value;

use std::fmt;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use config::ValueKind;

use crate::failure::OnStoreFailure;
use crate::limiter;
use crate::rules::{self, source::Selection};
use crate::service::{Permissions, Protocol};
use crate::suggest::nearest;
use crate::{grpc, http, watch, xds};
use layers::{All, Resolved};
use redis::Redis;
use value::Parsed;

/// Where settings may be said, apart from their defaults.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub file: Option<PathBuf>,
    /// The environment: names and values.
    pub env: Vec<(String, String)>,
    /// Command-line flags: the flag, the setting it means, its value.
    pub flags: Vec<(String, String, ValueKind)>,
}

/// Something wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The file, variable or flag that says it.
    pub origin: String,
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl SettingError {
    fn unknown(name: &str, origin: &str) -> SettingError {
        let names = || table::SETTINGS.iter().map(|setting| setting.name);
        let below = |group: &str| group.strip_prefix(name).is_some_and(|r| r.starts_with('.'));
        let group: Vec<_> = names().filter(|setting| below(setting)).collect();
        let help = match nearest(name, names()) {
            _ if !group.is_empty() => format!("it is a group: {}", group.join(", ")),
            Some(near) => format!("did you mean {near}?"),
            None => "leave it out; `weir settings` shows all there are".to_owned(),
        };
        let message = format!("there is no setting {name:?}");
        SettingError { origin: origin.to_owned(), message, help }
    }
}

impl fmt::Display for SettingError {
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
    pub debug: Debug,
    /// Of either HTTP listener.
    pub http_limits: http::Limits,
    pub response: Response,
    pub store: Store,
    pub health: Health,
    pub drain: Drain,
    /// Threads that serve; 0: as many as cores.
    pub threads: usize,
    pub log: Log,
    /// How requests are judged.
    pub limiter: limiter::Options,
    /// What to tell those who start the service: variables without effect.
    pub warnings: Vec<String>,
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
    /// How many errors, and how many warnings, of a file are listed.
    pub max_problems: usize,
    /// The reference's layout of directories, where it was asked for and `paths` is empty.
    pub runtime: Option<Runtime>,
    /// The management server, where rules come from one instead of files.
    pub xds: Option<xds::Options>,
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
    pub limits: grpc::Limits,
    pub max_connections: usize,
    pub permissions: Permissions,
}

#[derive(Clone, Debug)]
pub struct Http {
    pub address: String,
    /// Of `/json`.
    pub permissions: Permissions,
}

#[derive(Clone, Debug)]
pub struct Debug {
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
    /// Caps how long the store may take for one request; none: as the caller's timeout leaves.
    pub budget: Option<Duration>,
    pub on_failure: OnStoreFailure,
    /// How many replicas share the limits when each counts alone.
    pub replicas: u32,
    /// How long denials are repeated without asking; 0: never.
    pub deny_locally_for: Duration,
    pub max_keys: usize,
    /// Where counters live there.
    pub redis: Option<Redis>,
    /// Where limits of one second are counted, if apart.
    pub per_second: Option<Redis>,
}

#[derive(Clone, Debug)]
pub struct Health {
    pub require_rules: bool,
    pub require_domain: bool,
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
        rules::Options {
            merge_domains: self.merge_domains,
            max_log_bytes: self.max_log_bytes,
            max_problems: self.max_problems,
        }
    }

    /// The files these settings name; none where they name nothing.
    pub fn selection(&self) -> Option<Selection> {
        let (roots, prefix) = match &self.runtime {
            _ if !self.paths.is_empty() => (self.paths.clone(), None),
            None => return None,
            Some(runtime) => {
                // Below the root even where they begin with a slash, which would replace it.
                let subdirectory = runtime.subdirectory.trim_start_matches('/');
                let app_directory = runtime.app_directory.trim_start_matches('/');
                let directory = runtime.root.join(subdirectory);
                match runtime.watch_root {
                    true => (vec![directory], Some(format!("{app_directory}."))),
                    false => (vec![directory.join(app_directory)], None),
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
    pub fn load(inputs: &Inputs) -> Result<Settings, Vec<SettingError>> {
        let (all, warnings) = layers::resolve(inputs)?;
        let get = |name: &str| &all[name].value;
        let flag = |name| matches!(get(name), Parsed::Bool(true));
        let int = |name| if let Parsed::Int(n) = get(name) { *n } else { 0 };
        let size = |name| usize::try_from(int(name)).unwrap_or(usize::MAX);
        let text =
            |name| if let Parsed::Text(text) = get(name) { text.clone() } else { String::new() };
        let time =
            |name| if let Parsed::Duration(time) = get(name) { *time } else { Duration::ZERO };
        // For those where 0 is to mean for ever.
        let patience = |name| match time(name) {
            Duration::ZERO => Duration::MAX,
            time => time,
        };
        let choice = |name| if let Parsed::Choice(word) = get(name) { *word } else { "" };
        let ratio = |name| if let Parsed::Ratio(ratio) = get(name) { *ratio } else { 0.0 };
        let list =
            |name| if let Parsed::List(list) = get(name) { list.clone() } else { Vec::new() };

        let path = |name| Some(text(name)).filter(|path| !path.is_empty()).map(PathBuf::from);

        // Its errors were told with all others.
        let (redis, per_second) = match choice("store.kind") {
            "redis" => {
                let (redis, per_second) = redis::read(&all, &mut Vec::new());
                (Some(redis), per_second)
            }
            _ => (None, None),
        };
        // A file that only repeats the defaults asks for nothing.
        let runtime_asked = all.iter().any(|(name, Resolved { text, origin, .. })| {
            let default = table::find(name).map_or("", |setting| setting.default);
            name.starts_with("rules.runtime.")
                && (text != default || origin.starts_with("RUNTIME_"))
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
                max_problems: size("rules.max_problems"),
                runtime: runtime_asked.then(|| Runtime {
                    root: root.into(),
                    subdirectory: text("rules.runtime.subdirectory"),
                    app_directory: text("rules.runtime.app_directory"),
                    watch_root: flag("rules.runtime.watch_root"),
                }),
                xds: (choice("rules.source") == "xds").then(|| xds::Options {
                    url: text("rules.xds.url"),
                    delta: choice("rules.xds.mode") == "delta",
                    node_id: text("rules.xds.node_id"),
                    node_metadata: list("rules.xds.node_metadata"),
                    headers: list("rules.xds.headers"),
                    max_message: match size("rules.xds.max_message") {
                        0 => 4 << 20,
                        size => size,
                    },
                    connect_timeout: time("rules.xds.connect_timeout"),
                    keepalive: time("rules.xds.keepalive"),
                    backoff_min: time("rules.xds.backoff_min"),
                    backoff_max: time("rules.xds.backoff_max"),
                    backoff_jitter: flag("rules.xds.backoff_jitter"),
                    tls: xds::Tls {
                        enabled: flag("rules.xds.tls.enabled"),
                        cert: path("rules.xds.tls.cert"),
                        key: path("rules.xds.tls.key"),
                        ca: path("rules.xds.tls.ca"),
                        server_name: text("rules.xds.tls.server_name"),
                    },
                }),
            },
            grpc: Grpc {
                address: text("grpc.address"),
                limits: grpc::Limits {
                    max_message: size("grpc.max_message"),
                    max_headers: u32::try_from(int("grpc.max_headers")).unwrap_or(u32::MAX),
                    max_streams: u32::try_from(int("grpc.max_streams")).unwrap_or(u32::MAX),
                    max_buffered: size("grpc.max_buffered"),
                    keepalive: time("grpc.keepalive"),
                    timeout: patience("grpc.timeout"),
                },
                max_connections: size("grpc.max_connections"),
                permissions: Permissions {
                    protocol: Protocol::Grpc,
                    allow_overrides: flag("grpc.allow_overrides"),
                    allow_negative_hits: flag("grpc.allow_negative_hits"),
                },
            },
            http: Http {
                address: text("http.address"),
                permissions: Permissions {
                    protocol: Protocol::Http,
                    allow_overrides: flag("http.allow_overrides"),
                    allow_negative_hits: flag("http.allow_negative_hits"),
                },
            },
            debug: Debug { address: text("debug.address") },
            http_limits: http::Limits {
                max_connections: size("http.max_connections"),
                timeout: patience("http.timeout"),
                max_body: size("grpc.max_message"),
                max_buffered: size("http.max_buffered"),
            },
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
                budget: match get("store.budget") {
                    Parsed::Duration(budget) => Some(*budget),
                    _ => None,
                },
                on_failure: OnStoreFailure::ALL
                    .into_iter()
                    .find(|policy| policy.name() == choice("store.on_failure"))
                    .unwrap_or_default(),
                replicas: u32::try_from(int("store.replicas")).unwrap_or(u32::MAX),
                deny_locally_for: time("store.deny_locally_for"),
                max_keys: size("store.memory.max_keys"),
                redis,
                per_second,
            },
            health: Health {
                require_rules: flag("health.require_rules")
                    && !(flag("health.force_start")
                        && all["health.require_rules"].origin == "default"),
                require_domain: flag("health.require_domain"),
            },
            drain: Drain { delay: time("drain.delay"), timeout: time("drain.timeout") },
            threads: size("runtime.threads"),
            log: Log { level: choice("log.level"), format: choice("log.format") },
            limiter: limiter::Options {
                shadow_mode: flag("response.shadow_mode"),
                quota_mode: flag("response.quota_mode"),
                near_limit_ratio: ratio("metrics.near_limit_ratio"),
                max_descriptors: size("grpc.max_descriptors"),
            },
            warnings,
            all,
        })
    }

    /// How many threads serve.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => available_parallelism().map_or(1, Into::into),
            threads => threads,
        }
    }

    /// Whether nothing says what a setting is.
    pub fn is_default(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|resolved| resolved.origin == "default")
    }

    /// Each setting with its value and where that came from, in the table's order.
    pub fn list(&self) -> impl Iterator<Item = (&'static table::Setting, String, &str)> {
        table::SETTINGS.iter().map(|setting| {
            let resolved = &self.all[setting.name];
            let shown = match &resolved.value {
                Parsed::List(items) => {
                    let items = items.iter().map(|item| secret::shown(setting.name, item));
                    format!("{:?}", items.collect::<Vec<_>>())
                }
                _ => format!("{:?}", secret::shown(setting.name, &resolved.text)),
            };
            (setting, shown, resolved.origin.as_str())
        })
    }
}
