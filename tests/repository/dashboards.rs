//! The Grafana dashboard and the Prometheus alerts: their metrics exist, nothing is missing that an
//! operator needs, and promtool accepts them, if it is installed.

mod outages;
mod promql;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{files, tools, yaml};

use serde_json::{Value, json};

use files::{read, root};
use tools::promtool;

fn dashboard() -> Value {
    serde_json::from_str(&read("dashboards/weir.json")).unwrap()
}

/// Returns the panels that show something, rows left out.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row")
}

fn alerts() -> Vec<Value> {
    let groups = yaml::document(&read("alerts/weir.rules.yaml"));
    list(&groups["groups"]).iter().flat_map(|group| list(&group["rules"]).clone()).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("a list, not {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("text, not {value}"))
}

/// Returns all expressions, each with its place.
fn expressions() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let mut all = Vec::new();
    for panel in panels(&dashboard) {
        for target in list(&panel["targets"]) {
            all.push((format!("panel {}", panel["title"]), text(&target["expr"]).to_owned()));
        }
    }
    for annotation in list(&dashboard["annotations"]["list"]) {
        if let Some(expression) = annotation["expr"].as_str() {
            all.push((format!("annotation {}", annotation["name"]), expression.to_owned()));
        }
    }
    for alert in alerts() {
        all.push((format!("alert {}", alert["alert"]), text(&alert["expr"]).to_owned()));
    }
    all
}

/// Returns the metrics that docs/reference/metrics.md lists, with their labels. A test compares that page with
/// the code.
fn exported() -> HashMap<String, HashSet<String>> {
    let mut metrics = HashMap::new();
    for line in read("docs/reference/metrics.md").lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let Some(name) = cells.next().and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`'))
        else {
            continue;
        };
        if !["weir_", "process_"].iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let (kind, labels) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let mut labels: HashSet<String> =
            labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if kind == "histogram" {
            for suffix in ["_sum", "_count"] {
                metrics.insert(format!("{name}{suffix}"), labels.clone());
            }
            labels.insert("le".to_owned());
            metrics.insert(format!("{name}_bucket"), labels);
        } else {
            metrics.insert(name.to_owned(), labels);
        }
    }
    assert!(metrics.len() > 40, "docs/reference/metrics.md lists {metrics:?}");
    metrics
}

/// Labels that Prometheus adds to a target.
const TARGET_LABELS: [&str; 4] = ["job", "instance", "namespace", "pod"];

#[test]
fn every_metric_and_label_exists() {
    let exported = exported();
    let mut missing = String::new();
    for (place, expression) in expressions() {
        let used = promql::metrics(&expression);
        assert!(!used.is_empty(), "{place} uses no metric: {expression}");
        for (metric, labels) in used {
            if metric == "up" {
                continue;
            }
            let Some(known) = exported.get(&metric) else {
                let _ = writeln!(missing, "{place}: {metric}");
                continue;
            };
            for label in labels {
                if !known.contains(&label) && !TARGET_LABELS.contains(&label.as_str()) {
                    let _ = writeln!(missing, "{place}: {metric} has no label {label}");
                }
            }
        }
    }
    assert_eq!(missing, "", "not in docs/reference/metrics.md");
}

#[test]
fn the_dashboard_is_complete() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    assert_eq!(dashboard["uid"], "weir");
    assert_eq!(dashboard["id"], Value::Null, "Grafana assigns ids");
    let variables: Vec<_> =
        list(&dashboard["templating"]["list"]).iter().map(|it| text(&it["name"])).collect();
    assert_eq!(variables, ["datasource", "namespace", "pod"]);

    let mut ids = HashSet::new();
    let mut cells = HashSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = text(&panel["title"]);
        assert!(!title.is_empty());
        assert!(
            ids.insert(panel["id"].as_u64().expect("an id")),
            "the id of {title} is not unique"
        );
        let position = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        let (x, y, w, h) = (position("x"), position("y"), position("w"), position("h"));
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} is outside the grid");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} overlaps another panel");
        }
    }
    for panel in panels(&dashboard) {
        let title = text(&panel["title"]);
        let description = text(&panel["description"]);
        assert!(description.ends_with('.'), "{title}: {description:?}");
        assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title} has no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let mut references = HashSet::new();
        for target in list(&panel["targets"]) {
            assert!(references.insert(text(&target["refId"])), "{title}: refId is not unique");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let expression = text(&target["expr"]);
            for variable in ["$namespace", "$pod"] {
                assert!(expression.contains(variable), "{title} ignores {variable}: {expression}");
            }
        }
        assert!(!references.is_empty(), "{title} has no targets");
    }
}

#[test]
fn the_dashboard_names_existing_alerts() {
    let alerts: HashSet<_> =
        alerts().iter().map(|alert| text(&alert["alert"]).to_owned()).collect();
    let dashboard = dashboard();
    let mut named = 0;
    for panel in panels(&dashboard) {
        let Some((_, names)) = text(&panel["description"]).split_once(" Alert") else { continue };
        let names = names.trim_start_matches(['s', ':', ' ']).trim_end_matches('.');
        for name in names.split(", ") {
            assert!(alerts.contains(name), "{}: {name}", panel["title"]);
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
}

#[test]
fn every_alert_is_explained_and_tested() {
    let operations = read("docs/operations.md");
    let tests = yaml::document(&read("alerts/tests.yaml"));
    let mut fired = HashSet::new();
    for test in list(&tests["tests"]) {
        for expected in list(&test["promql_expr_test"]) {
            for sample in list(&expected["exp_samples"]) {
                fired.insert(text(&sample["labels"]).split('"').nth(1).unwrap().to_owned());
            }
        }
    }
    let mut names = HashSet::new();
    for alert in alerts() {
        let name = text(&alert["alert"]);
        assert!(names.insert(name.to_owned()), "two alerts are named {name}");
        assert!(operations.contains(&format!("\n### {name}\n")), "{name} is not in the runbook");
        assert!(fired.contains(name), "no scenario of alerts/tests.yaml makes {name} fire");
        let severity = text(&alert["labels"]["severity"]);
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        let annotations = &alert["annotations"];
        assert!(!text(&annotations["summary"]).ends_with('.'), "{name}");
        assert!(text(&annotations["description"]).ends_with('.'), "{name}");
        let runbook = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(annotations["runbook_url"], runbook.as_str(), "{name}");
    }
    for name in operations.lines().filter_map(|line| line.strip_prefix("### Weir")) {
        assert!(names.contains(&format!("Weir{name}")), "there is no alert Weir{name}");
    }
}

#[test]
fn promtool_accepts_all_expressions_and_the_alerts_fire() {
    let Some(promtool) = promtool() else { return };
    let run = |arguments: &[&Path]| {
        let output = Command::new(&promtool).args(arguments).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    // As rules, which promtool can check. Grafana replaces its variables before.
    let rules: Vec<_> = expressions()
        .into_iter()
        .enumerate()
        .map(|(number, (_, expression))| {
            let expression = expression.replace("$__rate_interval", "5m");
            json!({ "record": format!("test:{number}"), "expr": expression })
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yaml");
    fs::write(&file, json!({ "groups": [{ "name": "test", "rules": rules }] }).to_string())
        .unwrap();
    let path = Path::new;
    run(&[path("check"), path("rules"), &file]);
    run(&[path("check"), path("rules"), path("alerts/weir.rules.yaml")]);
    run(&[path("test"), path("rules"), path("alerts/tests.yaml")]);
}
