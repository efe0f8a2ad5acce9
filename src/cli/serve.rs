//! `weir serve`: runs the service.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use config::ValueKind;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::app::{Addresses, App, Stop};
use crate::escape::escape;
use crate::rules::RuleSet;
use crate::rules::source::Selection;
use crate::settings::format::Choice;
use crate::settings::table::SETTINGS;
use crate::settings::{Inputs, Settings};
use crate::telemetry::log::{self, Log, Queue};
use crate::threads::lower_priority;
use crate::watch::RuleFiles;
use crate::xds;

/// A wrong setting: the same as other programs' for wrong usage.
const USAGE: u8 = 64;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Rule files, or directories of them.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    rules: Vec<String>,
    /// A settings file, TOML or YAML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Where to serve gRPC.
    #[arg(long, value_name = "HOST:PORT")]
    grpc_address: Option<String>,
    /// Where to serve /json, /healthcheck and /metrics.
    #[arg(long, value_name = "HOST:PORT")]
    http_address: Option<String>,
    /// Where to serve /rlconfig and /metrics.
    #[arg(long, value_name = "HOST:PORT")]
    debug_address: Option<String>,
    /// How much to log: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting, as `a.b=value`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print every setting's value and where it comes from, and exit.
    #[arg(long)]
    print_settings: bool,
}

impl ServeArgs {
    fn inputs(&self) -> Result<Inputs, String> {
        let mut flags = Vec::new();
        let mut flag = |flag: &str, name: &str, value: ValueKind| {
            flags.push((flag.to_owned(), name.to_owned(), value));
        };
        for set in &self.set {
            let (name, text) = set.split_once('=').ok_or_else(|| without_value(set))?;
            flag(&format!("--set {name}"), name, text.into());
        }
        if !self.rules.is_empty() {
            // A list, not text: a path may have a comma.
            flag("--rules", "rules.paths", self.rules.clone().into());
        }
        for (name, setting, value) in [
            ("--grpc-address", "grpc.address", &self.grpc_address),
            ("--http-address", "http.address", &self.http_address),
            ("--debug-address", "debug.address", &self.debug_address),
            ("--log-level", "log.level", &self.log_level),
        ] {
            if let Some(text) = value {
                flag(name, setting, text.as_str().into());
            }
        }
        // Variables that are not text can be none of ours.
        let env = std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
        Ok(Inputs { file: self.settings.clone(), env: env.collect(), flags })
    }
}

/// The error of a `--set` without `=`. The setting's name is all that is shown: the rest may be a
/// password.
fn without_value(set: &str) -> String {
    let names = SETTINGS.iter().map(|setting| setting.name);
    match names.filter(|name| set.starts_with(name)).max_by_key(|name| name.len()) {
        Some(name) => format!("--set {name}: there is no `=`; write --set {name}=VALUE"),
        None => "--set: there is no `=`; write --set NAME=VALUE".to_owned(),
    }
}

