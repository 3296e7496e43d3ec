//! Process metrics, with the standard names of the Prometheus client libraries.

use std::fs;

use parking_lot::Mutex;
use prometheus::{Counter, Gauge, IntGauge, Registry};
use rustix::process::{Resource, getrlimit};

use super::register::register;

/// Ticks per second in `/proc`: 100 in every Linux ABI that the relay is built for.
const TICKS: f64 = 100.0;

/// The process families. Without `/proc` they stay at zero.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    cpu_seconds: Mutex<Counter>,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    open_files: IntGauge,
    most_files: IntGauge,
}

impl ProcessMetrics {
    /// Registers them. `started` is in seconds since 1970.
    pub(super) fn register(registry: &Registry, started: f64) -> Result<Self, prometheus::Error> {
        let start = family!(
            Gauge = "process_start_time_seconds",
            "When this process started, in seconds since 1970."
        )?;
        register(registry, start)?.set(started);
        let cpu_seconds = family!(
            Counter = "process_cpu_seconds_total",
            "Processor time of this process, in its own code and in the kernel."
        )?;
        let resident = family!(
            IntGauge = "process_resident_memory_bytes",
            "Memory of this process that is in the machine's."
        )?;
        let virtual_memory = family!(
            IntGauge = "process_virtual_memory_bytes",
            "Memory that this process has addresses for."
        )?;
        let threads = family!(IntGauge = "process_threads", "Threads of this process.")?;
        let open_files = family!(
            IntGauge = "process_open_fds",
            "Files, sockets and pipes that this process has open."
        )?;
        let most_files = family!(
            IntGauge = "process_max_fds",
            "How many of them it may have open."
        )?;
        Ok(Self {
            cpu_seconds: Mutex::new(register(registry, cpu_seconds)?),
            resident: register(registry, resident)?,
            virtual_memory: register(registry, virtual_memory)?,
            threads: register(registry, threads)?,
            open_files: register(registry, open_files)?,
            most_files: register(registry, most_files)?,
        })
    }

    /// Updates all of them.
    pub(super) fn refresh(&self) {
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            self.resident.set(1024 * number(&status, "VmRSS:"));
            self.virtual_memory.set(1024 * number(&status, "VmSize:"));
            self.threads.set(number(&status, "Threads:"));
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // One of them is the folder itself.
            let open = files.count().saturating_sub(1);
            self.open_files.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            self.most_files
                .set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
        let spent = fs::read_to_string("/proc/self/stat").ok();
        if let Some(spent) = spent.as_deref().and_then(processor_time) {
            // Under the lock: of two concurrent scrapes, one adds the difference.
            let counter = self.cpu_seconds.lock();
            counter.inc_by((spent - counter.get()).max(0.0));
        }
    }
}

/// Parses the number after `key` in lines such as `VmRSS:     1234 kB`.
fn number(text: &str, key: &str) -> i64 {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

/// Parses user and system time of `/proc/PID/stat` (proc(5): columns 14 and 15), in seconds.
fn processor_time(stat: &str) -> Option<f64> {
    // The name of the process, in brackets, may contain spaces and brackets.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut columns = behind.split_whitespace().skip(11);
    let mut ticks = || columns.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) as f64 / TICKS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn process_metrics_match_this_process() {
        let process = ProcessMetrics::register(&Registry::new(), 1.0).unwrap();
        process.refresh();
        assert!(process.resident.get() > 1 << 20);
        assert!(process.virtual_memory.get() >= process.resident.get());
        assert!(process.threads.get() >= 1);
        let before = process.open_files.get();
        assert!((3..process.most_files.get()).contains(&before));
        let _open: Vec<_> = (0..64)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        process.refresh();
        assert!(process.open_files.get() >= before + 32);
    }

    #[test]
    fn process_name_with_brackets_shifts_no_field() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 3 0 5 100 2";
        assert_eq!(processor_time(stat), Some(3.0));
        assert_eq!(processor_time("17"), None);
        assert_eq!(number("VmSize: 10 kB\nVmRSS:\t  7 kB\n", "VmRSS:"), 7);
        assert_eq!(number("", "VmRSS:"), 0);
    }
}
