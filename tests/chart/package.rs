//! `helm package`, and what belongs into a package.

use std::process::Command;

use crate::helm::{Helm, chart_directory};
use crate::support::yaml;

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
    let values = "global: { region: eu }\nweir: { replicaCount: 4 }";
    let release = helm.chart().chart(&parent).release("shop").values(values).render();
    assert_eq!(release.find("Deployment/shop-weir")["spec"]["replicas"], 4);
}

#[test]
fn the_notes_warn_of_the_bundled_store() {
    let Some(helm) = Helm::newest() else { return };
    let chart = chart_directory();
    let notes = |values: &str| {
        let arguments =
            ["install", "weir", chart.to_str().unwrap(), "--dry-run=client", "--values", "-"];
        let output = helm.run(&arguments, values).unwrap();
        output.split_once("NOTES:").expect("notes").1.to_owned()
    };
    assert!(notes("").contains("trying out"), "{}", notes(""));
    let own = notes("store: { kind: redis, redis: { url: 'redis:6379' } }");
    assert!(!own.contains("trying out"), "{own}");
}
