//! The real binary on free ports, with a directory of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::program::Program;
use super::{http, wait_for};

/// What a request to the store may take, unless a test is about times: a busy machine stalls for longer than the defaults.
pub const STORE_TIMES: [&str; 2] = ["WEIR__STORE__BUDGET", "WEIR__STORE__REDIS__SLOW_AFTER"];
pub const PATIENT: &str = "10s";

/// Files, environment and arguments of a service to start.
#[derive(Debug)]
pub struct Setup {
    dir: TempDir,
    program: PathBuf,
    command: Vec<String>,
    env: Vec<(String, String)>,
    /// The arguments of `ulimit`.
    limit: Option<String>,
}

/// A running service.
#[derive(Debug)]
pub struct Weir {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub debug: SocketAddr,
    program: Program,
    dir: TempDir,
}

/// `weir serve` with these rules, and defaults for everything else.
pub fn serving(rules: &str) -> Setup {
    let setup = Setup::new().file("rules.yaml", rules).arg("serve").arg("--rules");
    let path = setup.path("rules.yaml");
    setup.arg(path.to_str().expect("text"))
}

impl Setup {
    pub fn new() -> Setup {
        Setup {
            dir: tempfile::tempdir().expect("a directory"),
            program: env!("CARGO_BIN_EXE_weir").into(),
            command: Vec::new(),
            env: Vec::new(),
            limit: None,
        }
    }

    /// Returns a path in the service's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file into the service's directory.
    pub fn file(self, name: &str, text: &str) -> Setup {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("is below")).expect("a directory");
        fs::write(path, text).expect("a file");
        self
    }

    pub fn arg(mut self, arg: &str) -> Setup {
        self.command.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Setup {
        let value = value.as_ref().to_str().expect("text").to_owned();
        self.env.push((name.to_owned(), value));
        self
    }

    /// Sets both the budget of requests to the store and the threshold of connections to Redis.
    pub fn store_times(mut self, time: &str) -> Setup {
        for name in STORE_TIMES {
            self = self.env(name, time);
        }
        self
    }

    /// Lets requests to the store take what they may by default.
    pub fn default_store_times(self) -> Setup {
        self.env("WEIR__STORE__BUDGET", "auto").env("WEIR__STORE__REDIS__SLOW_AFTER", "20ms")
    }

    /// Limits the number of open files.
    pub fn max_files(mut self, files: usize) -> Setup {
        self.limit = Some(format!("-n {files}"));
        self
    }

    /// Limits the address space.
    pub fn max_address_space(mut self, kib: usize) -> Setup {
        self.limit = Some(format!("-v {kib}"));
        self
    }

    /// Limits the size of files, in 512 bytes. Beyond it writes fail, and end no process.
    pub fn max_file_size(mut self, blocks: usize) -> Setup {
        self.limit = Some(format!("-f {blocks} && trap '' XFSZ"));
        self
    }

    /// Runs another build of the binary.
    pub fn build(mut self, program: PathBuf) -> Setup {
        self.program = program;
        self
    }

    /// Runs a copy of the binary under another name.
    pub fn named(mut self, name: &str) -> Setup {
        let copy = self.path(name);
        fs::copy(&self.program, &copy).expect("a copy");
        self.program = copy;
        self
    }

    /// Starts it as it is, without waiting for anything.
    pub fn spawn(&self) -> Program {
        let mut command = match &self.limit {
            None => Command::new(&self.program),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
                shell.arg(&self.program);
                shell
            }
        };
        command.args(&self.command).current_dir(self.dir.path());
        // Variables set for the test run must not change the result.
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        Program::start("weir", &mut command)
    }

    /// Runs it to its end. Returns its exit status and its output.
    pub fn run(self) -> (ExitStatus, String) {
        let mut program = self.spawn();
        (program.wait_until_ended(), program.said_in_all())
    }

    /// Starts the service on free ports and waits until it is healthy.
    pub fn start(self) -> Weir {
        self.on_free_ports().start_as_it_is()
    }

    /// Starts the service on free ports and waits until it listens.
    pub fn start_unhealthy(self) -> Weir {
        self.on_free_ports()
            .try_listen()
            .unwrap_or_else(|said| panic!("weir ended with the output:\n{said}"))
    }

    fn on_free_ports(mut self) -> Setup {
        for place in ["--grpc-address", "--http-address", "--debug-address"] {
            self = self.arg(place).arg("127.0.0.1:0");
        }
        self
    }

    /// Starts the service without setting its addresses, and waits until it is healthy.
    pub fn start_as_it_is(self) -> Weir {
        self.try_start().unwrap_or_else(|said| panic!("weir ended with the output:\n{said}"))
    }

    /// As [`start_as_it_is`](Self::start_as_it_is); returns the output if the service ended instead.
    pub fn try_start(self) -> Result<Weir, String> {
        let weir = self.try_listen()?;
        wait_for("weir is healthy", || weir.is_healthy().then_some(()));
        Ok(weir)
    }

    fn try_listen(mut self) -> Result<Weir, String> {
        for name in STORE_TIMES {
            if !self.env.iter().any(|(set, _)| set == name) {
                self = self.env(name, PATIENT);
            }
        }
        let mut program = self.spawn();
        let mut listens = |what: &str| -> Result<SocketAddr, String> {
            let rest = program.until_said(&format!("Listening for {what} on '"))?;
            // In JSON, more follows on the line.
            let address = rest.split('\'').next().unwrap_or_default();
            if address.starts_with('/') {
                // The path of a Unix socket.
                return Ok((Ipv4Addr::UNSPECIFIED, 0).into());
            }
            if let Some(port) = address.strip_prefix(':') {
                // All addresses.
                return Ok((Ipv4Addr::UNSPECIFIED, port.parse().expect("a port")).into());
            }
            Ok(address.parse().unwrap_or_else(|e| panic!("{rest}: {e}")))
        };
        let (grpc, http, debug) = (listens("gRPC")?, listens("HTTP")?, listens("debug")?);
        Ok(Weir { grpc, http, debug, program, dir: self.dir })
    }
}

