//! Clients that a rate-limit service has to bear: each tries one way of taking more than its share.

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
    /// How long to go on.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    #[arg(long, default_value = "bench")]
    domain: String,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Many connections that ask for nothing.
    Idle {
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
    },
    /// Calls whose answers are never read: half of the connections leave them in the socket, the
    /// other half give no window to send them in.
    Slow {
        #[arg(long, default_value_t = 100)]
        connections: usize,
    },
    /// Calls with far too many header bytes, each on a connection of its own.
    Headers {
        /// Bytes of headers a call.
        #[arg(long, default_value_t = 256 * 1024)]
        size: usize,
        /// Calls a second.
        #[arg(long, default_value_t = 500.0)]
        rate: f64,
    },
    /// Calls that are reset at once.
    Resets {
        #[arg(long, default_value_t = 4)]
        connections: usize,
        /// Resets a second in all.
        #[arg(long, default_value_t = 50_000.0)]
        rate: f64,
    },
}

/// Whom to bother, with what and until when.
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

    /// How many events at `rate` a second are due by now.
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
    // What it did goes out as one line of JSON.
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
