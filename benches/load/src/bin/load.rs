//! A load generator for Envoy's rate-limit service that costs much less than the server it
//! loads: calls are copied from a template, responses are read only as far as their decision, and
//! a whole batch of calls is one `write`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use load::connection::Connection;
use load::cpu::Snapshot;
use load::frames::Call;
use load::message::{PATH, Template};
use load::reconnect;
use load::report::report;
use load::socket::{TlsClient, authority};
use load::worker::{Keys, Schedule, Tally, Worker};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// The headers that Envoy sends in addition to those of every gRPC client.
const ENVOY_HEADERS: [(&str, &str); 4] = [
    ("grpc-timeout", "20m"),
    ("x-envoy-internal", "true"),
    ("x-forwarded-for", "10.1.2.3"),
    ("x-envoy-expected-rq-timeout-ms", "20"),
];

#[derive(Parser)]
#[command(version, about)]
struct Args {
    /// `http://host:port`, `host:port` or `unix:/path/to/socket`.
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    addr: String,
    /// Connect by TLS and trust the certificates of this PEM file.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Open a connection for each call, one after the other, from the start on; latency counts from
    /// the connect.
    #[arg(long, conflicts_with = "rate")]
    reconnect: bool,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Calls in flight on each connection (maximum with --rate).
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Threads among which the connections are divided.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How long to measure, after the warm-up.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Stop after this many calls in total (without the warm-up) if that is sooner.
    #[arg(long)]
    requests: Option<u64>,
    /// Duration of the warm-up before the measurement.
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    #[arg(long, default_value = "bench")]
    domain: String,
    /// `key=value,key2=value2`, once for each descriptor; `{N}` in a value
    /// becomes the number of the key, padded with zeros.
    #[arg(long = "descriptor", default_value = "user=u{N}")]
    descriptors: Vec<String>,
    /// Number of keys.
    #[arg(long, default_value_t = 1)]
    keys: u64,
    /// Use the keys in order instead of at random.
    #[arg(long)]
    sequential: bool,
    /// `hits_addend` of every call; 0 leaves it out.
    #[arg(long, default_value_t = 0)]
    hits_addend: u64,
    /// Open loop: total calls per second, whether or not responses keep up;
    /// latency counts from when a call was due.
    #[arg(long)]
    rate: Option<f64>,
    /// An additional request header, `name: value` (such as `grpc-timeout: 20m`).
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Send the headers that Envoy adds.
    #[arg(long)]
    envoy_headers: bool,
    /// Processes for which to print the CPU time per call, each `PID` or `name=PID`.
    #[arg(long = "server-pid")]
    server_pids: Vec<String>,
    /// Decode response headers and print those of the first failed call.
    #[arg(long)]
    decode_headers: bool,
    /// Exit with 0 even if calls failed.
    #[arg(long)]
    allow_errors: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.keys > 0 && args.connections > 0 && args.concurrency > 0, "a count of zero");
    ensure!(args.rate.is_none_or(|rate| rate > 0.0), "--rate must be above 0");
    let pids = args.server_pids.iter().map(|text| parse_pid(text)).collect::<Result<Vec<_>>>()?;
    let mut headers =
        args.headers.iter().map(|text| parse_header(text)).collect::<Result<Vec<_>>>()?;
    if args.envoy_headers {
        headers.extend(ENVOY_HEADERS.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let template = Template::new(&args.domain, &args.descriptors, args.hits_addend, args.keys)?;
    let call = Call::new(authority(&args.addr), PATH, &headers, &template)?;

    let tls = args.tls_ca.as_deref().map(TlsClient::new).transpose()?;
    if args.reconnect {
        let keys = Keys::Random { keys: args.keys, rng: SmallRng::from_os_rng() };
        let stop = Instant::now() + Duration::from_secs_f64(args.seconds);
        let max_calls = args.requests.unwrap_or(u64::MAX);
        let before = Snapshot::take(&pids)?;
        let tally = reconnect::run(&args.addr, tls.as_ref(), &call, keys, max_calls, stop)?;
        return finish(&args, &pids, &tally, &before);
    }

    let threads = args.threads.clamp(1, args.connections);
    let mut shares: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
    for i in 0..args.connections {
        let connection =
            Connection::open(&args.addr, tls.as_ref(), args.concurrency, args.decode_headers)?;
        shares[i % threads].push(connection);
    }

    // Time for the threads to start.
    let start = Instant::now() + Duration::from_millis(5);
    let measure = start + Duration::from_secs_f64(args.warmup);
    let stop = measure + Duration::from_secs_f64(args.seconds);
    let schedule = Schedule { start, measure, stop };
    let interval = args.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    let mut handles = Vec::new();
    for (i, connections) in shares.into_iter().enumerate() {
        let keys = match args.sequential {
            true => Keys::Sequential { keys: args.keys, next: i as u64, step: threads as u64 },
            false => Keys::Random { keys: args.keys, rng: SmallRng::from_os_rng() },
        };
        let worker = Worker {
            connections,
            call: call.clone(),
            keys,
            schedule,
            pace: interval.map(|each| (each * i as u32, each * threads as u32)),
            max_calls: args.requests.map_or(u64::MAX, |n| n.div_ceil(threads as u64)),
        };
        handles.push(std::thread::spawn(|| worker.run()));
    }

    std::thread::sleep(measure.saturating_duration_since(Instant::now()));
    let before = Snapshot::take(&pids)?;
    let mut tally = Tally::new()?;
    for handle in handles {
        match handle.join() {
            Ok(result) => tally.add(result?)?,
            Err(_) => bail!("a thread panicked"),
        }
    }
    finish(&args, &pids, &tally, &before)
}

/// Prints the report of a run that ends now.
fn finish(args: &Args, pids: &[(String, u32)], tally: &Tally, before: &Snapshot) -> Result<()> {
    let after = Snapshot::take(pids)?;
    report(args.json, pids, tally, before, &after)?;
    ensure!(tally.errors == 0 || args.allow_errors, "{} calls failed", tally.errors);
    Ok(())
}

fn parse_pid(text: &str) -> Result<(String, u32)> {
    let (name, pid) = text.split_once('=').unwrap_or(("server", text));
    Ok((name.to_owned(), pid.parse().with_context(|| format!("--server-pid {text}"))?))
}

fn parse_header(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once(':').with_context(|| format!("--header {text:?}"))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}
