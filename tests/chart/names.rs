//! Names of resources.

use crate::helm::Helm;
use crate::manifests::Read;

#[test]
fn resources_are_named_after_the_release() {
    let Some(helm) = Helm::newest() else { return };
    let long = "a".repeat(53);
    for (release, values, name) in [
        ("weir", "", "weir"),
        ("edge", "", "edge-weir"),
        ("weir-edge", "", "weir-edge"),
        ("edge", "nameOverride: limits", "edge-limits"),
        ("limits", "nameOverride: limits", "limits"),
        ("edge", "fullnameOverride: rl", "rl"),
        (&long, "", &format!("{long}-weir")),
        (&long, &format!("nameOverride: {}", "b".repeat(40)), &format!("{long}-{}", "b".repeat(9))),
    ] {
        let chart = helm.chart().release(release).values(values);
        let rendered = chart.render();
        assert!(
            rendered.names().contains(&&*format!("Deployment/{name}")),
            "{:?}",
            rendered.names()
        );
        assert!(rendered.names().contains(&&*format!("Service/{name}")), "{:?}", rendered.names());
        for full in rendered.names() {
            let own = full.split('/').nth(1).unwrap();
            let shared =
                own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
            // A long name is cut for a suffix.
            assert!(shared || own.starts_with(&name[..name.len().min(40)]), "{full}");
            assert!(own.len() <= 63 && !own.ends_with('-'), "{full}");
        }
    }
}

#[test]
fn the_pods_of_a_long_stateful_set_can_have_their_labels() {
    let disk = "replicaCount: 1\nstore: { kind: disk }";
    for helm in Helm::all() {
        for (release, name) in [
            ("edge", "edge-weir"),
            (&*"a".repeat(53), &*"a".repeat(52)),
            // No name ends in a dash.
            (&*"a".repeat(51), &*"a".repeat(51)),
        ] {
            let rendered = helm.chart().release(release).values(disk).render();
            let set = rendered.find(&format!("StatefulSet/{name}"));
            // As Kubernetes writes the label controller-revision-hash.
            let label = format!("{}-{}", set["metadata"]["name"].text(), "0".repeat(10));
            assert!(label.len() <= 63, "{label}");
            let service = set["spec"]["serviceName"].text();
            assert!(rendered.names().contains(&&*format!("Service/{service}")), "{service}");
        }
    }
}

#[test]
fn names_that_look_like_other_types_stay_texts() {
    let Some(helm) = Helm::newest() else { return };
    let values = "fullnameOverride: limits\npriorityClassName: 'true'\n\
                  rules: { source: configMap, existingConfigMap: '123' }\n\
                  store: { kind: redis, redis: { url: 'a:1', existingSecret: '1e3' } }";
    for release in ["true", "2024", "1e3"] {
        let rendered = helm.chart().release(release).values(values).render();
        let deployment = rendered.find("Deployment/limits");
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/instance"], release);
        assert_eq!(pod["spec"]["priorityClassName"], "true");
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["configMap"]["name"] == "123"), "{volumes:?}");
        assert!(volumes.iter().any(|it| it["secret"]["secretName"] == "1e3"), "{volumes:?}");
    }
    // A Service's name must start with a letter.
    let refused = helm.chart().release("2024").try_render().unwrap_err();
    assert!(refused.contains("2024-weir") && refused.contains("fullnameOverride"), "{refused}");
}

#[test]
fn two_releases_share_no_name_and_no_pod() {
    let Some(helm) = Helm::newest() else { return };
    let [one, two] =
        ["edge", "core"].map(|name| helm.chart().release(name).file("defaults").render());
    for name in one.names() {
        assert!(!two.names().contains(&name), "{name}");
    }
    let selector = |release: &crate::manifests::Manifests, name: &str| {
        release.find(&format!("Deployment/{name}-weir"))["spec"]["selector"].clone()
    };
    assert_ne!(selector(&one, "edge"), selector(&two, "core"));
}
