//! `helm package`, and what belongs into a package.

use std::path::Path;
use std::process::{Command, Output};

use crate::helm::{Helm, STORE_SECRET, chart_directory};
use crate::manifests::Read;
use crate::support::{root, yaml};

#[test]
fn both_helms_render_the_package_of_either() {
    for helm in Helm::all() {
        let directory = tempfile::tempdir().unwrap();
        let (chart, target) = (chart_directory(), directory.path().to_str().unwrap());
        helm.run(&["package", chart.to_str().unwrap(), "--destination", target], "").unwrap();
        let package = directory.path().join(format!("weir-{}.tgz", env!("CARGO_PKG_VERSION")));
        let listed = Command::new("tar").arg("-tzf").arg(&package).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for file in [
            "Chart.yaml",
            "values.yaml",
            "values.schema.json",
            "README.md",
            "files/weir.json",
            "files/weir.rules.yaml",
        ] {
            assert!(
                listed.lines().any(|line| line == format!("weir/{file}")),
                "{file} in {listed}"
            );
        }
        for other in Helm::all() {
            let packaged = other.chart().file("everything").chart(&package).render();
            let here = other.chart().file("everything").render();
            assert_eq!(packaged.resources, here.resources);
        }
    }
}

#[test]
fn the_chart_has_the_version_of_weir() {
    let chart =
        yaml::document(&std::fs::read_to_string(chart_directory().join("Chart.yaml")).unwrap());
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_chart_works_as_a_dependency() {
    let Some(helm) = Helm::newest() else { return };
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("parent");
    std::fs::create_dir_all(parent.join("charts")).unwrap();
    let manifest = "apiVersion: v2\nname: parent\nversion: 1.0.0\n";
    std::fs::write(parent.join("Chart.yaml"), manifest).unwrap();
    std::os::unix::fs::symlink(chart_directory(), parent.join("charts/weir")).unwrap();
    let store = "store: { bundled: { existingSecret: weir-valkey } }";
    let values = format!("global: {{ region: eu }}\nweir: {{ replicaCount: 4, {store} }}");
    let release = helm.chart().chart(&parent).release("shop").values(&values).render();
    assert_eq!(release.find("Deployment/shop-weir")["spec"]["replicas"], 4);
}

/// Returns what Helm prints after it has installed a chart.
fn notes(helm: &Helm, chart: &Path, values: &str) -> String {
    let install = ["install", "weir", "--dry-run=client", STORE_SECRET];
    let arguments = [&install[..], &[chart.to_str().unwrap(), "--values", "-"]].concat();
    let output = helm.run(&arguments, values).unwrap();
    output.split_once("NOTES:").expect("notes").1.to_owned()
}

#[test]
fn the_notes_warn_of_the_bundled_store() {
    let Some(helm) = Helm::newest() else { return };
    let notes = |values: &str| notes(&helm, &chart_directory(), values);
    assert!(notes("").contains("trying out"), "{}", notes(""));
    let own = notes("store: { kind: redis, redis: { url: 'redis:6379' } }");
    assert!(!own.contains("trying out"), "{own}");
}

#[test]
fn the_notes_say_that_an_autoscaler_starts_from_one_replica() {
    let words = "there is one\nuntil the autoscaler acts: docs/install.md#turn-autoscaling-on\n";
    let Some(helm) = Helm::newest() else { return };
    let notes = |values: &str| notes(&helm, &chart_directory(), values);
    assert!(!notes("").contains("autoscaler"), "{}", notes(""));
    let elsewhere = "replicaCount: null\nsettings: { store: { replicas: 9 } }";
    for values in ["autoscaling: { enabled: true }", elsewhere] {
        assert!(notes(values).contains(words), "{}", notes(values));
    }
}

const REPOSITORY: &str = "https://github.com/Ann/limits";
const VARIABLES: [(&str, &str); 3] = [
    ("REPOSITORY_URL", REPOSITORY),
    ("IMAGE_REPOSITORY", "ghcr.io/ann/limits"),
    ("CHART_REPOSITORY", "oci://ghcr.io/ann/limits/charts"),
];

/// Writes the chart as a release with these variables has it.
fn release_chart(directory: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(root().join("scripts/release-chart"));
    for (name, _) in VARIABLES {
        command.env_remove(name);
    }
    command.arg(directory).envs(variables.iter().copied()).output().unwrap()
}

/// Asserts that the files of a repository have what the URLs of a text point to.
fn assert_links_exist(text: &str, version: &str) {
    let mut links = 0;
    for rest in text.split(&format!("{REPOSITORY}/")).skip(1) {
        let path = rest.split(&[')', ' ', '\n', '"', '#', '}'][..]).next().unwrap();
        let file = ["blob", "raw"]
            .iter()
            .find_map(|kind| path.strip_prefix(&format!("{kind}/v{version}/")));
        let file = file.unwrap_or_else(|| panic!("{path} is not of the release"));
        assert!(root().join(file).exists(), "{path}");
        links += 1;
    }
    assert!(links > 0, "no links: {text}");
}

#[test]
fn the_chart_of_a_release_has_its_addresses() {
    let version = env!("CARGO_PKG_VERSION");
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("weir");
    let output = release_chart(&chart, &VARIABLES);
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(chart.join(name)).unwrap();

    let about = yaml::document(&read("Chart.yaml"));
    assert_eq!(about["home"], REPOSITORY);
    assert_eq!(about["sources"][0], REPOSITORY);
    assert_eq!(about["maintainers"][0]["name"], "Ann");
    assert_eq!(about["maintainers"][0]["url"], "https://github.com/Ann");
    let icon = about["icon"].text().to_owned();
    assert_links_exist(&icon, version);
    let annotations = &about["annotations"];
    assert_eq!(annotations["artifacthub.io/license"], "Apache-2.0");
    assert_eq!(annotations["artifacthub.io/category"], "networking");
    assert!(annotations.get("artifacthub.io/prerelease").is_none());
    let links = annotations["artifacthub.io/links"].text();
    assert_eq!(yaml::document(links).list().len(), 3);
    assert_links_exist(links, version);

    assert_eq!(read("LICENSE"), std::fs::read_to_string(root().join("LICENSE")).unwrap());
    let readme = read("README.md");
    assert!(!readme.contains("](.."), "a link that works only in the repository");
    assert!(!readme.contains("helm/weir") && !readme.contains("scripts/"), "a path of a checkout");
    assert!(!readme.contains("published"), "{readme}");
    let install =
        format!("helm install weir oci://ghcr.io/ann/limits/charts/weir --version {version} ");
    assert!(readme.contains(&install));
    assert_links_exist(&readme, version);

    for helm in Helm::all() {
        // Without even a remark about the icon.
        let lint = helm.run(&["lint", "--strict", chart.to_str().unwrap()], "").unwrap();
        assert!(!lint.contains("[INFO]"), "{lint}");
        let rules = "metrics: { prometheusRule: { enabled: true } }";
        let release = helm.chart().chart(&chart).values(rules).render();
        let images = annotations["artifacthub.io/images"].text();
        let images = yaml::document(images);
        for (name, deployment) in [("weir", "weir"), ("valkey", "weir-store")] {
            let pod =
                &release.find(&format!("Deployment/{deployment}"))["spec"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["image"], images.named(name)["image"], "{name}");
        }
        let alerts = release.get("PrometheusRule").to_string();
        assert_links_exist(&alerts, version);
    }
}

#[test]
fn the_notes_fit_a_release_and_a_checkout() {
    // Helm 3 renders notes with a cluster only.
    let Some(helm) = Helm::newest() else { return };
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("weir");
    assert!(release_chart(&chart, &VARIABLES).status.success());
    let released = notes(&helm, &chart, "");
    assert_links_exist(&released, env!("CARGO_PKG_VERSION"));
    assert!(released.contains("helm upgrade weir oci://ghcr.io/ann/limits/charts/weir --version"));
    for word in ["CHART", "helm/weir", "not published"] {
        assert!(!released.contains(word), "{word} in {released}");
    }
    let here = notes(&helm, &chart_directory(), "");
    assert!(here.contains("CHART is the directory helm/weir") && !here.contains("://"), "{here}");
    assert!(here.contains("docs/install.md#if-pods-are-not-ready"), "{here}");
}

#[test]
fn a_chart_without_a_repository_has_no_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("weir");
    assert!(release_chart(&chart, &[]).status.success());
    let read = |name: &str| std::fs::read_to_string(chart.join(name)).unwrap();
    assert!(!read("Chart.yaml").contains("://"));
    for name in ["README.md", "values.yaml"] {
        assert_eq!(read(name), std::fs::read_to_string(chart_directory().join(name)).unwrap());
    }
    for (name, value) in [
        ("REPOSITORY_URL", "github.com/ann/weir"),
        ("CHART_REPOSITORY", "ghcr.io/ann/charts"),
        ("IMAGE_REPOSITORY", "ghcr.io/Ann/weir"),
    ] {
        let output = release_chart(&directory.path().join("refused"), &[(name, value)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(&format!("{name} is {value}")),
            "{error}"
        );
    }
}
