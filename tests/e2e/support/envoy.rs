//! A real Envoy with weir as its rate-limit service, in front of a backend.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::backend::Backend;
use super::certificates::{Authority, Identity};
use super::program::Program;
use super::weir::Weir;
use super::{http, wait_for, yaml};

/// A running Envoy and the backend behind it.
#[derive(Debug)]
pub struct Envoy {
    /// The address where Envoy accepts requests.
    pub address: SocketAddr,
    pub backend: Backend,
    admin: SocketAddr,
    _program: Program,
    _dir: TempDir,
}

/// Starts Envoy with `weir` as its rate-limit service. `filter` is added to the rate-limit filter's
/// settings.
pub fn in_front_of(weir: &Weir, filter: &str) -> Envoy {
    with(include_str!("envoy.yaml"), &[Replica::of(weir)], filter, "")
}

/// A replica of the rate-limit service, and where its health is checked.
#[derive(Clone, Copy, Debug)]
pub struct Replica {
    pub grpc: SocketAddr,
    pub probed: SocketAddr,
}

impl Replica {
    /// Returns a replica whose health is checked over gRPC.
    pub fn of(weir: &Weir) -> Replica {
        Replica { grpc: weir.grpc, probed: weir.grpc }
    }
}

/// Starts an Envoy that fails the requests whose call to the rate-limit service fails. `cluster` is
/// added to the settings of that service.
pub fn in_front_of_replicas(replicas: &[Replica], cluster: &str) -> Envoy {
    with(include_str!("envoy.yaml"), replicas, "failure_mode_deny: true", cluster)
}

/// Starts an Envoy that waits for `weir` with its default timeout, 20 ms.
pub fn with_default_timeout(weir: &Weir) -> Envoy {
    let timeout = "timeout: 10s\n";
    let config = include_str!("envoy.yaml");
    assert!(config.contains(timeout), "envoy.yaml sets a timeout");
    with(&config.replace(timeout, "\n"), &[Replica::of(weir)], "", "")
}

/// As [`in_front_of`], over TLS with this certificate; both sides trust the authority.
pub fn over_tls(weir: &Weir, filter: &str, authority: &Authority, client: &Identity) -> Envoy {
    let inline = |pem: &str| format!("{{ inline_string: {pem:?} }}");
    let tls = format!(
        "transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: weir.test
          common_tls_context:
            tls_certificates:
              - {{ certificate_chain: {}, private_key: {} }}
            validation_context:
              trusted_ca: {}
              match_typed_subject_alt_names:
                - {{ san_type: DNS, matcher: {{ exact: weir.test }} }}
",
        inline(&client.cert),
        inline(&client.key),
        inline(&authority.pem)
    );
    let cluster = "- name: weir\n      connect_timeout: 5s\n";
    let config = include_str!("envoy.yaml");
    assert!(config.contains(cluster), "envoy.yaml has the cluster");
    with(
        &config.replace(cluster, &format!("{cluster}      {tls}")),
        &[Replica::of(weir)],
        filter,
        "",
    )
}

/// Starts an Envoy that sends its spans to a collector by gRPC.
pub fn tracing_to(weir: &Weir, collector: SocketAddr) -> Envoy {
    let route = "                route_config:\n";
    let tracing = format!(
        "                tracing:
                  provider:
                    name: envoy.tracers.opentelemetry
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                      service_name: envoy
                      grpc_service: {{ envoy_grpc: {{ cluster_name: collector }} }}
{route}"
    );
    let weir_cluster = "    - name: weir\n";
    let config = include_str!("envoy.yaml");
    let (_, cluster) = config.split_once(weir_cluster).expect("the cluster of weir");
    let (cluster, _) = cluster.split_once("    - name: backend\n").expect("the other cluster");
    let cluster = cluster.replace("{weir}", &collector.port().to_string());
    let cluster = cluster.replace("{probed}", &collector.port().to_string());
    let cluster = cluster.replace("cluster_name: weir", "cluster_name: collector");
    let config = config
        .replace(route, &tracing)
        .replace(weir_cluster, &format!("    - name: collector\n{cluster}{weir_cluster}"));
    with(&config, &[Replica::of(weir)], "", "")
}

