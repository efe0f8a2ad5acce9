//! `weir check` accepts the rules that the chart mounts.

use std::process::Command;

use crate::helm::{Helm, for_each_file};
use crate::start::every_secret;

#[test]
fn rendered_rules_pass_weir_check() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let release = helm.render_file(file);
        let Some(rules) = release.resources.get("ConfigMap/weir-rules") else {
            assert!(["xds", "existing-config-map"].contains(&file), "{file} has no rules");
            return;
        };
        let mut node = every_secret(&release);
        node.mount();
        let mounted = node.path("/etc/weir/rules");
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["check".as_ref(), mounted.as_os_str()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{file}: {output:?}\n{rules}");
    });
}
