//! Every value file: Helm accepts it, and Kubernetes would accept what Helm renders.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Mutex;

use crate::helm::{Helm, chart_directory, for_each_file};
use crate::manifests::Read;
use crate::support::tools::kubernetes_validate;
use crate::support::{root, yaml};

/// Returns the oldest version of Kubernetes that the chart allows.
fn oldest_kubernetes() -> String {
    let chart =
        yaml::document(&std::fs::read_to_string(chart_directory().join("Chart.yaml")).unwrap());
    let version = chart["kubeVersion"].text().strip_prefix(">=").expect("a minimum");
    version.trim_end_matches("-0").to_owned()
}

#[test]
fn helm_accepts_every_value_file() {
    for helm in Helm::all() {
        for_each_file(|file| {
            let linted = helm.chart().file(file).lint();
            let linted = linted.unwrap_or_else(|errors| panic!("{file}, {helm:?}: {errors}"));
            assert!(linted.contains("1 chart(s) linted, 0 chart(s) failed"), "{linted}");
        });
    }
}

#[test]
fn helm_accepts_the_values_of_the_readme_and_the_examples() {
    let Some(helm) = Helm::newest() else { return };
    let readme = std::fs::read_to_string(chart_directory().join("README.md")).unwrap();
    let blocks = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut values: Vec<String> = blocks.map(str::to_owned).collect();
    assert!(values.len() > 5, "{values:?}");
    for file in ["istio/weir-values", "istio/weir-values-tls", "envoy-ai-gateway/weir-values"] {
        let path = root().join("examples").join(file).with_extension("yaml");
        values.push(std::fs::read_to_string(path).unwrap());
    }
    for values in values {
        let rendered = helm.chart().values(&values).try_render();
        rendered.unwrap_or_else(|errors| panic!("{errors}\n{values}"));
    }
}

#[test]
fn both_helms_render_the_same() {
    let [old, new] = &Helm::all()[..] else { return };
    for_each_file(|file| {
        let (old, new) = (old.render_file(file), new.render_file(file));
        assert_eq!(old.resources, new.resources, "{file}");
    });
}

#[test]
fn kubernetes_accepts_every_manifest() {
    let helms = Helm::all();
    let python = kubernetes_validate();
    let (Some(python), false) = (python, helms.is_empty()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let seen = Mutex::new(HashSet::new());
    let oldest = oldest_kubernetes();
    for_each_file(|file| {
        for (i, helm) in helms.iter().enumerate() {
            // What a template renders may depend on the version.
            for (j, version) in [oldest.as_str(), "1.99.0"].into_iter().enumerate() {
                let argument = format!("--kube-version={version}");
                let text = helm.chart().file(file).argument(&argument).render().text;
                if seen.lock().unwrap().insert(text.clone()) {
                    let path = directory.path().join(format!("{file}-{i}-{j}.yaml"));
                    std::fs::write(path, text).unwrap();
                }
            }
        }
    });
    let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let output = Command::new(python)
        .args([root().join("tests/chart/validate.py"), oldest.into()])
        .arg(root().join("tests/chart/crds"))
        .args(files)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let count = text.trim_end().strip_suffix(" documents").and_then(|it| it.parse::<usize>().ok());
    // Nothing but the count: no errors.
    assert!(count > Some(50), "{text}");
}

#[test]
fn an_older_kubernetes_is_refused() {
    for helm in Helm::all() {
        let chart = helm.chart().argument("--kube-version=1.29.9");
        let refused = chart.try_render().expect_err("too old");
        assert!(refused.contains("1.30"), "{refused}");
    }
}
