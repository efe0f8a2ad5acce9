//! The table of `docs/reference/metrics.md`. `UPDATE_DOCS=1 cargo test --lib docs` writes it.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use crate::app::stores;
use crate::health::Health;
use crate::http::clients::JsonStats;
use crate::net::ListenerMetrics;
use crate::net::tls::{Identities, TlsListeners};
use crate::resp::RespStats;
use crate::rls::grpc::GrpcStats;
use crate::rule_sources::loader::Loader;
use crate::rule_sources::watch::WatchMetrics;
use crate::rule_sources::xds::report::XdsMetrics;
use crate::settings::{Inputs, Settings};
use crate::{COMMIT, VERSION};
use weir_common::clock::SystemClock;
use weir_common::metrics::{MergedFamilies, MetricFamily, MetricSink, MetricType, SampleValue};
use weir_common::threads::Failures;
use weir_controls::{ActiveRules, Controls};
use weir_limiter::Limiter;
use weir_quotas::Quotas;
use weir_telemetry::log::Queue;
use weir_telemetry::metrics::{Metrics, ProcessMetrics};
use weir_telemetry::otlp::OtlpCounts;

/// Checks that samples are what their family declares.
struct Checked {
    family: Option<MetricFamily>,
    families: MergedFamilies,
}

impl MetricSink for Checked {
    fn family(&mut self, family: MetricFamily) {
        let known = self.families.families().any(|known| known.name == family.name);
        assert!(!known, "{} is started twice", family.name);
        let ends_well = !family.name.ends_with("_total") && !family.help.ends_with('.');
        assert!(ends_well, "{}: no _total, no final period", family.name);
        self.families.family(family);
        self.family = Some(family);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        let family = self.family.expect("a family is started first");
        let names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, family.labels, "{}", family.name);
        let metric_type = match value {
            SampleValue::Counter(_) | SampleValue::FloatCounter(_) => MetricType::Counter,
            SampleValue::Gauge(_) => MetricType::Gauge,
            SampleValue::Histogram(_) => MetricType::Histogram,
        };
        assert_eq!(metric_type, family.metric_type, "{}", family.name);
    }
}

/// Returns all families of a process with these settings.
fn families(env: &[(&str, &str)]) -> Vec<MetricFamily> {
    let mut inputs = Inputs::default();
    inputs.env.extend(env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    let settings = Settings::load(&inputs).expect("valid settings");
    let failures = Failures::default();
    let clock = Arc::new(SystemClock::new());
    let identities = &mut Identities::default();
    let store = stores::make(&settings, clock.clone(), &failures, identities).expect("a store");
    let metrics = Metrics::new(10);
    metrics.add(clock);
    metrics.add(Arc::new(failures));
    let limiter = Arc::new(Limiter::new(store, weir_limiter::LimiterOptions::default()));
    metrics.add(limiter.clone());
    let rules = Arc::new(ActiveRules::default());
    metrics.add(rules.clone());
    if let Some(options) = settings.quota_options() {
        metrics.add(Arc::new(Quotas::new(limiter, rules.clone(), SystemClock::new(), options)));
    }
    metrics.add(Arc::new(Controls::new(rules, weir_controls::ControlsOptions::default(), || {})));
    metrics.add(Arc::new(GrpcStats::default()));
    metrics.add(Arc::new(JsonStats::default()));
    metrics.add(Arc::new(RespStats::default()));
    metrics.add(Arc::new(ProcessMetrics::new(VERSION, COMMIT)));
    metrics.add(Arc::new(TlsListeners(vec![("grpc", Default::default())])));
    metrics.add(Arc::new(Identities::default()));
    metrics.add(Arc::new(OtlpCounts::default()));
    let listeners = ListenerMetrics::default();
    listeners.add("grpc");
    metrics.add(Arc::new(listeners));
    metrics.add(Arc::new(XdsMetrics::default()));
    let health = Arc::new(Health::new(Default::default()));
    metrics.add(health.clone());
    let mut loader = Loader::new(Arc::default(), weir_rules::RuleOptions::default(), health);
    loader.expect_overlay();
    metrics.add(Arc::new(loader));
    metrics.add(Arc::new(WatchMetrics::default()));
    let log = Queue::start(0, std::io::sink(), |_| {}, &Failures::default());
    metrics.add(Arc::new(log.expect("a thread")));
    let mut checked = Checked { family: None, families: MergedFamilies::default() };
    metrics.collect(&mut checked);
    checked.families.families().collect()
}

fn table() -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    let disk = [("WEIR__STORE__KIND", "disk"), ("WEIR__STORE__DISK__PATH", path)];
    let mut all = families(&[("WEIR__RLQS__ENABLED", "true")]);
    for family in families(&disk).into_iter().chain(families(&[("REDIS_URL", "localhost:6379")])) {
        if !all.iter().any(|known| known.name == family.name) {
            all.push(family);
        }
    }
    all.sort_by_key(|family| (family.is_standard, family.name));
    let mut table = "| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for family in all {
        let prefix = if family.is_standard { "" } else { "weir_" };
        let (suffix, metric_type) = match family.metric_type {
            MetricType::Counter => ("_total", "counter"),
            MetricType::Gauge => ("", "gauge"),
            MetricType::Histogram => ("", "histogram"),
        };
        let labels: Vec<String> = family.labels.iter().map(|name| format!("`{name}`")).collect();
        let (name, labels, help) = (family.name, labels.join(", "), family.help);
        let _ = writeln!(table, "| `{prefix}{name}{suffix}` | {metric_type} | {labels} | {help} |");
    }
    table
}

