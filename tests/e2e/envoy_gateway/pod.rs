//! The pod of Envoy Gateway's rate-limit deployment.
//!
//! Ports, paths and host names are exactly those of the pod, so a test runs itself again in namespaces
//! of its own: for the network, and for mounts. weir gets a root file system with nothing but the system's
//! libraries and the volumes, read-only, as a user without rights. Where namespaces are not permitted, the
//! test says so and runs with other ports and paths.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::program::Program;
use crate::support::redis::{Server, free_port};
use crate::support::weir::{PATIENT, STORE_TIMES};
use crate::support::{http, wait_for};

/// Set in the process that runs in the namespaces.
const INSIDE: &str = "WEIR_TEST_POD";

/// The timeout of Envoy Gateway's probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The host name of Redis, which the user of Envoy Gateway chooses.
const REDIS_HOST: &str = "redis.redis-system.svc.cluster.local";

/// Names of metrics as Envoy Gateway maps them, without `scale`.
const MAPPER: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.*.*"
    name: "ratelimit_service_rate_limit_$4"
    labels: { domain: "$1", key1: "$2", key2: "$3" }
  - match: "ratelimit.service.rate_limit.*.*.*"
    name: "ratelimit_service_rate_limit_$3"
    labels: { domain: "$1", key1: "$2" }
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels: { grpc_method: "$1" }
  - match: "ratelimit.service.config_load_success"
    name: "ratelimit_service_config_load_success"
    match_metric_type: counter
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;

/// Where a test runs.
#[derive(Clone, Debug)]
pub enum Place {
    /// In namespaces of its own; with the user and group that weir is to run as, if they may be set.
    Namespaces { user: Option<u32> },
    /// Beside other tests, on these ports.
    Shared { grpc: u16, http: u16, debug: u16, metrics: u16, xds: u16 },
}

impl Place {
    fn port(&self, exact: u16, shared: impl Fn(&Place) -> Option<u16>) -> u16 {
        shared(self).unwrap_or(exact)
    }

    /// The address of the management server.
    pub fn xds(&self) -> SocketAddr {
        let shared = |place: &Place| match place {
            Place::Shared { xds, .. } => Some(*xds),
            Place::Namespaces { .. } => None,
        };
        (Ipv4Addr::LOCALHOST, self.port(18_001, shared)).into()
    }
}

