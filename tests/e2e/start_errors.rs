//! What keeps weir from starting: the exit code says whether somebody has to change something, or a restart may help.

use std::net::TcpListener;

use crate::support::certificates::Authority;
use crate::support::redis::{Config, Server};
use crate::support::weir::{Setup, serving};
use crate::support::{http, wait_for};

/// A free port.
const FREE: &str = "127.0.0.1:0";

/// The arguments that have addresses.
const ADDRESSES: [&str; 3] = ["--grpc-address", "--http-address", "--debug-address"];

/// With a valid certificate and its key.
fn setup() -> Setup {
    let identity = Authority::new().sign(&["weir.test"]);
    let setup = serving("domain: shop\n").file("crt", &identity.cert).file("key", &identity.key);
    ADDRESSES.iter().fold(setup, |setup, argument| setup.arg(argument).arg(FREE))
}

/// Sets settings; `@NAME` is a file in the service's directory.
fn with(settings: &str) -> Setup {
    settings.split_whitespace().fold(setup(), |setup, setting| {
        let (name, value) = setting.split_once('=').unwrap();
        let variable = format!("WEIR__{}", name.replace('.', "__").to_uppercase());
        match value.strip_prefix('@') {
            Some(file) => {
                let path = setup.path(file);
                setup.env(&variable, path)
            }
            None => setup.env(&variable, value),
        }
    })
}

fn assert_ends(setup: Setup, code: i32, cause: &str, case: &str) {
    let (status, said) = setup.run();
    assert_eq!(status.code(), Some(code), "{case}: {said}");
    assert!(said.contains("weir cannot start"), "{case}: {said}");
    assert!(said.to_lowercase().contains(&cause.to_lowercase()), "{case}: {cause}: {said}");
}

#[test]
fn a_file_that_is_missing_may_come_and_a_wrong_one_has_to_be_changed() {
    let mut cases = Vec::new();
    for (group, address) in [("grpc", ""), ("http", ""), ("resp", "resp.address=127.0.0.1:0")] {
        let tls = format!("{group}.tls");
        cases.push(format!("{address} {tls}.enabled=true {tls}.key=@key {tls}.cert="));
        cases.push(format!("{address} {tls}.enabled=true {tls}.cert=@crt {tls}.key="));
        let both = format!("{tls}.cert=@crt {tls}.key=@key");
        cases.push(format!("{address} {tls}.enabled=true {both} {tls}.client_ca="));
    }
    let redis = "store.kind=redis store.redis.url=localhost:1 store.redis.tls.enabled=true";
    let xds = "rules.source=xds rules.xds.url=localhost:1 rules.xds.tls.enabled=true";
    let otlp = "tracing.enabled=true tracing.endpoint=https://localhost:1";
    for (server, tls) in [(redis, "store.redis.tls"), (xds, "rules.xds.tls"), (otlp, "otlp")] {
        cases.push(format!("{server} {tls}.ca="));
        cases.push(format!("{server} {tls}.ca=@crt {tls}.key=@key {tls}.cert="));
        cases.push(format!("{server} {tls}.ca=@crt {tls}.cert=@crt {tls}.key="));
    }
    cases.push("debug.read_token_file=".to_owned());
    cases.push("debug.write_token_file=".to_owned());
    cases.push("resp.address=127.0.0.1:0 resp.password_file=".to_owned());
    for case in cases {
        let file = |name: &str| with(&format!("{case}@{name}"));
        assert_ends(file("missing"), 1, "No such file", &case);
        // Tests may run as root, who may read all files.
        assert_ends(file("."), 1, "is a directory", &case);
        assert_ends(file("wrong").file("wrong", "\u{1}\n"), 64, "wrong", &case);
    }
}

