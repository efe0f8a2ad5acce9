//! Permissions that the user of Redis lacks.

use super::servers::Config;
use super::servers::cluster::Cluster;
use super::*;

/// The commands of the user of docs/redis.md.
fn documented_commands() -> String {
    let page = include_str!("../../../../docs/redis.md");
    let lines = page.lines().map(str::trim).filter(|line| line.starts_with('+'));
    let commands: String = lines.map(|line| line.trim_end_matches('\\')).collect();
    assert!(commands.contains("+eval ") && commands.contains("+hset "), "{commands}");
    commands
}

/// The user of docs/redis.md.
pub(super) fn documented_user() -> (Server, Login) {
    let commands = documented_commands();
    let server = Server::with(Config {
        lines: vec![
            "user default on >root ~* &* +@all".into(),
            format!("user weir on >secret ~weir:* {commands}"),
        ],
        password: Some("root".into()),
        ..Config::default()
    });
    let [username, password] = ["weir", "secret"].map(|text| Some(text.to_owned()));
    (server, Login { username, password, password_file: None })
}

pub(super) fn with_login(server: &Server, login: &Login) -> RedisOptions {
    let mut options = options(single(server));
    options.access.login = login.clone();
    options
}

async fn missing(options: &RedisOptions, is_node: bool) -> Vec<String> {
    let Topology::Single(endpoint) = &options.topology else { panic!("{options:?}") };
    let mut link = handshake::connect(&options.access, endpoint).await.unwrap();
    examine::examine(&mut link, is_node, "weir:").await.unwrap().missing
}

#[test]
fn each_documented_permission_is_named_if_it_is_missing() {
    let (server, login) = documented_user();
    let options = with_login(&server, &login);
    let set = |rule: &str| drop(server.command(&["ACL", "SETUSER", "weir", rule]));
    let commands = documented_commands();
    runtime().block_on(async {
        assert_eq!(missing(&options, false).await, [""; 0]);
        for rule in commands.split_whitespace() {
            let name = &rule[1..];
            set(&format!("-{name}"));
            assert_eq!(missing(&options, false).await, [name]);
            set(rule);
        }
        set("-time");
        set("-hset");
        assert_eq!(missing(&options, false).await, ["hset", "time"]);
        set("resetkeys");
        assert_eq!(missing(&options, false).await, ["hset", "key", "time"]);
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    });
}

/// A node may not have the slot of the key with which permissions are tried.
#[test]
fn permissions_are_named_on_every_node_of_a_cluster() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        for node in &cluster.masters {
            let rules = ["on", ">pw", "~weir:*", "+@all", "-asking", "-setrange"];
            node.command(&[&["ACL", "SETUSER", "weir"], &rules[..]].concat());
            let mut options = options(single(node));
            options.access.login.username = Some("weir".to_owned());
            options.access.login.password = Some("pw".to_owned());
            assert_eq!(missing(&options, true).await, ["asking", "setrange"]);
        }
    });
}