/// Runs `test`, which is the test `name`, in namespaces of its own if that is possible.
pub fn in_pod(name: &str, test: impl FnOnce(Place)) {
    if let Ok(user) = std::env::var(INSIDE) {
        return test(Place::Namespaces { user: user.parse().ok() });
    }
    for (flags, user) in [(&["-n", "-m"][..], "65534"), (&["-r", "-n", "-m"], "same")] {
        let inside = |words: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(flags).args(["--", "sh", "-c", r#"ip link set lo up && exec "$0" "$@""#]);
            command.args(words).env(INSIDE, user);
            command
        };
        if !inside(&["true"]).output().is_ok_and(|output| output.status.success()) {
            continue;
        }
        let itself = std::env::current_exe().expect("this program");
        let itself = itself.to_str().expect("text");
        let mut command = inside(&[itself, "--exact", name, "--nocapture", "--include-ignored"]);
        let output = command.output().expect("starts");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    eprintln!("namespaces are not permitted: ports and paths are not those of Envoy Gateway");
    let [grpc, http, debug, metrics, xds] = std::array::from_fn(|_| free_port());
    test(Place::Shared { grpc, http, debug, metrics, xds });
}

/// weir in its pod, and what the pod mounts.
pub struct Pod {
    place: Place,
    /// The root of weir's file system, or of the volumes if it shares that of the tests.
    root: TempDir,
    /// The address at which clients and probes reach it.
    ip: IpAddr,
    env: Vec<(&'static str, String)>,
    args: Vec<String>,
    weir: Option<Program>,
}

impl Pod {
    pub fn new(place: Place, authority: &Authority, redis: &Server) -> Pod {
        let root = tempfile::tempdir().expect("a directory");
        if let Place::Namespaces { .. } = place {
            make_root(root.path());
        }
        let ip = Ipv4Addr::LOCALHOST.into();
        let mut pod = Pod { place, root, ip, env: Vec::new(), args: Vec::new(), weir: None };
        let own = authority.sign(&[
            "envoy-ratelimit",
            "envoy-ratelimit.envoy-gateway-system",
            "envoy-ratelimit.envoy-gateway-system.svc.cluster.local",
        ]);
        pod.mount(
            "/certs",
            &[("tls.crt", &own.cert), ("tls.key", &own.key), ("ca.crt", &authority.pem)],
        );
        pod.env = pod.environment(redis.port());
        // Beside load, Redis is slower than weir allows by default.
        pod.env.extend(STORE_TIMES.map(|name| (name, PATIENT.to_owned())));
        // No load balancer has to notice that it stops.
        pod.env.push(("WEIR__DRAIN__DELAY", "0".to_owned()));
        pod
    }

    /// The variables of Envoy Gateway, without those of options.
    fn environment(&self, redis: u16) -> Vec<(&'static str, String)> {
        let (xds_host, redis_host, metrics) = match &self.place {
            Place::Namespaces { .. } => ("envoy-gateway", REDIS_HOST, ":19001".to_owned()),
            Place::Shared { metrics, .. } => ("localhost", "localhost", format!(":{metrics}")),
        };
        let mut env: Vec<(&'static str, String)> = [
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("LOG_LEVEL", "info"),
            ("USE_STATSD", "false"),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_USE_TLS", "true"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("USE_PROMETHEUS", "true"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        let xds = self.place.xds().port();
        env.push(("CONFIG_GRPC_XDS_SERVER_URL", format!("{xds_host}:{xds}")));
        env.push(("REDIS_URL", format!("{redis_host}:{redis}")));
        env.push(("PROMETHEUS_ADDR", metrics));
        env.extend(
            [
                ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
                ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
                ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
                ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
                ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
                ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
                // The volume is optional, and the variable is always set.
                ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
            ]
            .map(|(name, path)| (name, self.seen_as(path))),
        );
        if let Place::Shared { grpc, http, debug, .. } = self.place {
            let ports = [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", debug)];
            env.extend(ports.map(|(name, port)| (name, port.to_string())));
        }
        env
    }

    /// Returns the variables of the container.
    pub fn env(&self) -> &[(&'static str, String)] {
        &self.env
    }

    /// Sets the address at which clients and probes reach it.
    pub fn set_ip(&mut self, ip: IpAddr) {
        self.ip = ip;
    }

    /// Adds an argument of the container. It may be a path of the pod.
    pub fn arg(&mut self, arg: &str) {
        let is_path = arg.starts_with('/');
        self.args.push(if is_path { self.seen_as(arg) } else { arg.to_owned() });
    }

    /// Adds the variables of tracing, to a collector that does not exist.
    pub fn with_tracing(&mut self) {
        self.env.extend(
            [
                ("TRACING_ENABLED", "true"),
                ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
                ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
                ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-5f8b"),
                ("TRACING_SAMPLING_RATE", "1.0"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector.monitoring:4318"),
            ]
            .map(|(name, value)| (name, value.to_owned())),
        );
    }

    /// Adds the variables of Redis over TLS. Its CA is among the system's roots.
    pub fn with_redis_over_tls(&mut self, redis: &Server) {
        let files = redis.certificates();
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        self.mount(
            "/redis-certs",
            &[("tls.crt", &read(&files.client_cert)), ("tls.key", &read(&files.client_key))],
        );
        let roots = "/etc/ssl/certs/ca-certificates.crt";
        self.write(roots, &read(&files.ca));
        let path = |path| self.seen_as(path);
        let mut env = vec![
            ("REDIS_TLS", "true".to_owned()),
            ("REDIS_TLS_CLIENT_CERT", path("/redis-certs/tls.crt")),
            ("REDIS_TLS_CLIENT_KEY", path("/redis-certs/tls.key")),
        ];
        if let Place::Shared { .. } = self.place {
            env.push(("SSL_CERT_FILE", path(roots)));
        }
        // The certificate of the tests is for this name.
        env.push(("REDIS_URL", format!("localhost:{}", redis.port())));
        self.env.retain(|(name, _)| *name != "REDIS_URL");
        self.env.extend(env);
    }

    /// Mounts the optional ConfigMap.
    pub fn config_map(&mut self) {
        self.mount("/etc/statsd-exporter", &[("conf.yaml", MAPPER)]);
    }

    /// Creates the files of a volume as Kubernetes does: links into a directory that is replaced whole.
    pub fn mount(&self, at: &str, files: &[(&str, &str)]) {
        let volume = self.path(at);
        let data = volume.join("..2026_11_22");
        fs::create_dir_all(&data).expect("a directory");
        std::os::unix::fs::symlink("..2026_11_22", volume.join("..data")).expect("a link");
        for (name, text) in files {
            fs::write(data.join(name), text).expect("a file");
            let target = Path::new("..data").join(name);
            std::os::unix::fs::symlink(target, volume.join(name)).expect("a link");
        }
    }

    fn write(&self, at: &str, text: &str) {
        let path = self.path(at);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    /// Returns where the tests see a path of the pod.
    fn path(&self, at: &str) -> PathBuf {
        self.root.path().join(at.trim_start_matches('/'))
    }

    /// Returns where weir sees a path of the pod.
    pub fn seen_as(&self, at: &str) -> String {
        match self.place {
            Place::Namespaces { .. } => at.to_owned(),
            Place::Shared { .. } => self.path(at).to_str().expect("text").to_owned(),
        }
    }

    /// Starts weir and waits until it listens.
    pub fn start(&mut self) {
        let mut command = match &self.place {
            Place::Namespaces { user } => {
                shell(r#"mount -o remount,ro "$0""#, &[self.root.path()]);
                let mut command = Command::new("chroot");
                if let Some(user) = user {
                    command
                        .arg(format!("--userspec={user}:{user}"))
                        .arg(format!("--groups={user}"));
                }
                command.arg(self.root.path()).arg("/bin/ratelimit");
                command
            }
            Place::Shared { .. } => {
                let program = self.path("/bin/ratelimit");
                fs::create_dir_all(program.parent().expect("below the root")).expect("a directory");
                fs::copy(env!("CARGO_BIN_EXE_weir"), &program).expect("a copy");
                Command::new(program)
            }
        };
        // Container runtimes set PATH too.
        let path = ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        command.args(&self.args);
        command.current_dir("/").env_clear().envs(self.env.iter().cloned().chain([path]));
        let mut weir = Program::start("weir", &mut command);
        weir.until_said("Listening for gRPC on ").unwrap_or_else(|said| panic!("{said}"));
        self.weir = Some(weir);
    }

    /// Stops weir as Kubernetes does. It must end without an error.
    pub fn stop(&mut self) {
        let weir = self.weir.as_mut().expect("it runs");
        weir.signal("TERM");
        assert!(weir.wait_until_ended().success());
    }

    pub fn grpc(&self) -> SocketAddr {
        self.address(8081, |place| match place {
            Place::Shared { grpc, .. } => Some(*grpc),
            Place::Namespaces { .. } => None,
        })
    }

    pub fn http(&self) -> SocketAddr {
        self.address(8080, |place| match place {
            Place::Shared { http, .. } => Some(*http),
            Place::Namespaces { .. } => None,
        })
    }

    fn address(&self, exact: u16, shared: impl Fn(&Place) -> Option<u16>) -> SocketAddr {
        (self.ip, self.place.port(exact, shared)).into()
    }

    /// Returns what the metrics port serves.
    pub fn metrics(&self) -> String {
        let address = self.address(19_001, |place| match place {
            Place::Shared { metrics, .. } => Some(*metrics),
            Place::Namespaces { .. } => None,
        });
        http::get(address, "/metrics").body
    }

    /// Sends a probe. Returns its status; none if there is none in time.
    pub fn probe(&self) -> Option<u16> {
        self.probe_at("/healthcheck")
    }

    /// As [`probe`](Self::probe), of this path.
    pub fn probe_at(&self, path: &str) -> Option<u16> {
        let timeout = Some(PROBE_TIMEOUT);
        let stream = TcpStream::connect_timeout(&self.http(), PROBE_TIMEOUT).ok()?;
        stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)).ok()?;
        http::ask_on(stream, "GET", path, &[], b"").ok().map(|answer| answer.status)
    }

    /// Sends probes until one is answered in time, and returns its status.
    pub fn probe_until_answered(&self) -> u16 {
        wait_for("an answer to a probe", || self.probe())
    }
}

/// Mounts a root file system for weir at a directory: the system's libraries, the binary as
/// `/bin/ratelimit`, and host names.
fn make_root(root: &Path) {
    let script = r#"
        mount -t tmpfs -o mode=755 pod "$0"
        for directory in lib lib32 lib64 libx32; do
            if [ -L "/$directory" ]; then
                cp -P "/$directory" "$0/"
            elif [ -d "/$directory" ]; then
                mkdir "$0/$directory" && mount --rbind "/$directory" "$0/$directory"
            fi
        done
        mkdir -p "$0/usr" "$0/bin" "$0/proc" "$0/etc"
        for directory in lib lib32 lib64 libx32; do
            if [ -d "/usr/$directory" ] && [ ! -L "/usr/$directory" ]; then
                mkdir "$0/usr/$directory" && mount --rbind "/usr/$directory" "$0/usr/$directory"
            fi
        done
        if [ -e /etc/ld.so.cache ]; then cp /etc/ld.so.cache "$0/etc/"; fi
        mount --rbind /proc "$0/proc"
        touch "$0/bin/ratelimit" && mount --bind "$1" "$0/bin/ratelimit"
        echo "hosts: files" > "$0/etc/nsswitch.conf"
    "#;
    shell(script, &[root, Path::new(env!("CARGO_BIN_EXE_weir"))]);
    let hosts = format!("127.0.0.1 localhost envoy-gateway {REDIS_HOST}\n");
    fs::write(root.join("etc/hosts"), hosts).expect("a file");
}

fn shell(script: &str, arguments: &[&Path]) {
    let output =
        Command::new("sh").args(["-ec", script]).args(arguments).output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
