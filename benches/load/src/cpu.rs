//! CPU time and memory of processes, from /proc.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

/// The CPU time of a process so far, and its memory now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub user_us: f64,
    pub system_us: f64,
    pub rss_kib: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat")?;
        let mut fields = fields.split_ascii_whitespace();
        let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        let mut ticks = |skip| -> Result<f64> {
            let field = fields.nth(skip).context("/proc/PID/stat is too short")?;
            Ok(field.parse::<f64>()? * tick_us)
        };
        // utime is field 14 of the line and stime field 15; 3 is the first here.
        let (user_us, system_us) = (ticks(11)?, ticks(0)?);
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss_kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
            .context("VmRSS")?;
        Ok(Self { user_us, system_us, rss_kib })
    }

    pub fn total_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

/// The busy time of each core so far.
fn cores_busy_us() -> Result<Vec<f64>> {
    let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/stat")?;
    let cores = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    cores
        .map(|line| {
            let ticks = line.split_ascii_whitespace().skip(1);
            let ticks = ticks.map(str::parse).collect::<Result<Vec<f64>, _>>()?;
            // user nice system idle iowait irq softirq steal; the guest fields are in user.
            let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|&i| ticks.get(i)).sum::<f64>();
            Ok(busy * tick_us)
        })
        .collect()
}

/// The CPU times of the servers, of this process and of each core at one moment.
pub struct Snapshot {
    pub at: Instant,
    pub servers: Vec<Usage>,
    pub client: Usage,
    pub cores_us: Vec<f64>,
}

impl Snapshot {
    pub fn take(pids: &[(String, u32)]) -> Result<Self> {
        let server = |(name, pid): &(String, u32)| {
            Usage::of(*pid).with_context(|| format!("process {name}"))
        };
        Ok(Self {
            at: Instant::now(),
            servers: pids.iter().map(server).collect::<Result<_>>()?,
            client: Usage::of(std::process::id())?,
            cores_us: cores_busy_us()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_these_cores_have_worked() {
        let snapshot = Snapshot::take(&[]).unwrap();
        assert!(snapshot.client.rss_kib > 0);
        assert!(!snapshot.cores_us.is_empty() && snapshot.cores_us.iter().all(|&us| us > 0.0));
    }
}
