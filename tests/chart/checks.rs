//! `weir check` accepts the rules and overlays that the chart mounts.

use std::process::Command;

use crate::helm::{Helm, for_each_file};
use crate::start::every_secret;

#[test]
fn rendered_rules_pass_weir_check() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let release = helm.render_file(file);
        let Some(rules) = release.resources.get("ConfigMap/weir-rules") else {
            let others = ["xds", "xds-overlay", "existing-config-map"];
            assert!(others.contains(&file), "{file} has no rules");
            return;
        };
        let mut node = every_secret(&release);
        node.mount();
        let mounted = node.path("/etc/weir/rules");
        let mut check = Command::new(env!("CARGO_BIN_EXE_weir"));
        check.args(["check".as_ref(), mounted.as_os_str()]);
        let overlay = node.path("/etc/weir/overlay");
        if overlay.exists() {
            check.args(["--overlay".as_ref(), overlay.as_os_str()]);
        }
        let output = check.output().unwrap();
        assert!(output.status.success(), "{file}: {output:?}\n{rules}");
    });
}