impl Weir {
    /// Returns a path in the service's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn is_healthy(&self) -> bool {
        let answer = http::ask(self.http, "GET", "/healthcheck", &[], b"");
        answer.is_ok_and(|answer| answer.status == 200)
    }

    pub fn said(&self) -> String {
        self.program.said()
    }

    /// Waits until its output contains `what`: lines are written after what they are about.
    pub fn has_said(&self, what: &str) {
        wait_for(what, || self.said().contains(what).then_some(()));
    }

    /// Waits until its output contains `what`. Returns the rest of that line.
    pub fn until_said(&mut self, what: &str) -> Result<String, String> {
        self.program.until_said(what)
    }

    /// Waits for the end of its output. Returns all of it.
    pub fn said_in_all(&mut self) -> String {
        self.program.said_in_all()
    }

    /// Stops reading its log, or resumes.
    pub fn pause_reading(&self, paused: bool) {
        self.program.pause_reading(paused);
    }

    /// Returns weir's peak resident memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.program.peak_memory()
    }

    /// Returns the number of its process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub fn signal(&self, signal: &str) {
        self.program.signal(signal);
    }

    /// Waits until its socket has all that clients have written to the gRPC port. The kernel holds some of it back until
    /// earlier bytes are acknowledged, which may take 40 ms.
    pub fn wait_until_delivered(&self) {
        let to = format!("0100007F:{:04X}", self.grpc.port());
        let is_delivered = |connection: &str| {
            let fields: Vec<&str> = connection.split_whitespace().collect();
            // The remote address, and the lengths of the queues to it and from it.
            fields[2] != to || fields[4].starts_with("00000000:")
        };
        wait_for("all is delivered", || {
            let connections = fs::read_to_string("/proc/net/tcp").expect("it runs on Linux");
            connections.lines().skip(1).all(is_delivered).then_some(())
        });
    }

    /// Waits until the process has ended. A `#[tokio::test]` needs `flavor = "multi_thread"` for it. On one thread, its
    /// clients close no connection meanwhile, and weir waits `clients.timeout` for them.
    pub fn wait_until_ended(&mut self) -> ExitStatus {
        self.program.wait_until_ended()
    }

    pub fn runs(&mut self) -> bool {
        self.program.runs()
    }

    /// Returns weir's resident memory, in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.program.resident_bytes()
    }

    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Returns the problems of `/status`, each by its kind.
    pub fn problems(&self) -> Vec<(String, serde_json::Value)> {
        let status = http::get(self.debug, "/status").json();
        let problems = status["problems"].as_array().expect("a list").clone();
        let kind =
            |problem: &serde_json::Value| problem["kind"].as_str().expect("a kind").to_owned();
        problems.into_iter().map(|problem| (kind(&problem), problem)).collect()
    }

    /// Returns a metric's value at `/metrics`, by its name with labels.
    pub fn metric(&self, name: &str) -> u64 {
        let text = http::get(self.http, "/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}
