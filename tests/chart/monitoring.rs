//! Monitoring: the dashboard and the alerts are those of the top level, and Prometheus finds weir.

use std::fs;
use std::process::Command;

use regex::Regex;
use serde_json::{Value, json};

use crate::helm::Helm;
use crate::manifests::Read;
use crate::support::tools::promtool;
use crate::support::{read, yaml};

const ALL: &str = "metrics: { monitor: { kind: ServiceMonitor }, prometheusRule: { enabled: true }, \
                   dashboard: { enabled: true } }";

#[test]
fn monitoring_is_off_by_default() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    for kind in
        ["ServiceMonitor", "PodMonitor", "PrometheusRule", "HorizontalPodAutoscaler", "Certificate"]
    {
        assert_eq!(release.of_kind(kind).count(), 0, "{kind}");
    }
    assert!(!release.kinds().contains(&"PrometheusRule"));
    assert!(!release.text.contains("grafana"));
}

#[test]
fn the_dashboard_and_the_alerts_are_those_of_the_repository() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render(ALL);
    let dashboards: Vec<&str> = release
        .of_kind("ConfigMap")
        .filter(|map| map["metadata"]["labels"].get("grafana_dashboard").is_some())
        .flat_map(|map| map["data"].map().values().map(Read::text))
        .collect();
    assert_eq!(dashboards.len(), 1);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(dashboards[0]), json(&read("dashboards/weir.json")));
}

/// Returns the alerts of a list of groups.
fn alerts(groups: &Value) -> Vec<Value> {
    groups.list().iter().flat_map(|group| group["rules"].list().clone()).collect()
}

