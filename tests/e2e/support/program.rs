//! A program that runs until it is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wait_for;

/// A running program and its output so far. Killed when dropped; if the test failed, the output is
/// printed.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    child: Child,
    said: Arc<Mutex<String>>,
    /// Whether reading its output is paused, so that its pipes fill.
    paused: Arc<AtomicBool>,
    listeners: Vec<JoinHandle<()>>,
}

impl Program {
    pub fn start(name: &'static str, command: &mut Command) -> Program {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}: {command:?}"));
        let (said, paused) = Default::default();
        let listeners = vec![
            listen(child.stdout.take().expect("piped"), &said, &paused),
            listen(child.stderr.take().expect("piped"), &said, &paused),
        ];
        Program { name, child, said, paused, listeners }
    }

    /// Stops reading its output, or resumes.
    pub fn pause_reading(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits for the end of its output. Returns all of it.
    pub fn said_in_all(&mut self) -> String {
        for listener in self.listeners.drain(..) {
            listener.join().expect("reads to the end");
        }
        self.said()
    }

    /// Waits until its output contains `what`. Returns the rest of that line, or all output if the
    /// program ended without it.
    pub fn until_said(&mut self, what: &str) -> Result<String, String> {
        wait_for(&format!("{} prints {what:?}", self.name), || {
            let said = if self.runs() { self.said() } else { self.said_in_all() };
            let rest = said.lines().find_map(|line| Some(line.split_once(what)?.1.to_owned()));
            match rest {
                Some(rest) => Some(Ok(rest)),
                None => (!self.runs()).then(|| Err(self.said_in_all())),
            }
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `TERM`, `INT`, `HUP`, `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        // Every shell has a built-in `kill`.
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
        if signal == "STOP" {
            // On a busy machine, threads run on for a while.
            wait_for("all threads are stopped", || self.is_stopped().then_some(()));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        threads.map(|thread| thread.expect("a thread").path().join("stat")).all(|stat| {
            // The name of the thread is in parentheses, and its state behind it.
            fs::read_to_string(stat).is_ok_and(|stat| {
                stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
            })
        })
    }

    /// Waits until the program ends by itself.
    pub fn wait_until_ended(&mut self) -> ExitStatus {
        let name = self.name;
        wait_for(&format!("{name} ends"), || self.child.try_wait().expect("waits for its child"))
    }

    /// Returns the program's peak resident memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(status).expect("it runs, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes.and_then(|text| text.parse::<u64>().ok()).expect("a number of kB") << 10
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("waits for its child").is_none()
    }

    /// Returns the program's resident memory, in bytes.
    pub fn resident_bytes(&self) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("it runs, on Linux");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        kib.and_then(|kib| kib.trim().parse::<usize>().ok()).expect("a number") << 10
    }

    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("-- output of {}:\n{}--", self.name, self.said());
        }
    }
}

/// Collects output, line by line, until the program closes it.
fn listen(
    from: impl Read + Send + 'static,
    said: &Arc<Mutex<String>>,
    paused: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (said, paused) = (said.clone(), paused.clone());
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            while paused.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            let mut said = said.lock().unwrap();
            said.push_str(&String::from_utf8_lossy(&line));
            said.push('\n');
        }
    })
}
