//! The proxies that spread keys over several servers: Envoy's redis_proxy, and twemproxy.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{Client, Server, free_port, wait_for};

/// Milliseconds that are enough on a busy machine.
pub const PATIENT: u32 = 5_000;

/// A proxy in front of servers. Each key is on the server that its text, or that in its braces, is hashed to.
#[derive(Debug)]
pub struct Sharding {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Sharding {
    /// Starts Envoy with two workers. With `tags` it hashes the text in braces alone. Waits for a server for up to
    /// `timeout` milliseconds.
    pub fn envoy(servers: &[Server], tags: bool, timeout: u32) -> Sharding {
        let timeout = f64::from(timeout) / 1_000.0;
        let endpoint = |server: &Server| {
            let port = server.port();
            format!(
                "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"
            )
        };
        let endpoints: Vec<String> = servers.iter().map(endpoint).collect();
        let endpoints = endpoints.join(", ");
        let config = |port| {
            format!(
                r#"
static_resources:
  listeners:
  - name: redis
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    enable_reuse_port: false
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {{op_timeout: {timeout}s, enable_hashtagging: {tags}}}
          prefix_routes: {{catch_all_route: {{cluster: redis}}}}
  clusters:
  - name: redis
    lb_policy: MAGLEV
    load_assignment: {{cluster_name: redis, endpoints: [{{lb_endpoints: [{endpoints}]}}]}}
"#
            )
        };
        let command = || {
            let mut envoy = Command::new(envoy());
            envoy.args(["--disable-hot-restart", "--concurrency", "2", "--log-level", "error"]);
            envoy.arg("--config-path");
            envoy
        };
        start(command, config)
    }

    /// Starts twemproxy, as [`envoy`](Self::envoy).
    pub fn twemproxy(servers: &[Server], tags: bool, timeout: u32) -> Sharding {
        let servers: String =
            servers.iter().map(|server| format!("  - {}:1\n", server.addr())).collect();
        let tags = if tags { "  hash_tag: \"{}\"\n" } else { "" };
        let config = |port| {
            format!(
                "redis:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: murmur\n  distribution: ketama\n\
                 {tags}  timeout: {timeout}\n  server_retry_timeout: 100\n  servers:\n{servers}"
            )
        };
        let command = || {
            let mut nutcracker = Command::new("nutcracker");
            let stats = free_port().to_string();
            nutcracker.args(["--stats-addr", "127.0.0.1", "--stats-port", &stats, "--conf-file"]);
            nutcracker
        };
        start(command, config)
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Sharding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a proxy whose last argument is the file of its configuration, which depends on its port.
fn start(command: impl Fn() -> Command, config: impl Fn(u16) -> String) -> Sharding {
    // Another process may bind the port before the proxy does.
    let started = (0..10).find_map(|_| try_start(command(), &config));
    started.unwrap_or_else(|| panic!("{:?} ended ten times", command()))
}

fn try_start(mut command: Command, config: &impl Fn(u16) -> String) -> Option<Sharding> {
    let (directory, port) = (TempDir::with_prefix("weir-sharding").unwrap(), free_port());
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, config(port)).unwrap();
    command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap_or_else(|error| {
        panic!("{command:?} does not start ({error}): `scripts/test` installs it")
    });
    let mut proxy = Sharding { child, port, _directory: directory };
    wait_for("a proxy that answers", || {
        let answer = Client::connect(port).and_then(|mut client| client.send(&["PING"]));
        let has_ended = proxy.child.try_wait().unwrap().is_some();
        (has_ended || answer.is_ok()).then_some(!has_ended)
    })
    .then_some(proxy)
}

/// Returns the Envoy to start: that of WEIR_ENVOY, in .tools, or of the PATH.
fn envoy() -> PathBuf {
    let directories = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut installed = directories.map(|directory| directory.join(".tools/venv/bin/envoy"));
    let named = std::env::var_os("WEIR_ENVOY").map(PathBuf::from);
    named.or_else(|| installed.find(|path| path.is_file())).unwrap_or_else(|| "envoy".into())
}