#[test]
fn every_expression_selects_the_release_and_is_else_that_of_the_repository() {
    let Some(helm) = Helm::newest() else { return };
    let names = Regex::new(r"\b(?:up|(?:weir|process)_[a-z0-9_]+)\b").unwrap();
    let own = yaml::document(&read("alerts/weir.rules.yaml"));
    for (values, job) in [
        (ALL.to_owned(), "weir-metrics"),
        (
            "metrics: { prometheusRule: { enabled: true, job: edge/limits } }".to_owned(),
            "edge/limits",
        ),
        (format!("{ALL}\nfullnameOverride: limits"), "limits-metrics"),
    ] {
        let release = helm.render(&values);
        let rule = release.of_kind("PrometheusRule").next().unwrap();
        let selector = format!(r#"namespace="limits", job="{job}""#);
        let mut all = alerts(&rule["spec"]["groups"]);
        for alert in &mut all {
            let expression = alert["expr"].text().to_owned();
            let used = names.find_iter(&expression.replace(&selector, "")).count();
            assert_eq!(expression.matches(&selector).count(), used, "{expression}");
            let plain = expression.replace(&format!("{{{selector}}}"), "");
            let plain = plain.replace(&format!("{selector}, "), "");
            alert["expr"] = plain.into();
            // Without an address it is no link.
            let annotations = alert["annotations"].as_object_mut().unwrap();
            let runbook = annotations.remove("runbook").unwrap();
            annotations.insert("runbook_url".to_owned(), runbook);
        }
        assert_eq!(all, alerts(&own["groups"]), "{values}");
    }
}

#[test]
fn alerts_can_be_disabled() {
    let Some(helm) = Helm::newest() else { return };
    let names = |disabled: &str| {
        let values =
            format!("metrics: {{ prometheusRule: {{ enabled: true, disabled: {disabled} }} }}");
        let groups = &helm.render(&values).get("PrometheusRule")["spec"]["groups"].clone();
        alerts(groups).iter().map(|alert| alert["alert"].text().to_owned()).collect::<Vec<_>>()
    };
    let mut all = names("[]");
    // The second is a group of its own.
    let rest = names("[WeirSlow, WeirControlsMissing]");
    all.retain(|name| !["WeirSlow", "WeirControlsMissing"].contains(&name.as_str()));
    assert_eq!(rest, all);
    assert!(rest.len() > 20, "{rest:?}");
}

#[test]
fn the_schema_names_all_alerts() {
    let schema: Value = serde_json::from_str(&read("helm/weir/values.schema.json")).unwrap();
    let path = "/properties/metrics/properties/prometheusRule/properties/disabled/items/enum";
    let mut named: Vec<&str> =
        schema.pointer(path).unwrap().list().iter().map(Read::text).collect();
    let groups = yaml::document(&read("helm/weir/files/weir.rules.yaml"));
    let all = alerts(&groups["groups"]);
    let mut names: Vec<&str> = all.iter().map(|alert| alert["alert"].text()).collect();
    names.sort_unstable();
    names.dedup();
    named.sort_unstable();
    assert_eq!(named, names);
}

/// Two releases in one namespace: what happens to one is reported by its own alerts.
#[test]
fn the_alerts_of_a_release_fire_for_it_alone() {
    let (Some(helm), Some(promtool)) = (Helm::newest(), promtool()) else { return };
    let directory = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        let rendered = helm.chart().release(release).values(ALL).render();
        let spec = rendered.find(&format!("PrometheusRule/{release}-weir"))["spec"].to_string();
        fs::write(directory.path().join(format!("{release}.yaml")), spec).unwrap();
    }
    let series = |name: &str, release: &str, values: &str| {
        let labels =
            format!(r#"namespace="limits",job="{release}-weir-metrics",instance="{release}""#);
        json!({ "series": format!("{name}{{{labels}}}"), "values": values })
    };
    let firing = |time: &str, alerts: &[(&str, &str)]| {
        let samples = alerts.iter().map(|(alert, release)| {
            let labels = format!(
                r#"{{alertname="{alert}",namespace="limits",job="{release}-weir-metrics"}}"#
            );
            json!({ "labels": labels, "value": 1 })
        });
        json!({
            "expr": r#"count by (alertname, namespace, job) (ALERTS{alertstate="firing"})"#,
            "eval_time": time,
            "exp_samples": samples.collect::<Vec<_>>(),
        })
    };
    let gone = [("WeirAbsent", "two"), ("WeirReplicaDown", "two")];
    let tests = json!({
        "rule_files": ["one.yaml", "two.yaml"],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [
                series("up", "one", "1x1700"),
                series("weir_build_info", "one", "1x1700"),
                series("weir_config_last_load_successful", "one", "1x30 0x1670"),
                series("up", "two", "1x10 0x1690"),
                series("weir_build_info", "two", "1x10 stale"),
            ],
            "promql_expr_test": [
                firing("10m", &[]),
                firing("17m", &gone),
                firing("35m", &[gone[0], gone[1], ("WeirRulesRejected", "one")]),
                // Also when no sample of a day is left.
                firing("1600m", &[gone[0], ("WeirRulesRejected", "one")]),
            ],
        }],
    });
    fs::write(directory.path().join("tests.yaml"), tests.to_string()).unwrap();
    let output = Command::new(promtool)
        .args(["test", "rules", "tests.yaml"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn runbooks_have_the_address_of_the_values() {
    let Some(helm) = Helm::newest() else { return };
    let base = "https://git.example.com/weir/";
    let values = format!(
        "metrics: {{ prometheusRule: {{ enabled: true, runbookBaseUrl: '{base}', labels: {{ a: b }} }} }}"
    );
    let release = helm.render(&values);
    let rule = release.get("PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["a"], "b");
    for group in rule["spec"]["groups"].list() {
        for alert in group["rules"].list() {
            let url = alert["annotations"]["runbook_url"].text();
            assert!(url.starts_with(&format!("{base}docs/operations.md#")), "{url}");
        }
    }
}

#[test]
fn without_an_address_no_runbook_is_a_link() {
    for helm in Helm::all() {
        let release = helm.render("metrics: { prometheusRule: { enabled: true } }");
        for group in release.get("PrometheusRule")["spec"]["groups"].list() {
            for alert in group["rules"].list() {
                let annotations = &alert["annotations"];
                assert!(annotations["runbook_url"].is_null(), "{alert}");
                let runbook = annotations["runbook"].text();
                assert!(runbook.starts_with("docs/operations.md#"), "{runbook}");
            }
        }
    }
}

#[test]
fn promtool_accepts_the_rendered_alerts() {
    let (Some(helm), Some(promtool)) = (Helm::newest(), promtool()) else { return };
    let release = helm.render(ALL);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    fs::write(&file, release.get("PrometheusRule")["spec"].to_string()).unwrap();
    let output = Command::new(promtool).args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let alerts = read("alerts/weir.rules.yaml").matches("- alert:").count();
    let counted =
        String::from_utf8_lossy(&output.stdout).contains(&format!("{alerts} rules found"));
    assert!(counted && alerts > 5, "{output:?}");
}

#[test]
fn prometheus_scrapes_each_pod_once() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render(&format!("{ALL}\nnetworkPolicy: {{ enabled: true }}"));
    let monitor = &release.get("ServiceMonitor")["spec"];
    let endpoints = monitor["endpoints"].list();
    assert_eq!(endpoints.len(), 1);
    let selects = |labels: &serde_json::Value| {
        let wanted = monitor["selector"]["matchLabels"].map();
        wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let services: Vec<_> = release
        .of_kind("Service")
        .filter(|service| selects(&service["metadata"]["labels"]))
        .collect();
    assert_eq!(services.len(), 1, "two Services would count everything twice");
    let port = services[0]["spec"]["ports"].named(endpoints[0]["port"].text());
    let target = release.container()["ports"].named(port["targetPort"].text());
    // The settings serve /metrics there.
    assert!([9090, 8080].contains(&target["containerPort"].int()), "{target}");
    assert_eq!(endpoints[0].get("path").map_or("/metrics", Read::text), "/metrics");
    let labels = helm.render(
        "metrics: { monitor: { kind: ServiceMonitor, labels: { release: p }, interval: 7s, \
         scrapeTimeout: 3s, relabelings: [{ targetLabel: a, replacement: b }] } }",
    );
    let monitor = labels.get("ServiceMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "p");
    let endpoint = json!({
        "port": "metrics", "interval": "7s", "scrapeTimeout": "3s",
        "relabelings": [{ "targetLabel": "a", "replacement": "b" }],
    });
    assert_eq!(monitor["spec"]["endpoints"], json!([endpoint]));
}

#[test]
fn a_pod_monitor_scrapes_each_pod_once_by_the_same_job() {
    let Some(helm) = Helm::newest() else { return };
    let values = "metrics: { monitor: { kind: PodMonitor, labels: { release: p }, interval: 7s, \
                  scrapeTimeout: 3s, relabelings: [{ targetLabel: a, replacement: b }] } }";
    let release = helm.render(values);
    let monitor = release.get("PodMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "p");
    let [endpoint] = &monitor["spec"]["podMetricsEndpoints"].list()[..] else {
        panic!("{monitor}")
    };
    // A target of a ServiceMonitor has the name of the Service as its job.
    assert_eq!(
        *endpoint,
        json!({
            "port": "metrics", "interval": "7s", "scrapeTimeout": "3s",
            "relabelings": [
                { "targetLabel": "job", "replacement": "weir-metrics" },
                { "targetLabel": "a", "replacement": "b" },
            ],
        })
    );
    release.find("Service/weir-metrics");
    assert_eq!(release.container()["ports"].named("metrics")["containerPort"], 9090);
    let selected = |labels: &Value| {
        let wanted = monitor["spec"]["selector"]["matchLabels"].map();
        wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let pods = |name: &str| release.find(name)["spec"]["template"]["metadata"]["labels"].clone();
    assert!(selected(&pods("Deployment/weir")) && !selected(&pods("Deployment/weir-store")));
}

#[test]
fn a_network_policy_lets_traffic_through_that_weir_needs() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render_file("everything");
    let policy = &release.get("NetworkPolicy")["spec"];
    let ports = |rules: &serde_json::Value| {
        let rules = rules.list().iter().flat_map(|rule| rule["ports"].list());
        rules.map(|port| port["port"].to_string()).collect::<Vec<_>>()
    };
    let ingress = ports(&policy["ingress"]);
    for port in ["\"grpc\"", "\"http\"", "\"resp\"", "\"metrics\""] {
        assert!(ingress.contains(&port.to_owned()), "{policy}");
    }
    let egress = ports(&policy["egress"]);
    for port in ["53", "6379", "4317"] {
        assert!(egress.contains(&port.to_owned()), "{policy}");
    }
    // The ports of addresses in settings.
    let release = helm.render(
        "networkPolicy: { enabled: true }\n\
         settings: { store: { redis: { per_second: { url: 'a:6390,[fd00::1]:6391' } } }, \
         tracing: { endpoint: 'http://collector:4317' }, \
         metrics: { statsd: { enabled: true, address: 'statsd:9125' } } }",
    );
    let egress = ports(&release.find("NetworkPolicy/weir")["spec"]["egress"]);
    for port in ["5353", "6379", "6390", "6391", "4317", "9125"] {
        assert!(egress.contains(&port.to_owned()), "{port}: {egress:?}");
    }
    let xds = helm.chart().file("xds").values("networkPolicy: { enabled: true }").render();
    assert!(ports(&xds.get("NetworkPolicy")["spec"]["egress"]).contains(&"18000".to_owned()));
}
