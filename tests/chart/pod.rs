//! The pods: probes, shutdown, rights, resources, secrets.

use serde_json::{Value, json};

use crate::helm::{Helm, for_each_file};
use crate::manifests::Read;
use crate::start::every_secret;

#[test]
fn every_pod_is_restricted() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let release = helm.render_file(file);
        for (name, pod) in release.pods() {
            assert_eq!(pod["automountServiceAccountToken"], false, "{file}, {name}");
            assert_eq!(pod["enableServiceLinks"], false, "{file}, {name}");
            assert!(pod.get("hostNetwork").is_none() && pod.get("hostPID").is_none());
            let context = &pod["securityContext"];
            assert_eq!(context["runAsNonRoot"], true, "{file}, {name}");
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{file}, {name}");
            let containers = pod["containers"].list().iter();
            for container in
                containers.chain(pod.get("initContainers").into_iter().flat_map(Value::list))
            {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{file}, {name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{file}, {name}");
                assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }), "{file}, {name}");
                assert!(
                    container.get("lifecycle").is_none(),
                    "{file}, {name}: drain.delay does it"
                );
                let limits = &container["resources"]["limits"];
                assert!(limits.get("cpu").is_none(), "{file}, {name}: CPU would be throttled");
                assert!(!container["resources"]["requests"]["memory"].text().is_empty());
            }
        }
        for account in release.of_kind("ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false, "{file}");
        }
        for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
            assert_eq!(release.of_kind(kind).count(), 0, "weir needs no rights");
        }
    });
}

#[test]
fn openshift_chooses_the_user() {
    let Some(helm) = Helm::newest() else { return };
    let values = "podSecurityContext: { runAsUser: null, runAsGroup: null, fsGroup: null }";
    for (name, pod) in helm.render(values).pods() {
        let expected =
            json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
        assert_eq!(pod["securityContext"], expected, "{name}");
    }
}

#[test]
fn the_service_account_is_the_charts_or_a_named_one() {
    let Some(helm) = Helm::newest() else { return };
    let account = |values: &str| {
        let release = helm.render(values);
        let created: Vec<String> = release
            .of_kind("ServiceAccount")
            .map(|account| account["metadata"]["name"].text().to_owned())
            .collect();
        (release.pod()["serviceAccountName"].text().to_owned(), created)
    };
    assert_eq!(account(""), ("weir".into(), vec!["weir".into()]));
    let named = account("serviceAccount: { name: limits }");
    assert_eq!(named, ("limits".into(), vec!["limits".into()]));
    let existing = account("serviceAccount: { create: false, name: shared }");
    assert_eq!(existing, ("shared".into(), vec![]));
    let default = account("serviceAccount: { create: false }");
    assert_eq!(default, ("default".into(), vec![]));
}

#[test]
fn the_grace_period_covers_the_drain() {
    let Some(helm) = Helm::newest() else { return };
    for (drain, seconds) in [
        ("{}", 5 + 25 + 5),
        ("{ delay: 10s, timeout: 60s }", 10 + 60 + 5),
        ("{ delay: 1m30s, timeout: 2m }", 90 + 120 + 5),
        ("{ delay: 0s, timeout: 1h }", 3600 + 5),
        // Rounded up: half a second is not left out.
        ("{ delay: 500ms, timeout: 10s }", 16),
        ("{ delay: 250ms, timeout: 1s250ms }", 7),
    ] {
        let release = helm.render(&format!("drain: {drain}"));
        let grace = release.pod()["terminationGracePeriodSeconds"].int();
        assert_eq!(grace, seconds, "{drain}");
        let settings = every_secret(&release).settings();
        let known = ["delay", "timeout"].map(|name| settings[&format!("drain.{name}")].clone());
        assert!(!known.contains(&String::new()), "{known:?}");
    }
    let settings = every_secret(&helm.render("drain: { delay: 11s, timeout: 1m7s }")).settings();
    assert_eq!((&*settings["drain.delay"], &*settings["drain.timeout"]), ("11s", "1m7s"));
}

