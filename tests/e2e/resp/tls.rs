//! TLS and a password, with redis-cli.

use std::process::Command;

use super::{setup, start};
use crate::support::certificates::Authority;
use crate::support::tls::SERVER_NAME;

#[test]
fn redis_cli_connects_with_tls_and_a_password() {
    let authority = Authority::new();
    let server = authority.sign(&[SERVER_NAME]);
    let setup = setup(None)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .file("ca.crt", &authority.pem)
        .file("password", "secret\n")
        .env("WEIR__RESP__TLS__ENABLED", "true");
    let path = |name| setup.path(name);
    let (cert, key, password) = (path("tls.crt"), path("tls.key"), path("password"));
    let setup = setup
        .env("WEIR__RESP__TLS__CERT", cert)
        .env("WEIR__RESP__TLS__KEY", key)
        .env("WEIR__RESP__PASSWORD_FILE", password);
    let (weir, address) = start(setup);
    let run = |arguments: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "--no-auth-warning"])
            .args(arguments)
            .args(["WEIR.CHECK", "shop", "1", "user", "ann"])
            .output()
            .expect("redis-cli");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let ca = weir.path("ca.crt");
    let tls = ["--tls", "--sni", SERVER_NAME, "--cacert", ca.to_str().unwrap()];
    let with = |more: &[&'static str]| [&tls[..], more].concat();
    let checked = run(&with(&["-a", "secret"]));
    assert!(checked.starts_with("1 2 -1 ") && checked.ends_with(" per-user"), "{checked}");
    let checked = run(&with(&["-3", "--user", "default", "-a", "secret"]));
    assert!(checked.starts_with("1 1 -1 ") && checked.ends_with(" per-user"), "{checked}");
    let refused = run(&with(&["-a", "wrong"]));
    assert!(refused.contains("WRONGPASS") && refused.contains("NOAUTH"), "{refused}");
    assert!(run(&tls).contains("NOAUTH"));
    let plain = run(&["-a", "secret"]);
    assert!(!plain.contains("per-user"), "{plain}");
}
