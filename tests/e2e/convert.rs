//! What `weir convert` writes for Envoy, in a real Envoy.

use std::fs;
use std::process::Command;

use crate::support::envoy;
use crate::support::files::root;

#[test]
fn envoy_accepts_what_is_converted() {
    let mut accepted = 0;
    for entry in fs::read_dir(root().join("tests/cli/convert")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let directory = tempfile::tempdir().expect("a directory");
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("convert")
            .arg(&path)
            .arg("--out")
            .arg(directory.path())
            .output()
            .expect("weir runs");
        let actions = fs::read_to_string(directory.path().join("envoy-actions.yaml"));
        let actions = actions.unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(envoy::validate(&actions), Ok(()), "{}", path.display());
        accepted += 1;
    }
    assert!(accepted > 0);
}