#[test]
fn probes_ask_livez_and_readyz() {
    let Some(helm) = Helm::newest() else { return };
    // A startup probe on /readyz would restart weir as long as Redis is down.
    let paths =
        [("startupProbe", "/livez"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")];
    let release = helm.render_file("defaults");
    let container = release.container();
    for (probe, path) in paths {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["path"], path, "{probe}");
        assert!(get.get("scheme").is_none(), "{probe}");
        let port = container["ports"].named(get["port"].text());
        assert_eq!(port["containerPort"], 8080, "{probe}");
        assert!(container[probe].get("exec").is_none(), "{probe}");
    }
    // Handshakes of others must not delay a probe, and the kubelet has no client certificate.
    for file in ["tls-without-client-ca", "tls"] {
        let release = helm.render_file(file);
        for (probe, path) in paths {
            let probe = &release.container()[probe];
            assert!(probe.get("httpGet").is_none(), "{file}: {probe}");
            let url = format!("http://127.0.0.1:6070{path}");
            let command = ["/bin/weir", "health", "--url", &url];
            assert_eq!(probe["exec"]["command"], json!(command), "{file}");
        }
    }
}

#[test]
fn resources_are_those_of_the_values() {
    let Some(helm) = Helm::newest() else { return };
    let resources = |values: &str| helm.render(values).container()["resources"].clone();
    let default = json!({ "requests": { "cpu": "100m", "memory": "128Mi" } });
    assert_eq!(resources(""), default);
    assert_eq!(resources("store: { memory: { maxKeys: 100000000 } }"), default);
    let limited = resources("resources: { limits: { memory: 1Gi, cpu: 2 } }");
    assert_eq!(limited["limits"], json!({ "memory": "1Gi", "cpu": 2 }), "who wants it gets it");
    assert_eq!(limited["requests"], default["requests"], "stay");
    for memory in ["512M", "1.5Gi", "300000k", "262144Ki"] {
        let limited = resources(&format!("resources: {{ limits: {{ memory: {memory} }} }}"));
        assert_eq!(limited["limits"]["memory"], memory);
    }
}

#[test]
fn passwords_are_files() {
    let Some(helm) = Helm::newest() else { return };
    for (file, files) in [
        ("redis-tls", vec![("store.redis.password_file", "redis-login", "password")]),
        ("elasticache", vec![("store.redis.password_file", "elasticache", "auth-token")]),
        (
            "sentinel",
            vec![
                ("store.redis.password_file", "redis-login", "password"),
                ("store.redis.sentinel.password_file", "sentinel-login", "password"),
            ],
        ),
    ] {
        let release = helm.render_file(file);
        let settings = every_secret(&release).settings();
        let (pod, container) = (release.pod(), release.container());
        for (setting, secret, key) in files {
            let path = &settings[setting];
            let mount = container["volumeMounts"]
                .list()
                .iter()
                .find(|mount| path.contains(&format!("{}/", mount["mountPath"].text())))
                .unwrap_or_else(|| panic!("{setting} = {path} is not mounted: {container}"));
            let source = &pod["volumes"].named(mount["name"].text())["secret"];
            assert_eq!(source["secretName"], secret, "{file}");
            let item = source["items"].list();
            assert_eq!(item.len(), 1, "nothing else of the secret is mounted: {source}");
            assert_eq!(item[0]["key"], key, "{file}");
            assert_eq!(path.rsplit('/').next(), item[0]["path"].as_str());
            assert_eq!(mount["readOnly"], true);
        }
        // Only a user name may come from a secret into the environment.
        for variable in container.get("env").into_iter().flat_map(Value::list) {
            assert!(variable["name"].text().ends_with("__USERNAME"), "{file}: {variable}");
        }
        assert!(settings["store.redis.password"].is_empty(), "{file}");
    }
}

#[test]
fn mounts_are_directories() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let text = helm.render_file(file).text;
        assert!(!text.contains("subPath"), "{file}: a subPath is not updated");
    });
}

#[test]
fn extra_parts_are_added() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render_file("everything");
    let template = &release.get("Deployment")["spec"]["template"];
    let (pod, container) = (release.pod(), release.container());
    assert_eq!(container["env"].named("WEIR__LOG__LEVEL")["value"], "info");
    assert_eq!(pod["volumes"].named("scratch")["emptyDir"], json!({}));
    assert_eq!(container["volumeMounts"].named("scratch")["mountPath"], "/scratch");
    assert_eq!(template["metadata"]["labels"]["example.com/tier"], "edge");
    assert_eq!(template["metadata"]["annotations"]["example.com/scrape"], "false");
    assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux");
    assert_eq!(pod["tolerations"].list()[0]["key"], "dedicated");
    assert!(pod["affinity"]["nodeAffinity"].is_object());
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }, { "name": "mirror" }]));
    for (name, resource) in &release.resources {
        assert_eq!(resource["metadata"]["labels"]["team"], "edge", "{name}");
        assert_eq!(resource["metadata"]["annotations"]["example.com/owner"], "edge", "{name}");
        assert_eq!(resource["metadata"]["labels"]["app.kubernetes.io/instance"], "weir", "{name}");
    }
    // The environment takes precedence over the settings.
    assert_eq!(every_secret(&release).settings()["log.level"], "info");
}

#[test]
fn an_image_has_a_tag_or_a_digest() {
    let Some(helm) = Helm::newest() else { return };
    let image = |values: &str| helm.render(values).container()["image"].text().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(image(""), format!("weir:{version}"), "the version of this repository");
    assert_eq!(image("image: { repository: a/b, tag: c }"), "a/b:c");
    let digest = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        image(&format!("image: {{ tag: c, digest: '{digest}' }}")),
        format!("weir@{digest}")
    );
}
