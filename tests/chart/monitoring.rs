//! Monitoring: the dashboard and the alerts are those of the top level, and Prometheus finds weir.

use std::fs;
use std::process::Command;

use crate::helm::Helm;
use crate::manifests::Read;
use crate::support::tools::promtool;
use crate::support::{read, yaml};

const ALL: &str = "metrics: { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true }, \
                   dashboard: { enabled: true } }";

#[test]
fn monitoring_is_off_by_default() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    for kind in [
        "ServiceMonitor",
        "PrometheusRule",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "Certificate",
    ] {
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
    assert_eq!(
        release.get("PrometheusRule")["spec"],
        yaml::document(&read("alerts/weir.rules.yaml"))
    );
    for file in ["dashboards/weir.json", "alerts/weir.rules.yaml"] {
        let copy = format!("helm/weir/files/{}", file.rsplit('/').next().unwrap());
        assert_eq!(read(&copy), read(file), "{copy} is a copy, which must be current");
    }
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
        "metrics: { serviceMonitor: { enabled: true, labels: { release: p }, interval: 7s } }",
    );
    let monitor = labels.get("ServiceMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "p");
    assert_eq!(monitor["spec"]["endpoints"].list()[0]["interval"], "7s");
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
         otlp: { endpoint: 'http://collector:4317' }, \
         metrics: { statsd: { enabled: true, address: 'statsd:9125' } } }",
    );
    let egress = ports(&release.find("NetworkPolicy/weir")["spec"]["egress"]);
    for port in ["5353", "6379", "6390", "6391", "4317", "9125"] {
        assert!(egress.contains(&port.to_owned()), "{port}: {egress:?}");
    }
    let xds = helm.chart().file("xds").values("networkPolicy: { enabled: true }").render();
    assert!(ports(&xds.get("NetworkPolicy")["spec"]["egress"]).contains(&"18000".to_owned()));
}