#[test]
fn a_password_file_of_redis_may_come_after_the_start() {
    let redis = Server::with(Config {
        lines: vec!["requirepass pw".into()],
        password: Some("pw".into()),
        ..Config::default()
    });
    let open = Server::start();
    for (group, [main, per_second]) in
        [("REDIS", [redis.addr(), open.addr()]), ("REDIS__PER_SECOND", [open.addr(), redis.addr()])]
    {
        let setup = serving("domain: shop\n")
            .env("WEIR__STORE__REDIS__URL", &main)
            .env("WEIR__STORE__REDIS__PER_SECOND__URL", &per_second);
        let file = setup.path("pw");
        let name = format!("WEIR__STORE__{group}__PASSWORD_FILE");
        let mut weir = setup.env(&name, &file).start_unhealthy();
        let line = weir.until_said("cannot connect to redis, retrying").unwrap();
        let wanted = format!("cannot read {}: No such file", file.display());
        assert!(line.contains(&wanted), "{name}: {line}");
        let answer = http::get(weir.http, "/readyz");
        assert!(answer.status == 503 && answer.body.contains("redis"), "{name}: {}", answer.body);
        std::fs::write(&file, "pw\n").unwrap();
        wait_for("weir is ready", || weir.is_healthy().then_some(()));
    }
}

#[test]
fn an_address_that_is_in_use_may_become_free() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for name in ["grpc", "http", "debug", "resp", "metrics.prometheus"] {
        let argument = format!("--{name}-address");
        let address = |other: &str| if other == argument { taken.to_string() } else { FREE.into() };
        let setup = match name {
            "resp" | "metrics.prometheus" => with(&format!("{name}.address={taken}")),
            _ => ADDRESSES.iter().fold(serving("domain: shop\n"), |setup, other| {
                setup.arg(other).arg(&address(other))
            }),
        };
        let cause = format!("cannot listen on {taken} ({name}.address)");
        assert_ends(setup, 1, &cause, name);
    }
}

#[test]
fn a_directory_that_is_in_use_may_become_free() {
    let disk = "store.kind=disk store.disk.path=@counters";
    let used = with(disk);
    let directory = used.path("counters");
    let weir = used.start_as_it_is();
    let second =
        setup().env("WEIR__STORE__KIND", "disk").env("WEIR__STORE__DISK__PATH", &directory);
    assert_ends(second, 1, "which another process uses", "in use");
    drop(weir);
    let path = with("store.kind=disk store.disk.path=@rules.yaml");
    assert_ends(path, 1, "store.disk.path is", "a file");
}

#[test]
fn a_directory_of_a_later_version_has_to_be_changed() {
    let setup = with("store.kind=disk store.disk.path=@counters");
    let directory = setup.path("counters");
    std::fs::create_dir(&directory).unwrap();
    // Nothing but its version, and the checksum of that.
    let mut meta = b"weirdisk\x09\0\0\0\0\0\0\0".to_vec();
    meta.extend(0x9b7487f4_u32.to_le_bytes());
    std::fs::write(directory.join("meta"), meta).unwrap();
    assert_ends(setup, 64, "has format 9", "later version");
}

#[test]
fn counters_that_cannot_be_loaded_may_be_readable_later() {
    let setup = with("store.kind=disk store.disk.path=@counters");
    let directory = setup.path("counters");
    std::fs::create_dir(&directory).unwrap();
    // It can be opened, but not read.
    std::os::unix::fs::symlink("/proc/self/mem", directory.join("log.1")).unwrap();
    assert_ends(setup, 1, "log.1 in it cannot be read", "a log that cannot be read");
}

#[test]
fn a_long_path_of_a_socket_has_to_be_changed() {
    let path = format!("/tmp/{}", "s".repeat(103));
    let wanted = "grpc.uds is a path of 108 bytes; write one of up to 107";
    assert_ends(with(&format!("grpc.uds={path}")), 64, wanted, "grpc.uds");
}

#[test]
fn settings_that_contradict_have_to_be_changed() {
    for (settings, cause) in [
        ("grpc.tls.enabled=true", "grpc.tls.enabled is true without grpc.tls.cert"),
        ("rules.source=xds rules.xds.url=ftp://localhost:1", "the scheme ftp is not supported"),
        ("drain.timeout=soon", "drain.timeout"),
    ] {
        assert_ends(with(settings), 64, cause, settings);
    }
}
