//! Alerts about what happens now, replayed with promtool: a short outage is forgotten once it is over, a lasting one is
//! reported soon.

use std::fs;
use std::process::Command;

use regex::Regex;
use serde_json::{Value, json};

use super::{alerts, promtool, root, text};

/// What a series is during an outage, in which all else stays as it was.
#[derive(Clone, Copy)]
enum Outage {
    /// It rises by this much a second, and else not at all.
    Counts(u32),
    /// It is this, and before and after that.
    Is(u32, u32),
    /// It is the age of what happened last, and else 0.
    Ages,
    /// It has no sample, and else 1.
    Absent,
}

/// The alerts that say what happens now, with their series.
const NOW: [(&str, &[(&str, Outage)]); 12] = [
    ("WeirAbsent", &[("weir_build_info", Outage::Absent)]),
    ("WeirReplicaDown", &[("up", Outage::Is(0, 1))]),
    ("WeirStoreErrors", &[(r#"weir_requests_total{outcome="store_error"}"#, Outage::Counts(100))]),
    (
        "WeirStoreDegraded",
        &[(r#"weir_store_degraded_charges_total{policy="local"}"#, Outage::Counts(100))],
    ),
    ("WeirRedisConnectionDown", &[("weir_redis_connections_down", Outage::Is(2, 0))]),
    ("WeirRedisConnectionSlow", &[("weir_redis_connections_slow", Outage::Is(2, 0))]),
    (
        "WeirRedisOutOfMemory",
        &[(r#"weir_store_failed_charges_total{reason="out_of_memory"}"#, Outage::Counts(100))],
    ),
    ("WeirKeysEvictedAtLimit", &[("weir_store_evictions_at_limit_total", Outage::Counts(9))]),
    (
        "WeirReservationsEvicted",
        &[
            ("weir_reservations_evicted_total", Outage::Counts(9)),
            ("weir_reservations_unrecorded_total", Outage::Counts(0)),
        ],
    ),
    (
        "WeirDiskNotSaved",
        &[
            ("weir_disk_sync_age_seconds", Outage::Ages),
            ("weir_disk_sync_interval_seconds", Outage::Is(1, 1)),
        ],
    ),
    (
        "WeirConnectionsRefused",
        &[(r#"weir_connections_refused_total{listener="grpc"}"#, Outage::Counts(9))],
    ),
    ("WeirLogLinesDropped", &[("weir_log_lines_dropped_total", Outage::Counts(9))]),
];

/// When the outage of a test starts, and how long it lasts, in seconds.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    length: u32,
}

const MINUTE: u32 = 60;

/// How long alerts are watched after an outage: the longest window of any that may be wrong.
const WATCHED: u32 = 6 * MINUTE;

impl Span {
    fn end(self) -> u32 {
        self.start + self.length
    }

    /// The values of a series at each scrape, until a test ends.
    fn values(self, outage: Outage, scrape: u32) -> String {
        let scrapes = (0..=self.end() + MINUTE + WATCHED).step_by(scrape as usize);
        let value = |now: u32| {
            let is_now = (self.start..self.end()).contains(&now);
            let elapsed = now.clamp(self.start, self.end()) - self.start;
            match outage {
                Outage::Counts(per_second) => (elapsed * per_second).to_string(),
                Outage::Is(during, _) if is_now => during.to_string(),
                Outage::Is(_, otherwise) => otherwise.to_string(),
                Outage::Ages => if is_now { elapsed } else { 0 }.to_string(),
                Outage::Absent => if is_now { "stale" } else { "1" }.to_owned(),
            }
        };
        scrapes.map(value).collect::<Vec<_>>().join(" ")
    }

    /// A test of all alerts with this outage.
    fn test(self, scrape: u32) -> Value {
        let series = |name: &str, values: String| {
            let labels = r#"job="weir",instance="a",namespace="edge""#;
            let name = match name.split_once('}') {
                Some((name, _)) => format!("{name},{labels}}}"),
                None => format!("{name}{{{labels}}}"),
            };
            json!({ "series": name, "values": values })
        };
        let mut all: Vec<Value> = NOW
            .iter()
            .flat_map(|(_, all)| *all)
            .map(|(name, outage)| series(name, self.values(*outage, scrape)))
            .collect();
        let end = self.end() + MINUTE + WATCHED;
        let requests = format!("0+{}x{}", 100 * scrape, end / scrape);
        all.push(series(r#"weir_requests_total{outcome="ok"}"#, requests));
        let firing = |since: u32, now: u32, names: &[&str]| {
            let samples = names
                .iter()
                .map(|name| json!({ "labels": format!("{{alertname={name:?}}}"), "value": 1 }));
            let firing = r#"ALERTS{alertstate="firing"}"#;
            json!({
                "expr": format!("group by (alertname) (count_over_time({firing}[{}s]))", now - since),
                "eval_time": format!("{now}s"),
                "exp_samples": samples.collect::<Vec<_>>(),
            })
        };
        let checks = if self.length <= 30 {
            vec![firing(self.end() + MINUTE, end, &[])]
        } else {
            let names = NOW.map(|(name, _)| name);
            let soon = self.start + 5 * MINUTE;
            vec![firing(self.start, soon, &names), firing(self.end() + 4 * MINUTE, end, &[])]
        };
        let name = format!("{} s from {} on, scraped each {scrape} s", self.length, self.start);
        json!({
            "name": name,
            "interval": format!("{scrape}s"),
            "input_series": all,
            "promql_expr_test": checks,
        })
    }
}

#[test]
fn alerts_of_what_happens_now_end_with_it() {
    let Some(promtool) = promtool() else { return };
    let mut tests = Vec::new();
    for scrape in [15, 30, 60] {
        for length in [3, 6, 30, 300] {
            // Just before a scrape, at one, right after it, and between two.
            let scraped = 5 * MINUTE;
            for start in [scraped - 1, scraped, scraped + 1, scraped + scrape / 2] {
                tests.push(Span { start, length }.test(scrape));
            }
        }
    }
    let directory = tempfile::tempdir().unwrap();
    for evaluated in ["15s", "1m"] {
        let tests = json!({
            "rule_files": [root().join("alerts/weir.rules.yaml")],
            "evaluation_interval": evaluated,
            "tests": tests,
        });
        let file = directory.path().join("tests.yaml");
        fs::write(&file, tests.to_string()).unwrap();
        let output = Command::new(&promtool).args(["test", "rules"]).arg(&file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "evaluated each {evaluated}:\n{errors}");
    }
}

/// All others look at one moment, or have a window that is shorter than what they wait, or name their window.
#[test]
fn other_alerts_say_how_far_back_they_look() {
    let selected = Regex::new(r"\[(\d+)([smhd])\]").unwrap();
    let seconds = |duration: &str| -> u32 {
        let (number, unit) = duration.split_at(duration.len() - 1);
        let unit = match unit {
            "s" => 1,
            "m" => MINUTE,
            "h" => 60 * MINUTE,
            _ => 24 * 60 * MINUTE,
        };
        number.parse::<u32>().unwrap() * unit
    };
    for alert in alerts() {
        let name = text(&alert["alert"]);
        if NOW.iter().any(|(now, _)| *now == name) {
            continue;
        }
        let expression = text(&alert["expr"]);
        let windows = selected.find_iter(expression);
        let longest = windows.map(|found| seconds(found.as_str().trim_matches(['[', ']']))).max();
        let waits = alert["for"].as_str().map_or(0, seconds);
        let description = text(&alert["annotations"]["description"]);
        let is_named = description.contains("within") || description.contains("the last hour");
        assert!(longest < Some(waits) || is_named, "{name}: {expression}");
    }
}
