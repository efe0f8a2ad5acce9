//! Clients that try to use more than their share of a rate-limit service, each in one way.

mod headers;
mod idle;
mod raw;
mod resets;
mod slow;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use load::frames::Call;
use load::message::{PATH, Template};

#[derive(Parser)]
#[command(version, about)]
struct Args {
    /// `host:port` of the server.
    #[arg(long, default_value = "127.0.0.1:8081")]
    addr: String,
    /// How long to run.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    #[arg(long, default_value = "bench")]
    domain: String,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Many connections without requests.
    Idle {
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
    },
    /// Calls whose responses are never read: half of the connections leave them in the socket, the
    /// other half do not open the flow-control window.
    Slow {
        #[arg(long, default_value_t = 100)]
        connections: usize,
    },
    /// Calls with far too large headers, each on a connection of its own.
    Headers {
        /// Bytes of headers per call.
        #[arg(long, default_value_t = 256 * 1024)]
        size: usize,
        /// Calls per second.
        #[arg(long, default_value_t = 500.0)]
        rate: f64,
    },
    /// Calls that are reset immediately.
    Resets {
        #[arg(long, default_value_t = 4)]
        connections: usize,
        /// Total resets per second.
        #[arg(long, default_value_t = 50_000.0)]
        rate: f64,
    },
}

/// The server, the call to send, and the start and end of the run.
struct Target {
    addr: String,
    call: Call,
    start: Instant,
    stop: Instant,
}

impl Target {
    fn over(&self) -> bool {
        Instant::now() >= self.stop
    }

    /// Returns the number of events due by now at `rate` per second.
    fn due(&self, rate: f64) -> u64 {
        (self.start.elapsed().as_secs_f64() * rate) as u64
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let template = Template::new(&args.domain, &["user=u{N}".to_owned()], 0, 1000)?;
    let call = Call::new(&args.addr, PATH, &[], &template)?;
    let start = Instant::now();
    let stop = start + Duration::from_secs_f64(args.seconds);
    let target = Target { addr: args.addr, call, start, stop };
    // The result is printed as one line of JSON.
    let report = match args.mode {
        Mode::Idle { connections } => {
            allow_files(connections as u64 + 50)?;
            idle::run(&target, connections)?
        }
        Mode::Slow { connections } => slow::run(&target, connections)?,
        Mode::Headers { size, rate } => headers::run(&target, size, rate)?,
        Mode::Resets { connections, rate } => resets::run(&target, connections, rate)?,
    };
    println!("{report}");
    Ok(())
}

fn allow_files(wanted: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    ensure!(maximum.is_none_or(|maximum| maximum >= wanted), "{wanted} open files are not allowed");
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
        .with_context(|| format!("allow {wanted} open files"))
}
