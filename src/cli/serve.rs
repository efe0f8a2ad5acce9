//! `weir serve`: loads the settings, starts the log and traces, and runs the service until a signal stops it.

mod args;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;

use crate::app::listeners::{HTTP, Listener};
use crate::app::{App, Stop};
use crate::net::Address;
use crate::rls::service::Rules;
use crate::rule_sources::watch::{RuleFiles, WatchContext, WatchKind, WatchMetrics};
use crate::rule_sources::xds;
use crate::settings::{Inputs, Settings};
pub use args::ServeArgs;
use weir_common::error::SetupError;
use weir_common::escape::escape;
use weir_common::random;
use weir_common::threads::{Failures, lower_priority, run_blocking};
use weir_rules::RuleSet;
use weir_rules::source::Selection;
use weir_telemetry::log::{self, Log, Queue};
use weir_telemetry::otlp::Otlp;
use weir_telemetry::statsd;

/// Below this size of the address space, the allocator aborts the process when threads have taken the rest.
const MIN_ADDRESS_SPACE_BYTES: u64 = 512 << 20;

const STACK_BYTES: u64 = 2 << 20;

/// How long the process waits at its end until the last spans are sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The exit code for invalid settings: EX_USAGE of sysexits.
const EXIT_USAGE: u8 = 64;