/// As [`in_front_of_replicas`], with a whole cluster of the docs instead, of which only the addresses are
/// replaced.
pub fn with_documented_cluster(replicas: &[Replica], mut documented: Value) -> Envoy {
    let backend = Backend::start();
    let config = include_str!("envoy.yaml");
    let config = filled(config, replicas, "failure_mode_deny: true", "", &backend);
    let mut config = yaml::document(&config);
    let clusters = config["static_resources"]["clusters"].as_array_mut().expect("clusters");
    let cluster = clusters.iter_mut().find(|cluster| cluster["name"] == "weir").expect("weir's");
    documented["load_assignment"] = cluster["load_assignment"].take();
    *cluster = documented;
    start(&config.to_string(), backend)
}

fn with(config: &str, replicas: &[Replica], filter: &str, cluster: &str) -> Envoy {
    let backend = Backend::start();
    start(&filled(config, replicas, filter, cluster, &backend), backend)
}

/// Fills the places of envoy.yaml.
fn filled(
    config: &str,
    replicas: &[Replica],
    filter: &str,
    cluster: &str,
    backend: &Backend,
) -> String {
    let endpoint = |line: &str| -> String {
        let endpoint_of = |replica: &Replica| {
            line.replace("{weir}", &replica.grpc.port().to_string())
                .replace("{probed}", &replica.probed.port().to_string())
        };
        replicas.iter().map(endpoint_of).collect()
    };
    let lines = config.split_inclusive('\n').map(|line| match line.contains("{weir}") {
        true => endpoint(line),
        false => line.to_owned(),
    });
    lines
        .collect::<String>()
        .replace("{filter}", filter)
        .replace("{cluster}", cluster)
        .replace("{backend}", &backend.address.port().to_string())
}

/// Starts Envoy with the configuration of the example, on free ports.
pub fn example(weir: &Weir) -> Envoy {
    on_free_ports(include_str!("../../../examples/envoy/envoy.yaml"), weir, Backend::start())
}

/// As [`example`], with the configuration that charges costs afterwards.
pub fn postpaid_example(weir: &Weir) -> Envoy {
    // A busy machine may take longer than the example waits.
    let config = include_str!("../../../examples/envoy/postpaid.yaml");
    on_free_ports(&config.replace("timeout: 0.02s", "timeout: 10s"), weir, Backend::start())
}

/// Starts Envoy with a configuration of the docs, on free ports.
pub fn documented(config: &str, weir: &Weir) -> Envoy {
    documented_with(config, weir, Backend::start())
}

/// As [`documented`], in front of this backend.
pub fn documented_with(config: &str, weir: &Weir, backend: Backend) -> Envoy {
    assert!(config.contains("timeout: 0.02s"));
    // A busy machine may take longer than the docs wait.
    on_free_ports(&config.replace("timeout: 0.02s", "timeout: 10s"), weir, backend)
}

