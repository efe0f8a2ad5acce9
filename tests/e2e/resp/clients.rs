//! Clients that people use: each connects, and calls the commands. `scripts/install-redis-clients` installs them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{setup, start};
use crate::support::files::read;
use crate::support::redis::Server;
use crate::support::tools::tool;

/// Runs a program against weir, which counts in memory and then in Redis.
fn run(name: &str, command: impl Fn(SocketAddr) -> Command) {
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        let setup = setup(redis).file("password", "secret\n");
        let path = setup.path("password");
        let (_weir, address) = start(setup.env("WEIR__RESP__PASSWORD_FILE", &path));
        let output = command(address).arg(address.port().to_string()).output().expect(name);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.ends_with("good\n"), "{name}: {text}{errors}");
    }
}

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn redis_py() {
    let Some(python) = tool("redis-clients/python/bin/python", "WEIR_REDIS_PY") else { return };
    run("redis-py", |_| {
        let mut command = Command::new(&python);
        command.arg(source("client.py"));
        command
    });
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn go_redis() {
    let Some(program) = tool("redis-clients/go-redis", "WEIR_GO_REDIS") else { return };
    run("go-redis", |_| Command::new(&program));
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn ioredis() {
    let Some(module) = tool("redis-clients/node_modules/ioredis/package.json", "WEIR_IOREDIS")
    else {
        return;
    };
    let modules = module.parent().and_then(Path::parent).expect("a directory");
    run("ioredis", |_| {
        let mut command = Command::new("node");
        command.arg(source("client.js")).env("NODE_PATH", modules);
        command
    });
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn jedis() {
    let Some(jar) = tool("redis-clients/java/jedis.jar", "WEIR_JEDIS") else { return };
    let jars = jar.parent().expect("a directory").join("*");
    run("jedis", |_| {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&jars).arg(source("Client.java"));
        command
    });
}

/// The programs of examples/redis-protocol, on a store on disk.
#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn the_example_programs_work() {
    let (Some(python), Some(module), Some(jar)) = (
        tool("redis-clients/python/bin/python", "WEIR_REDIS_PY"),
        tool("redis-clients/node_modules/ioredis/package.json", "WEIR_IOREDIS"),
        tool("redis-clients/java/jedis.jar", "WEIR_JEDIS"),
    ) else {
        return;
    };
    let example = |name: &str| read(format!("examples/redis-protocol/{name}"));
    let setup = setup(None).file("rules.yaml", &example("shop.yaml"));
    let counters = setup.path("counters");
    let setup = setup.env("WEIR__STORE__KIND", "disk").env("WEIR__STORE__DISK__PATH", &counters);
    let (weir, address) = start(setup);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = directory.path().join(name);
        let text = example(name).replace("6380", &address.port().to_string());
        std::fs::write(&path, text).unwrap();
        path
    };
    let modules = module.parent().and_then(Path::parent).expect("a directory");
    let jars = jar.parent().expect("a directory").join("*");
    let (mut of_python, mut of_node, mut of_java) =
        (Command::new(python), Command::new("node"), Command::new("java"));
    of_python.arg(file("login.py"));
    of_node.arg(file("login.js")).env("NODE_PATH", modules);
    of_java.arg("-cp").arg(jars).arg(file("Login.java"));
    for (command, left) in [(&mut of_python, 4), (&mut of_node, 3), (&mut of_java, 2)] {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.trim(), format!("welcome, {left} more attempts"), "{errors}");
    }
    drop(weir);
}
