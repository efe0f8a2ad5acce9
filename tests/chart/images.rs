//! The images of all pods, and the secrets for pulling them.

use serde_json::json;

use crate::helm::Helm;
use crate::manifests::{Manifests, Read};

/// Returns the images of the containers of the chart.
fn images(release: &Manifests) -> Vec<String> {
    let pods = release.pods();
    let containers = pods.iter().flat_map(|(_, pod)| pod["containers"].list());
    containers.map(|container| container["image"].text().to_owned()).collect()
}

#[test]
fn a_global_registry_replaces_that_of_every_image() {
    for helm in Helm::all() {
        let version = env!("CARGO_PKG_VERSION");
        let global = "global: { imageRegistry: mirror.example.com/team }\n";
        // weir, Valkey, the test.
        let release = helm.render(global);
        let weir = format!("mirror.example.com/team/weir:{version}");
        let valkey =
            release.find("Deployment/weir-store")["spec"]["template"]["spec"]["containers"].list()
                [0]["image"]
                .text()
                .to_owned();
        assert!(valkey.starts_with("mirror.example.com/team/valkey/valkey:"), "{valkey}");
        assert_eq!(images(&release), [weir.clone(), valkey, weir]);
        for (repository, expected) in [
            ("ghcr.io/owner/weir", "owner/weir"),
            ("localhost:5000/weir", "weir"),
            ("localhost/weir", "weir"),
            // Not a registry: it has neither a dot nor a port.
            ("owner/weir", "owner/weir"),
        ] {
            let release = helm.render(&format!("{global}image: {{ repository: '{repository}' }}"));
            let expected = format!("mirror.example.com/team/{expected}:{version}");
            assert_eq!(images(&release)[0], expected, "{repository}");
            let alone = helm.render(&format!("image: {{ repository: '{repository}' }}"));
            assert_eq!(images(&alone)[0], format!("{repository}:{version}"));
        }
    }
}

#[test]
fn global_pull_secrets_are_those_of_every_pod() {
    let Some(helm) = Helm::newest() else { return };
    let values = "global: { imagePullSecrets: [mirror, { name: team }, own] }\nimagePullSecrets: [{ name: own }]";
    let release = helm.render(values);
    for (name, pod) in release.pods() {
        let secrets = json!([{ "name": "own" }, { "name": "mirror" }, { "name": "team" }]);
        assert_eq!(pod["imagePullSecrets"], secrets, "{name}");
    }
    for (name, pod) in helm.render("").pods() {
        assert_eq!(pod.get("imagePullSecrets"), None, "{name}");
    }
}

#[test]
fn global_values_of_a_parent_apply() {
    let Some(helm) = Helm::newest() else { return };
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("parent");
    std::fs::create_dir_all(parent.join("charts")).unwrap();
    let manifest = "apiVersion: v2\nname: parent\nversion: 1.0.0\n";
    std::fs::write(parent.join("Chart.yaml"), manifest).unwrap();
    let chart = crate::helm::chart_directory();
    std::os::unix::fs::symlink(chart, parent.join("charts/weir")).unwrap();
    let values = "global: { imageRegistry: r.example.com, imagePullSecrets: [a], storageClass: b }
weir: { store: { bundled: { existingSecret: weir-valkey } } }";
    let release = helm.chart().chart(&parent).values(values).render();
    for image in images(&release) {
        assert!(image.starts_with("r.example.com/"), "{image}");
    }
    assert_eq!(release.pod()["imagePullSecrets"], json!([{ "name": "a" }]));
}