/// Returns Envoy's objection to a configuration, if it has one.
pub fn validate(config: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("envoy.yaml");
    fs::write(&path, config).expect("a file");
    let output =
        Command::new(binary()).args(["--mode", "validate", "-c"]).arg(&path).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Starts Envoy with an example in front of this backend, and replaces its ports: clients connect to 10000 and 10001, the
/// backend has the second 10001 or 10002.
pub fn on_free_ports(config: &str, weir: &Weir, backend: Backend) -> Envoy {
    let port = |port: u16| format!("port_value: {port} ");
    let config = config
        .replace(&port(10000), &port(0))
        .replacen(&port(10001), &port(0), 1)
        .replacen(&port(10001), &port(backend.address.port()), 1)
        .replace(&port(10002), &port(backend.address.port()))
        .replace(&port(8081), &port(weir.grpc.port()));
    if config.contains("\nadmin:\n") {
        return start(&config.replace(&port(9901), &port(0)), backend);
    }
    let admin =
        format!("admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, {}}} }} }}", port(0));
    start(&format!("{admin}\n{config}"), backend)
}

fn start(config: &str, backend: Backend) -> Envoy {
    run(config, backend, "ingress")
}

/// Starts Envoy with a complete configuration. Clients connect to the listener of this name.
pub fn run(config: &str, backend: Backend, ingress: &str) -> Envoy {
    // Several Envoys run at the same time, so each is small.
    run_with_workers(1, config, backend, ingress)
}

/// As [`run`], with a number of worker threads.
pub fn run_with_workers(workers: u32, config: &str, backend: Backend, ingress: &str) -> Envoy {
    let dir = tempfile::tempdir().expect("a directory");
    let (config_path, admin_path) = (dir.path().join("envoy.yaml"), dir.path().join("admin"));
    fs::write(&config_path, config).expect("a file");
    let mut command = Command::new(binary());
    command.arg("--config-path").arg(&config_path).arg("--admin-address-path").arg(&admin_path);
    command.args(["--disable-hot-restart", "--log-level", "warning"]);
    command.arg("--concurrency").arg(workers.to_string());
    let mut program = Program::start("envoy", &mut command);
    let admin = wait_for("envoy writes its admin address", || {
        assert!(program.runs(), "envoy ended:\n{}", program.said_in_all());
        fs::read_to_string(&admin_path).ok()?.parse().ok()
    });
    wait_for("envoy is ready", || {
        let ready = http::ask(admin, "GET", "/ready", &[], b"").ok()?;
        (ready.status == 200).then_some(())
    });
    let address = wait_for("envoy listens", || listener(admin, ingress));
    Envoy { address, backend, admin, _program: program, _dir: dir }
}

impl Envoy {
    /// Returns the address for clients of another listener.
    pub fn listener(&self, name: &str) -> SocketAddr {
        wait_for("envoy listens", || listener(self.admin, name))
    }

    /// Returns Envoy's statistics as text.
    pub fn stats(&self) -> String {
        http::get(self.admin, "/stats").body
    }

    /// Returns the whole configuration, as the admin interface prints it.
    pub fn config_dump(&self) -> String {
        http::get(self.admin, "/config_dump").body
    }

    /// Returns a counter of Envoy; 0 if it has not counted anything yet.
    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.stats();
        let mut lines = stats.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| *n == name).map_or(0, |(_, value)| value.parse().expect("a number"))
    }

    /// Returns the bytes that Envoy has allocated.
    pub fn allocated_bytes(&self) -> u64 {
        let memory = http::get(self.admin, "/memory").json();
        memory["allocated"].as_str().and_then(|bytes| bytes.parse().ok()).expect("a number")
    }

    /// Returns the number of calls to a replica of the rate-limit service.
    pub fn calls_to(&self, replica: SocketAddr) -> u64 {
        let clusters = http::get(self.admin, "/clusters").body;
        let prefix = format!("weir::{replica}::rq_total::");
        let calls = clusters.lines().find_map(|line| line.strip_prefix(&prefix));
        calls.and_then(|calls| calls.parse().ok()).unwrap_or_else(|| panic!("no {prefix}"))
    }

    /// Sends `count` requests one after the other. Returns their statuses.
    pub fn statuses(&self, count: usize, path: &str, headers: &[(&str, &str)]) -> Vec<u16> {
        (0..count).map(|_| http::get_with(self.address, path, headers).status).collect()
    }
}

/// Returns the address of a listener, as the admin interface reports it.
fn listener(admin: SocketAddr, name: &str) -> Option<SocketAddr> {
    let listeners = http::ask(admin, "GET", "/listeners", &[], b"").ok()?.body;
    let mut lines = listeners.lines().filter_map(|line| line.split_once("::"));
    let (_, line) = lines.find(|(listener, _)| *listener == name)?;
    line.trim().parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}

/// Finds the Envoy binary.
fn binary() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/bin/envoy");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|dir| dir.join("envoy"));
    let found = match std::env::var_os("WEIR_ENVOY") {
        Some(named) => Some(named.into()).filter(|named: &PathBuf| named.is_file()),
        None => [installed].into_iter().chain(in_path).find(|program| program.is_file()),
    };
    found.expect("Envoy is missing: run scripts/test, which installs it, or set WEIR_ENVOY")
}
