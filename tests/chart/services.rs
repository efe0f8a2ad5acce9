//! The Services: which ports, addresses and namespace they have, and what a NetworkPolicy lets through for a mesh.

use serde_json::json;

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::manifests::{Manifests, Read};
use crate::start::{RULES, wait_until_ready};

/// Returns the names of the ports of a Service.
fn ports(release: &Manifests, service: &str) -> Vec<String> {
    let ports = release.find(service)["spec"]["ports"].list().iter();
    ports.map(|port| port["name"].text().to_owned()).collect()
}

#[test]
fn http_is_not_exposed_to_the_outside_unless_asked_for() {
    for helm in Helm::all() {
        for (service, expected) in [
            ("{}", vec!["grpc", "http"]),
            ("{ ports: { http: null } }", vec!["grpc"]),
            ("{ type: NodePort }", vec!["grpc"]),
            ("{ type: LoadBalancer }", vec!["grpc"]),
            ("{ type: LoadBalancer, exposeHttp: true }", vec!["grpc", "http"]),
        ] {
            let release = helm.render(&format!("service: {service}"));
            assert_eq!(ports(&release, "Service/weir"), expected, "{service}");
            // It can be reached from within the cluster only.
            assert_eq!(ports(&release, "Service/weir-headless"), ["grpc", "http"], "{service}");
        }
        // The number is free.
        helm.render("service: { type: LoadBalancer, ports: { grpc: 8080 } }");
        let nothing = "service: { exposeHttp: true, ports: { http: null } }";
        let refused = helm.chart().values(nothing).try_render().expect_err(nothing);
        let missing = ["missing property 'http'", "service.ports: http is required"];
        assert!(missing.iter().any(|words| refused.contains(words)), "{refused}");
    }
}

#[test]
fn helm_test_asks_a_service_that_has_http() {
    let Some(helm) = Helm::newest() else { return };
    let address = |values: &str| {
        let release = helm.render(values);
        let test = release.resources.get("Pod/weir-test")?;
        let argument = test["spec"]["containers"].list()[0]["args"].list()[0].text();
        Some(argument.strip_prefix("--url=http://").unwrap().to_owned())
    };
    let (service, headless) =
        ("weir.limits.svc:8080/readyz", "weir-headless.limits.svc:8080/readyz");
    assert_eq!(address("").as_deref(), Some(service));
    assert_eq!(address("service: { type: NodePort }").as_deref(), Some(headless));
    assert_eq!(address("service: { ports: { http: null } }").as_deref(), Some(headless));
    let neither = "service: { ports: { http: null } }\nheadlessService: { enabled: false }";
    assert_eq!(address(neither), None);

    let values =
        format!("{RULES}replicaCount: 1\nstore: {{ kind: memory }}\nservice: {{ type: NodePort }}");
    let release = helm.render(&values);
    let running = Node::new(&release).start();
    wait_until_ready(&running);
    let tested = running.helm_test(&release);
    assert!(tested.status.success(), "{tested:?}");
}

#[test]
fn a_load_balancer_has_source_ranges() {
    let Some(helm) = Helm::newest() else { return };
    let ranges = "loadBalancerSourceRanges: [10.0.0.0/8, 'fd00::/8']";
    let release = helm.render(&format!("service: {{ type: LoadBalancer, {ranges} }}"));
    let service = &release.get("Service")["spec"];
    assert_eq!(service["loadBalancerSourceRanges"], json!(["10.0.0.0/8", "fd00::/8"]));
    for (values, words) in [
        (format!("service: {{ {ranges} }}"), "'/service/type': value must be 'LoadBalancer'"),
        (
            "service: { type: LoadBalancer, loadBalancerSourceRanges: [office] }".into(),
            "loadBalancerSourceRanges",
        ),
    ] {
        let message = helm.chart().values(&values).try_render().expect_err(&values);
        assert!(message.contains(words), "{words} in {message}");
    }
}

#[test]
fn all_services_of_weir_have_the_address_families() {
    let Some(helm) = Helm::newest() else { return };
    let release =
        helm.render("service: { ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4] }");
    for name in ["weir", "weir-headless", "weir-metrics"] {
        let service = &release.find(&format!("Service/{name}"))["spec"];
        assert_eq!(service["ipFamilyPolicy"], "RequireDualStack", "{name}");
        assert_eq!(service["ipFamilies"], json!(["IPv6", "IPv4"]), "{name}");
    }
    let default = helm.render("");
    for key in ["ipFamilyPolicy", "ipFamilies"] {
        assert_eq!(default.get("Service")["spec"].get(key), None);
    }
    for values in ["service: { ipFamilies: [IPv6, IPv4] }", "service: { ipFamilies: [IPv5] }"] {
        helm.chart().values(values).try_render().expect_err(values);
    }
}

#[test]
fn another_namespace_has_all_resources() {
    let Some(helm) = Helm::newest() else { return };
    let values = "namespaceOverride: edge\nextraObjects: []\nservice: { exposeHttp: true }";
    let release = helm.chart().file("everything").values(values).render();
    for (name, resource) in &release.resources {
        assert_eq!(resource["metadata"]["namespace"], "edge", "{name}");
    }
    // Not in an address or a selector either.
    let text = release.text.replace("limits:", "").replace("\"limits\"", "");
    assert!(!text.contains(".limits.") && !text.contains("limits]"), "{text}");
    assert!(release.find("Pod/weir-test")["spec"].to_string().contains("weir.edge.svc"));
    let monitor = &release.get("ServiceMonitor")["spec"];
    assert_eq!(monitor["namespaceSelector"]["matchNames"], json!(["edge"]));
}

#[test]
fn a_network_policy_lets_sidecars_reach_the_control_plane() {
    let Some(helm) = Helm::newest() else { return };
    let rule = json!({
        "to": [{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "istio-system" } } }],
        "ports": [{ "port": 15012 }],
    });
    let values = json!({ "networkPolicy": { "enabled": true, "egress": [rule] } });
    let release = helm.render(&values.to_string());
    assert!(release.find("NetworkPolicy/weir")["spec"]["egress"].list().contains(&rule));
    // That of Valkey does not restrict egress.
    let store = &release.find("NetworkPolicy/weir-store")["spec"];
    assert_eq!((&store["policyTypes"], store.get("egress")), (&json!(["Ingress"]), None));
}
