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
        let arguments = ["--disable-hot-restart", "--concurrency", "2", "--log-level", "error"];
        start(Command::new(envoy()).args(arguments), "--config-path", config)
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
        let stats = free_port().to_string();
        let arguments = ["--stats-addr", "127.0.0.1", "--stats-port", &stats];
        start(Command::new("nutcracker").args(arguments), "--conf-file", config)
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

fn start(command: &mut Command, config: &str, text: impl FnOnce(u16) -> String) -> Sharding {
    let (directory, port) = (TempDir::with_prefix("weir-sharding").unwrap(), free_port());
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, text(port)).unwrap();
    command.arg(config).arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("{command:?} does not start ({error}): `scripts/test` installs it")
    });
    wait_for("a proxy that answers", || {
        assert!(child.try_wait().unwrap().is_none(), "{command:?} ended");
        Client::connect(port).and_then(|mut client| client.send(&["PING"])).ok()
    });
    Sharding { child, port, _directory: directory }
}

/// Returns the Envoy to start: that of WEIR_ENVOY, in .tools, or of the PATH.
fn envoy() -> PathBuf {
    let directories = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut installed = directories.map(|directory| directory.join(".tools/venv/bin/envoy"));
    let named = std::env::var_os("WEIR_ENVOY").map(PathBuf::from);
    named.or_else(|| installed.find(|path| path.is_file())).unwrap_or_else(|| "envoy".into())
}