/// Serves until a signal stops it. Exits 64 if a setting or the content of a file that it names is invalid, 1 after
/// other failures. `is_reference`: it was started by the name of the reference's program.
pub fn run(args: ServeArgs, is_reference: bool) -> Result<(), ExitCode> {
    // Before anything needs much, and again when the number of threads is known.
    check_address_space(0).map_err(cannot_start)?;
    random::check().map_err(|error| {
        cannot_start(format!("the operating system gives no random numbers: {error}"))
    })?;
    let settings = args.inputs().and_then(|inputs| load_settings(&inputs)).map_err(|errors| {
        eprintln!("weir cannot start:\n{errors}");
        ExitCode::from(EXIT_USAGE)
    })?;
    if args.print_settings {
        print_settings(&settings);
        return Ok(());
    }
    check_address_space(settings.threads()).map_err(cannot_start)?;
    let failures = Failures::default();
    // Before the log, which shares its subscriber with spans.
    let otlp = settings.otlp_options().map(|options| Otlp::start(options, &failures)).transpose();
    let otlp = otlp.map_err(|error| {
        eprintln!("weir cannot start: {}", escape(&error.to_string()));
        exit_code(&error)
    })?;
    // Dropping it writes its last lines.
    let (levels, format) = (settings.log.level.clone(), *settings.log.format);
    let spans = otlp.as_ref().map(Otlp::span_layer);
    let log = log::start(levels, format, spans, &failures)
        .map_err(|error| cannot_start(format!("logging failed: {error}")))?;
    for detail in &settings.warnings {
        tracing::warn!(%detail, "settings without effect");
    }
    let served = match RuleSource::of(&settings) {
        Ok(source) => {
            let announced = announced_level(is_reference);
            let settings = Arc::new(settings);
            AppParts { settings: &settings, source, log: &log, failures, otlp, announced }.serve()
        }
        Err(error) => Err(error.into()),
    };
    served.map_err(|error| match error.downcast_ref::<SetupError>() {
        Some(setup) => {
            log.report_end("weir cannot start", &setup.to_string());
            exit_code(setup)
        }
        None => {
            log.report_end("weir stops", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    })
}

fn cannot_start(reason: impl Display) -> ExitCode {
    eprintln!("weir cannot start: {reason}");
    ExitCode::FAILURE
}

/// Reads all settings, or returns their errors, a line each.
pub(super) fn load_settings(inputs: &Inputs) -> Result<Settings, String> {
    Settings::load(inputs).map_err(|errors| {
        let lines = errors.iter().map(|error| escape(&error.to_string()).into_owned());
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn exit_code(error: &SetupError) -> ExitCode {
    match error {
        SetupError::Invalid(_) => ExitCode::from(EXIT_USAGE),
        SetupError::Unavailable(_) => ExitCode::FAILURE,
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

enum RuleSource {
    Files(Selection),
    Xds(Box<xds::XdsOptions>),
}

impl RuleSource {
    fn of(settings: &Settings) -> Result<RuleSource, SetupError> {
        if let Some(options) = settings.xds_options() {
            xds::check(&options)?;
            if !settings.rules.paths.is_empty() {
                let detail = "rules.paths is ignored: rules.source is xds";
                tracing::warn!(%detail, "settings without effect");
            }
            return Ok(RuleSource::Xds(Box::new(options)));
        }
        let nothing = "no setting names rules: use --rules PATH, WEIR__RULES__PATHS or \
                       RUNTIME_ROOT, or WEIR__RULES__SOURCE=xds for a management server";
        settings
            .rule_files()
            .map(RuleSource::Files)
            .ok_or_else(|| SetupError::Invalid(nothing.to_owned()))
    }
}

/// Checks that the address space is not limited to less than weir needs with this number of serving threads.
fn check_address_space(threads: usize) -> Result<(), String> {
    let needed = MIN_ADDRESS_SPACE_BYTES + threads as u64 * STACK_BYTES;
    let mib = |bytes: u64| bytes >> 20;
    match getrlimit(Resource::As).current {
        Some(bytes) if bytes < needed => {
            let threads = match threads {
                0 => String::new(),
                threads => format!(" for {threads} serving threads"),
            };
            let (limit, needed) = (mib(bytes), mib(needed));
            Err(format!(
                "its address space is limited to {limit} MiB, and it needs at least {needed} \
                 MiB{threads}: raise ulimit -v"
            ))
        }
        _ => Ok(()),
    }
}

/// Raises the soft limit of file descriptors to the hard limit: a connection needs one, and the
/// default of many systems is low. Returns the limit, if there is one.
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

struct AppParts<'a> {
    settings: &'a Arc<Settings>,
    source: RuleSource,
    log: &'a Log,
    failures: Failures,
    otlp: Option<Otlp>,
    announced: Level,
}

impl AppParts<'_> {
    fn serve(self) -> anyhow::Result<()> {
        // For everything but gRPC requests, which have their own threads. Its blocking threads do slow work,
        // such as loading rules, at a lower priority than requests.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_start(lower_priority)
            .build()
            .context("cannot start a runtime")
            .map_err(SetupError::unavailable)?;
        let served = runtime.block_on(async {
            // Before the service listens: from then on a signal must drain it.
            let stop = stop_signal(self.log.queue.clone()).context("cannot wait for signals");
            let stop = stop.map_err(SetupError::unavailable)?;
            let announced = self.announced;
            let app = self.start().await?;
            app.run(stop, announced).await
        });
        // A thread that reads rules may hang in a file system that does not respond.
        runtime.shutdown_background();
        served
    }

    /// Builds the service and starts what follows rules and sends telemetry.
    async fn start(self) -> Result<App, SetupError> {
        let AppParts { settings, source, log, failures, otlp, .. } = self;
        let descriptors = raise_descriptor_limit();
        // The thread stays for the first work, such as loading rules.
        let thread = run_blocking(|| ()).await.context("cannot start a thread for slow work");
        thread.map_err(SetupError::unavailable)?;
        let mut app = App::build(settings, descriptors, failures.clone()).await?;
        app.log_levels = Some(log.levels.clone());
        app.metrics.add(Arc::new(log.queue.clone()));
        let watch_metrics = Arc::new(WatchMetrics::default());
        app.metrics.add(watch_metrics.clone());
        for options in settings.statsd_options() {
            let metrics = app.metrics.clone();
            let exporter = statsd::start(options, move |sink| metrics.collect(sink), &failures);
            let exporter = exporter.map_err(|error| SetupError::unavailable(error.into()))?;
            app.flush_at_end("statsd", exporter.finish());
        }
        let addresses = app.addresses().map_err(SetupError::unavailable)?;
        let poll = *settings.rules.poll;
        let loader = app.sources.loader.clone();
        let context = WatchContext { poll, loader: loader.clone(), metrics: watch_metrics };
        let files = |kind, selection| RuleFiles::new(kind, selection, &context);
        let overlay = settings.overlay_files().map(|paths| files(WatchKind::Overlay, paths));
        match source {
            RuleSource::Files(selection) => {
                let http = http_address(settings, &addresses);
                let rules = files(WatchKind::Rules, selection);
                // The overlay first, so that it patches the first rules.
                let files = overlay.into_iter().chain([rules]).collect();
                follow_files(files, app.sources.rules.clone(), http);
            }
            RuleSource::Xds(options) => {
                if options.tls.enabled {
                    app.add_presented("xds", options.tls.certificates.clone());
                }
                let client = xds::Client::new(*options, loader, &app.metrics);
                let client = client.map_err(SetupError::Invalid)?;
                let lists = settings.rules.values_dir.clone().map(Selection::of);
                let lists = lists.map(|paths| files(WatchKind::Lists, paths));
                let files: Vec<RuleFiles> = overlay.into_iter().chain(lists).collect();
                tokio::spawn(async move {
                    load(&files).await;
                    tokio::join!(client.follow(), join_all(files.iter().map(RuleFiles::follow)))
                });
            }
        }
        if let Some(otlp) = otlp {
            app.add_presented("otlp", otlp.certificates.clone());
            app.metrics.add(Arc::new(otlp.counts.clone()));
            app.flush_at_end("otlp", otlp.flush(FLUSH_TIMEOUT));
        }
        Ok(app)
    }
}

async fn load(all: &[RuleFiles]) {
    for files in all {
        files.load().await;
    }
}

/// Returns the address of the HTTP listener on this machine, as `curl` takes it.
fn http_address(settings: &Settings, addresses: &[(&Listener, Address)]) -> String {
    let port = addresses.iter().find_map(|(listener, address)| match address {
        Address::Tcp { port, .. } if **listener == HTTP => Some(*port),
        _ => None,
    });
    let port = port.unwrap_or_default();
    match *settings.http.tls.enabled {
        true => format!("-k https://localhost:{port}"),
        false => format!("localhost:{port}"),
    }
}

/// Loads rule files and the overlay now and when they change. The example request is for the address `http`.
fn follow_files(files: Vec<RuleFiles>, rules: Rules, http: String) {
    tokio::spawn(async move {
        load(&files).await;
        if let Some(body) = rules.load_full().as_deref().and_then(example) {
            let body = body.replace('\'', r"'\''");
            let command = format!("curl -i {http}/json -d '{body}'");
            tracing::info!(%command, "example request");
        }
        join_all(files.iter().map(RuleFiles::follow)).await
    });
}

/// Returns the level of the lines about listeners: WARN where weir replaces the reference, whose users look
/// for these lines, also at its default level.
fn announced_level(is_reference: bool) -> Level {
    let has_level = std::env::var_os("LOG_LEVEL").is_some_and(|level| !level.is_empty());
    if is_reference || has_level { Level::WARN } else { Level::INFO }
}

/// Returns the body of a request to `/json` that the first rule with a limit matches.
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

/// Returns a future that resolves when a signal stops the process: graceful on SIGTERM or SIGHUP,
/// immediate on SIGINT. A second signal ends the process once `log` is written, or its reader has stalled.
fn stop_signal(log: Queue) -> std::io::Result<impl Future<Output = Stop>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut next = async move || {
        tokio::select! {
            _ = terminate.recv() => ("SIGTERM", Stop::Drain),
            _ = hang_up.recv() => ("SIGHUP", Stop::Drain),
            _ = interrupt.recv() => ("SIGINT", Stop::Now),
        }
    };
    Ok(async move {
        let (signal, stop) = next().await;
        tracing::info!(signal, "stop signal received; rule files are reloaded without one");
        tokio::spawn(async move {
            next().await;
            tracing::warn!("second stop signal: exiting without draining");
            log::flush(&log);
            #[expect(clippy::disallowed_methods, reason = "a second signal asks for this")]
            std::process::exit(1);
        });
        stop
    })
}
