//! Metrics of the process: build and start; CPU, memory and file descriptors, named as by Prometheus' client libraries.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};

metric_families! {
    BUILD_INFO: gauge("build_info", &["version", "commit"])
        = "The version of the program and its commit, as labels of a 1";
    START_TIME: gauge("start_time_seconds", &[]) = "Time of the start, in seconds since the Unix epoch";
    CPU: counter("process_cpu_seconds", &[]) = "CPU time spent, of user and system";
    RESIDENT: gauge("process_resident_memory_bytes", &[]) = "Resident memory";
    VIRTUAL: gauge("process_virtual_memory_bytes", &[]) = "Virtual memory";
    OPEN_FDS: gauge("process_open_fds", &[]) = "Open file descriptors";
    MAX_FDS: gauge("process_max_fds", &[]) = "Open file descriptors that the system allows";
    PROCESS_START_TIME: gauge("process_start_time_seconds", &[])
        = "Time of the start of the process, in seconds since the Unix epoch";
}

#[derive(Debug)]
pub struct ProcessMetrics {
    started: f64,
    /// The version of the program, and the commit that it was built from.
    build: [&'static str; 2],
}

impl ProcessMetrics {
    /// Takes the time now as that of the start. `version` and `commit` are those of the program.
    #[expect(clippy::disallowed_methods, reason = "only shown")]
    pub fn new(version: &'static str, commit: &'static str) -> ProcessMetrics {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ProcessMetrics { started: started.as_secs_f64(), build: [version, commit] }
    }
}

impl MetricSource for ProcessMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.family(BUILD_INFO);
        let [version, commit] = self.build;
        sink.sample(&[("version", version), ("commit", commit)], SampleValue::Gauge(1.0));
        sink.gauge(START_TIME, self.started);

        let stat = Stat::read().unwrap_or_default();
        sink.family(CPU.standard());
        sink.sample(&[], SampleValue::FloatCounter(stat.cpu_seconds));
        sink.gauge(RESIDENT.standard(), stat.resident_bytes);
        sink.gauge(VIRTUAL.standard(), stat.virtual_bytes);
        // One of them is that of the directory itself.
        let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
        sink.gauge(OPEN_FDS.standard(), open.saturating_sub(1) as f64);
        let max = getrlimit(Resource::Nofile).current;
        sink.gauge(MAX_FDS.standard(), max.map_or(f64::INFINITY, |max| max as f64));
        sink.gauge(PROCESS_START_TIME.standard(), start_time(&stat).unwrap_or(self.started));
    }
}

/// What `/proc/self/stat` reports.
#[derive(Debug, Default, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
    /// Seconds from the start of the system to that of the process.
    started_after_boot: f64,
}

impl Stat {
    fn read() -> Option<Stat> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        Stat::parse(&text, clock_ticks_per_second() as f64, page_size() as f64)
    }

    /// Parses the file, whose fields proc(5) numbers from 1.
    fn parse(text: &str, ticks: f64, page: f64) -> Option<Stat> {
        // The second field is the name of the program, in parentheses; it may contain anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            started_after_boot: field(22)? / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page,
        })
    }
}

/// The start of the process, in seconds since the Unix epoch.
fn start_time(stat: &Stat) -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(booted + stat.started_after_boot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_common::metrics::MergedFamilies;

    #[test]
    fn the_fields_of_the_process_are_found_after_any_name() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 1000 40960 5 \
                    18446744073709551615";
        let wanted = Stat {
            cpu_seconds: 2.0,
            started_after_boot: 10.0,
            virtual_bytes: 40_960.0,
            resident_bytes: 20_480.0,
        };
        assert_eq!(Stat::parse(text, 100.0, 4_096.0), Some(wanted));
        assert_eq!(Stat::parse("7 (a) S 1", 100.0, 4_096.0), None);
        assert_eq!(Stat::parse("", 100.0, 4_096.0), None);
    }

    #[test]
    fn the_system_reports_this_process() {
        let metrics = ProcessMetrics::new("1.2.3", "abc");
        let mut families = MergedFamilies::default();
        metrics.collect(&mut families);
        let value = |name: &str| {
            let lines = families.lines();
            let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{name} [] ")));
            line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{lines:?}"))
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        // btime is rounded to seconds and moves with the clock.
        assert!(value("process_start_time_seconds") <= value("start_time_seconds") + 5.0);
    }
}
