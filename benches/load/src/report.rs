//! The report of a run, as text or JSON.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cpu::Snapshot;
use crate::worker::Tally;

pub fn report(
    as_json: bool,
    pids: &[(String, u32)],
    tally: &Tally,
    before: &Snapshot,
    after: &Snapshot,
) -> Result<()> {
    let calls = tally.calls();
    ensure!(calls > 0, "no call ended while measuring");
    let seconds = (after.at - before.at).as_secs_f64();
    let (servers, ours) = processes(pids, calls, before, after);
    let client = after.client.total_us() - before.client.total_us();
    // Other processes that ran at the same time: the noise of this measurement.
    let busy: f64 = after.cores_us.iter().sum::<f64>() - before.cores_us.iter().sum::<f64>();
    let cores: Vec<f64> = before
        .cores_us
        .iter()
        .zip(&after.cores_us)
        .map(|(before, after)| (after - before) / 1e6 / seconds)
        .collect();
    let quantile = |q| tally.latency_ns.value_at_quantile(q) as f64 / 1e3;
    let report = json!({
        "seconds": seconds,
        "calls": calls,
        "calls_per_second": calls as f64 / seconds,
        "ok": tally.ok,
        "over_limit": tally.over_limit,
        "errors": tally.errors,
        "first_error": tally.first_error,
        "unsent": tally.unsent,
        "latency_us": {
            "p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99),
            "p999": quantile(0.999), "max": tally.latency_ns.max() as f64 / 1e3,
        },
        "servers": servers,
        "client_cpu_us_per_call": client / calls as f64,
        "client_rss_kib": after.client.rss_kib,
        "cores_busy": cores,
        "foreign_cores": (busy - ours - client).max(0.0) / 1e6 / seconds,
    });
    if as_json {
        println!("{report}")
    } else {
        print_text(&report)
    }
    Ok(())
}

/// The CPU time of each server, and of all servers.
fn processes(
    pids: &[(String, u32)],
    calls: u64,
    before: &Snapshot,
    after: &Snapshot,
) -> (Vec<Value>, f64) {
    let per_call = |us: f64| us / calls as f64;
    let seconds = (after.at - before.at).as_secs_f64();
    let mut all = 0.0;
    let mut servers = Vec::new();
    for ((name, pid), (a, b)) in pids.iter().zip(before.servers.iter().zip(&after.servers)) {
        let total = b.total_us() - a.total_us();
        all += total;
        servers.push(json!({
            "name": name,
            "pid": pid,
            "cpu_us_per_call": per_call(total),
            "user_us_per_call": per_call(b.user_us - a.user_us),
            "system_us_per_call": per_call(b.system_us - a.system_us),
            "cores": total / 1e6 / seconds,
            "rss_kib": b.rss_kib,
        }));
    }
    (servers, all)
}

fn print_text(report: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let field = |name: &str| number(&report[name]);
    println!(
        "{} calls in {:.2} s: {:.0}/s",
        report["calls"],
        field("seconds"),
        field("calls_per_second")
    );
    println!(
        "OK {}  OVER_LIMIT {}  errors {}",
        report["ok"], report["over_limit"], report["errors"]
    );
    if field("unsent") > 0.0 {
        println!("due but not sent: {}", report["unsent"]);
    }
    if let Some(error) = report["first_error"].as_str() {
        println!("the first failed call ended with: {error}");
    }
    print!("latency µs:");
    for (name, title) in
        [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max")]
    {
        print!("  {title} {:.0}", number(&report["latency_us"][name]));
    }
    println!();
    for server in report["servers"].as_array().into_iter().flatten() {
        println!(
            "{} (pid {}): {:.2} µs CPU per call (user {:.2}, system {:.2}), {:.2} cores, RSS {:.1} MiB",
            server["name"].as_str().unwrap_or_default(),
            server["pid"],
            number(&server["cpu_us_per_call"]),
            number(&server["user_us_per_call"]),
            number(&server["system_us_per_call"]),
            number(&server["cores"]),
            number(&server["rss_kib"]) / 1024.0,
        );
    }
    let cores: Vec<String> = report["cores_busy"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|core| format!("{:.0} %", number(core) * 100.0))
        .collect();
    println!(
        "this client: {:.2} µs CPU per call, RSS {:.1} MiB; cores busy: {}, with other processes on {:.2}",
        field("client_cpu_us_per_call"),
        field("client_rss_kib") / 1024.0,
        cores.join(" "),
        field("foreign_cores"),
    );
}