#[test]
fn the_document_has_the_metrics_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- metrics: from the code -->\n", "<!-- end of metrics -->");
    let (head, rest) = document.split_once(begin).expect("the beginning is marked");
    let (_, tail) = rest.split_once(end).expect("the end is marked");
    let wanted = format!("{head}{begin}\n{}\n{end}{tail}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert!(document == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
}

/// Returns the names in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// Returns the types that a text makes sources of metrics, in however many lines.
fn sources_in(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let impls = code.split("\nimpl").skip(1).filter_map(|rest| {
        let (head, _) = rest.split_once('{')?;
        let (traits, name) = head.split_once(" for ")?;
        let implemented = traits.rsplit([' ', '\n', ':']).find(|word| !word.is_empty())?;
        (implemented == "MetricSource").then_some(name)
    });
    // The last name of a path, without type arguments.
    impls.filter_map(|name| names(name.split(['<', '\n', ' ']).find(|it| !it.is_empty())?).last())
}

/// Returns the types in the Rust files of a directory that are sources of metrics.
fn sources(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.extend(sources_in(&text).map(str::to_owned));
        }
    }
    all
}

#[test]
fn sources_are_found_however_they_are_written() {
    // Written so that the next test does not find these types in this file.
    let text = "\nimpl MetricSource for Plain {}\
                \nimpl<S: Store> MetricSource for Generic<S> {\
                \n}\
                \nimpl<S> weir_common::metrics::MetricSource\
                \n    for super::Wrapped<S>\
                \nwhere\
                \n    S: Store,\
                \n{\
                \nimpl<M: MetricSource> Other for Another<M> {\
                \n    fn of(source: &dyn MetricSource) {}";
    assert_eq!(sources_in(text).collect::<Vec<_>>(), ["Plain", "Generic", "Wrapped"]);
}

#[test]
fn no_source_of_metrics_is_forgotten() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = sources(&root.join("src"));
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        all.extend(sources(&package.unwrap().path().join("src")));
    }
    assert!(all.len() > 10, "{all:?}");
    let (_, made) = include_str!("metrics_docs.rs").split_once("\nfn families(").unwrap();
    let (made, _) = made.split_once("\n}\n").unwrap();
    for source in all {
        let add = "add it to `families` in src/app/tests/metrics_docs.rs";
        assert!(names(made).any(|name| name == source), "{source}: {add}");
    }
}
