//! Terminals in which commands are pasted: servers run beside the commands that follow them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// How long to wait for anything before the test fails: machines may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The terminals of one run. Dropping it stops the servers.
pub struct Session {
    directory: PathBuf,
    path: String,
    output: TempDir,
    servers: Vec<Server>,
}

struct Server {
    shell: Child,
    output: PathBuf,
}

impl Session {
    /// Runs commands in `directory`, with the programs in `tools` before all others. Waits until
    /// nothing else uses `ports`.
    pub fn new(directory: &Path, tools: &Path, ports: &[u16]) -> Session {
        wait_until_free(ports);
        let path = std::env::var("PATH").unwrap();
        Session {
            directory: directory.into(),
            path: format!("{}:{path}", tools.display()),
            output: tempfile::tempdir().unwrap(),
            servers: Vec::new(),
        }
    }

    /// Runs a block to its end and returns what it printed to its standard output.
    pub fn run(&mut self, commands: &str) -> Result<String, String> {
        for port in ports_of(commands) {
            wait(&format!("nothing listens on port {port}"), || {
                self.check_servers()?;
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok())
            })?;
        }
        let ran = self.bash(&format!("set -e\n{commands}")).output().unwrap();
        let printed = String::from_utf8_lossy(&ran.stdout).replace("\r\n", "\n");
        match ran.status.success() {
            true => Ok(printed),
            false => {
                Err(format!("{}: {printed}{}", ran.status, String::from_utf8_lossy(&ran.stderr)))
            }
        }
    }

    /// Starts a block that runs until it is stopped. Returns what it has printed once it has
    /// printed the last line of `shown`, and as many lines.
    pub fn start(&mut self, commands: &str, shown: &str) -> Result<String, String> {
        let output = self.output.path().join(self.servers.len().to_string());
        let file = File::create(&output).unwrap();
        let shell = self
            .bash(&format!("set -e\n{commands}"))
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0)
            .spawn()
            .unwrap();
        self.servers.push(Server { shell, output: output.clone() });
        let last = shown.lines().last().unwrap_or_default();
        wait(&format!("{last:?} was not printed"), || {
            self.check_servers()?;
            let printed = fs::read_to_string(&output).unwrap();
            let has_all = printed.matches('\n').count() >= shown.lines().count();
            Ok((has_all && printed.contains(last)).then_some(printed))
        })
    }

    /// Stops all servers, and waits until nothing else uses `ports`.
    pub fn stop_servers(&mut self, ports: &[u16]) {
        for server in &mut self.servers {
            server.signal(Signal::KILL);
            let _ = server.shell.wait();
        }
        self.servers.clear();
        wait_until_free(ports);
    }

    /// Stops the last server as Ctrl-C does, and waits until nothing uses `ports`. Returns what it printed.
    pub fn interrupt(&mut self, ports: &[u16]) -> Result<String, String> {
        let server = self.servers.last_mut().expect("a server");
        server.signal(Signal::INT);
        let status = wait("the server has not ended", || {
            server.shell.try_wait().map_err(|error| error.to_string())
        })?;
        let printed = fs::read_to_string(&server.output).unwrap();
        self.servers.pop();
        wait_until_free(ports);
        if status.success() { Ok(printed) } else { Err(format!("{status}: {printed}")) }
    }

    fn bash(&self, script: &str) -> Command {
        // A shell cannot trap what was ignored before, as `nohup` and the `&` of scripts do.
        let mut bash = Command::new("env");
        bash.args(["--default-signal", "bash", "-c", script]);
        bash.current_dir(&self.directory).stdin(Stdio::null());
        // Variables set for the test run must not change what the commands do.
        bash.env_clear().env("PATH", &self.path);
        bash
    }

    /// Fails where a server has ended by itself.
    fn check_servers(&mut self) -> Result<(), String> {
        for server in &mut self.servers {
            if let Some(status) = server.shell.try_wait().unwrap() {
                let printed = fs::read_to_string(&server.output).unwrap();
                return Err(format!("a server ended with {status} and printed:\n{printed}"));
            }
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop_servers(&[]);
    }
}

impl Server {
    /// Sends a signal to the shell and all that it has started.
    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.shell.id() as i32) {
            let _ = kill_process_group(group, signal);
        }
    }
}

fn wait_until_free(ports: &[u16]) {
    for &port in ports {
        // As weir does: on all addresses, also right after another server has closed the port.
        let free = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
        wait(&format!("port {port} is used by another program: stop it"), || Ok(free()))
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The ports of this machine that commands connect to.
fn ports_of(commands: &str) -> impl Iterator<Item = u16> {
    let after = |text: &'_ str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    commands.split("localhost:").skip(1).filter_map(after)
}

/// Polls until there is a value. Fails with `problem` after the timeout.
fn wait<T>(
    problem: &str,
    mut poll: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let start = Instant::now();
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        if start.elapsed() > TIMEOUT {
            return Err(format!("{problem} (waited for {TIMEOUT:?})"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
