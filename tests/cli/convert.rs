//! The subcommand `weir convert`: what it writes for other programs, and that `weir check` accepts it.

use std::fs;
use std::path::Path;

use crate::support::program::weir;

#[test]
fn what_is_written_fits_together() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/convert");
    let files = [
        ("nginx.conf", "4 rules", "9: nginx delays requests of the burst without `nodelay`"),
        ("envoy.yaml", "3 rules", "10: no `rate_limits` of a route"),
        ("istio.yaml", "1 rule", ""),
        ("kong.yaml", "2 rules", "11: `identifier: consumer`: Envoy does not know"),
        ("kuadrant.yaml", "2 rules", "12: `auth.identity.userid`: Envoy has no `auth`"),
        ("kuadrant-v1beta2.yaml", "1 rule", "13: `routeSelectors` choose routes"),
    ];
    assert_eq!(fs::read_dir(&fixtures).unwrap().count(), files.len());
    for (file, rules, not_converted) in files {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(fixtures.join(file), directory.path().join(file)).unwrap();
        let (code, out, err) =
            weir(directory.path(), &["convert", file, "-d", "shop", "--out", "converted"]);
        assert_eq!(out, "converted/rules.yaml\nconverted/envoy-actions.yaml\n", "{err}");
        let is_whole = not_converted.is_empty();
        assert_eq!(code, Some(if is_whole { 0 } else { 1 }), "{file}: {err}");
        let wanted = format!("not converted: {file}:{not_converted}");
        assert!(is_whole || err.contains(&wanted), "{err}");
        let check = ["check", "converted/rules.yaml", "--deny-warnings", "--envoy"];
        let check = [&check[..], &["converted/envoy-actions.yaml"]].concat();
        let (code, out, err) = weir(directory.path(), &check);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
        assert!(out.contains(&format!("ok: {rules} in 1 domain of 1 file, 0 warnings")), "{out}");
        // Nothing is overwritten.
        let again = weir(directory.path(), &["convert", file, "-d", "shop", "--out", "converted"]);
        assert!(again.2.contains("rules.yaml exists and is not overwritten"), "{}", again.2);
        let (_, out, err) = weir(directory.path(), &["convert", file]);
        assert!(out.starts_with("domain: example\n"), "{out}");
        assert!(err.contains("note: --out DIR writes what Envoy sends"), "{err}");
    }
}

#[test]
fn formats_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), "rules: []\n").unwrap();
    let (code, _, err) = weir(directory.path(), &["convert", "a.yaml"]);
    assert_eq!(code, Some(1));
    let formats = "limitador, reference-json, nginx, envoy-local, kong, kuadrant, shorthand";
    assert!(err.contains(&format!("write --from and one of {formats}")), "{err}");
    let (_, help, _) = weir(directory.path(), &["convert", "--help"]);
    for format in formats.split(", ") {
        assert!(help.contains(&format!("- {format}:")), "{help}");
    }
}