/// Serves until told to stop. Exits 64 where settings are wrong, 1 where the service fails.
pub fn run(args: ServeArgs) -> ExitCode {
    let settings = args.inputs().and_then(|inputs| {
        Settings::load(&inputs).map_err(|errors| {
            let lines = errors.iter().map(|error| escape(&error.to_string()).into_owned());
            lines.collect::<Vec<_>>().join("\n")
        })
    });
    let settings = match settings {
        Ok(settings) => settings,
        Err(errors) => {
            eprintln!("weir cannot start:\n{errors}");
            return ExitCode::from(USAGE);
        }
    };
    if args.print_settings {
        print_settings(&settings);
        return ExitCode::SUCCESS;
    }
    // Its last lines are written when it is dropped.
    let log = match log::start(settings.log.level.word(), settings.log.format.word()) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("weir cannot start: logging failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    for detail in &settings.warnings {
        tracing::warn!(%detail, "settings without effect");
    }
    let source = match Source::of(&settings) {
        Ok(source) => source,
        Err(error) => {
            log.report_end("weir cannot start", &error);
            return ExitCode::from(USAGE);
        }
    };
    match serve(&settings, source, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.report_end("weir stops", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn print_settings(settings: &Settings) {
    let mut out = std::io::stdout().lock();
    for entry in settings.list() {
        // The reader may have closed the pipe, as `head` does.
        if writeln!(out, "{} = {}  # {}", entry.setting.name, entry.shown, entry.origin).is_err() {
            break;
        }
    }
}

/// Where rules come from.
enum Source {
    Files(Selection),
    Xds(xds::Options),
}

impl Source {
    /// Returns the source that the settings name.
    ///
    /// # Errors
    ///
    /// If no setting names rules, or the options of xDS are wrong.
    fn of(settings: &Settings) -> Result<Source, String> {
        if let Some(options) = settings.xds_options() {
            xds::check(&options)?;
            if !settings.rules.paths.is_empty() {
                let detail = "rules.paths is ignored: rules.source is xds";
                tracing::warn!(%detail, "settings without effect");
            }
            return Ok(Source::Xds(options));
        }
        let nothing = "no setting names rules: use --rules PATH, WEIR__RULES__PATHS or \
                       RUNTIME_ROOT, or WEIR__RULES__SOURCE=xds for a management server";
        settings.rule_files().map(Source::Files).ok_or_else(|| nothing.to_owned())
    }
}

/// Asks for as many file descriptors as there may be: a connection is one, and many systems allow
/// few until they are asked for more. Returns how many are allowed, where they are limited.
fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    }
}

fn serve(settings: &Settings, source: Source, log: &Log) -> anyhow::Result<()> {
    let descriptors = raise_descriptor_limit();
    // For all but requests over gRPC, which have threads of their own. It begins others only for
    // what takes long, like taking in rules: whoever serves goes first.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(lower_priority)
        .build()?;
    let served = runtime.block_on(async {
        // Before anything says that the service listens: from then on a signal is to drain it.
        let stop = stop_signal(log.queue().clone())?;
        let app = App::build(settings, descriptors).await?;
        app.metrics().log(log.queue().dropped());
        let addresses = app.addresses()?;
        announce(&addresses, settings.debug.address.is_default());
        // Clients need not wait for the rules to find the service.
        match source {
            Source::Files(selection) => {
                follow_files(settings, selection, &app, addresses.http.port())
            }
            Source::Xds(options) => {
                let client = xds::Client::new(options, app.loader(), &app.metrics());
                let client = client.map_err(anyhow::Error::msg)?;
                tokio::spawn(async move { client.follow().await });
            }
        }
        app.run(stop).await
    });
    // Rules may be read from a file system that does not answer.
    runtime.shutdown_background();
    served
}

/// Takes in rule files from now on. `http` is the port for a first request.
fn follow_files(settings: &Settings, selection: Selection, app: &App, http: u16) {
    let files = RuleFiles::new(selection, settings.watch_options(), app.loader(), app.metrics());
    let rules = app.rules().clone();
    tokio::spawn(async move {
        files.take_in().await;
        if let Some(body) = rules.load_full().as_deref().and_then(example) {
            let body = body.replace('\'', r"'\''");
            tracing::info!("Try: curl -i localhost:{http}/json -d '{body}'");
        }
        files.follow().await;
    });
}

/// Logs where the service listens.
fn announce(addresses: &Addresses, debug_is_default: bool) {
    // At this level, since whoever starts the reference may look for these lines.
    tracing::warn!("Listening for gRPC on '{}'", addresses.grpc);
    tracing::warn!("Listening for HTTP on '{}'", addresses.http);
    tracing::warn!("Listening for debug on '{}'", addresses.debug);
    if debug_is_default {
        tracing::info!(
            setting = "debug.address",
            "debug listens on loopback only: the setting, DEBUG_HOST or DEBUG_PORT opens it"
        );
    }
}

/// A request to `/json` that the first limited rule matches.
fn example(rules: &RuleSet) -> Option<String> {
    let rule = rules.rules().find(|rule| rule.plan.is_some())?;
    let entries: Vec<_> = rule
        .entries()
        .map(|(key, value)| {
            let value = if value.is_empty() { "hello" } else { value };
            serde_json::json!({ "key": key, "value": value })
        })
        .collect();
    let descriptors = serde_json::json!([{ "entries": entries }]);
    Some(serde_json::json!({ "domain": rule.domain(), "descriptors": descriptors }).to_string())
}

/// Resolves when a signal asks the process to stop: SIGTERM or SIGHUP gently, Ctrl-C now. A second
/// signal ends the process as soon as `log` is written, or its reader has stalled.
fn stop_signal(log: Queue) -> std::io::Result<impl Future<Output = Stop>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let stop = tokio::select! {
            _ = terminate.recv() => Stop::Gently,
            _ = hang_up.recv() => Stop::Gently,
            _ = interrupt.recv() => Stop::Now,
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("second stop signal: exiting without draining");
            log::flush(&log);
            #[expect(clippy::disallowed_methods, reason = "a second signal asks for this")]
            std::process::exit(1);
        });
        stop
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_without_an_equals_sign_shows_no_value() {
        let shown = without_value("store.redis.password:hunter2");
        let wanted = "--set store.redis.password: there is no `=`; \
                      write --set store.redis.password=VALUE";
        assert_eq!(shown, wanted);
        assert!(without_value("store.redis.password_file").contains("password_file=VALUE"));
        assert!(!without_value("hunter2").contains("hunter2"));
    }
}
