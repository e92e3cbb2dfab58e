//! The cost of a process, as the operating system accounts for it.
//!
//! CPU time is the sum over all threads and child processes of the scheduler's figures, in nanoseconds.
//! Threads that have ended are missing there, so the clock ticks that the kernel sums for the whole process
//! are kept as a second witness.

use std::fs;
use std::io;

/// Nanoseconds of a clock tick: `USER_HZ` is 100 on every Linux that matters here.
const TICK: u64 = 10_000_000;

/// CPU time since a process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processor {
    /// Nanoseconds of its threads, and those of its children, on a processor.
    pub scheduled: u64,
    /// The same from the process's own ticks: coarser, but complete.
    pub ticked: u64,
}

impl Processor {
    /// Returns the CPU time of process `pid` and its descendants.
    pub fn of(pid: u32) -> io::Result<Processor> {
        let own = Stat::of(pid)?;
        let mut total = Processor {
            scheduled: scheduled(pid)? + own.waited * TICK,
            ticked: (own.ticks + own.waited) * TICK,
        };
        for child in children(pid)? {
            // A child that ended meanwhile is in the parent's `waited`, now or next time.
            if let Ok(stat) = Stat::of(child) {
                total.scheduled += scheduled(child).unwrap_or(0);
                total.ticked += stat.ticks * TICK;
            }
        }
        Ok(total)
    }

    /// Returns the CPU time since `earlier`.
    pub fn since(self, earlier: Processor) -> Processor {
        Processor {
            scheduled: self.scheduled.saturating_sub(earlier.scheduled),
            ticked: self.ticked.saturating_sub(earlier.ticked),
        }
    }
}

/// The part of `/proc/PID/stat` that matters here.
struct Stat {
    parent: u32,
    /// User and system time of all threads, including ended ones.
    ticks: u64,
    /// The same, of children that were waited for.
    waited: u64,
}

impl Stat {
    fn of(pid: u32) -> io::Result<Stat> {
        let path = format!("/proc/{pid}/stat");
        Stat::parse(&fs::read_to_string(&path)?).ok_or_else(|| unexpected(&path))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in parentheses, and may contain anything.
        let rest = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1; the state, field 3, is the first here.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            parent: u32::try_from(field(4)?).ok()?,
            ticks: field(14)? + field(15)?,
            waited: field(16)? + field(17)?,
        })
    }
}

fn scheduled(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("schedstat");
        // A thread may end between the listing and the reading.
        if let Ok(text) = fs::read_to_string(&path) {
            sum += parse_schedstat(&text).ok_or_else(|| unexpected(&path.display().to_string()))?;
        }
    }
    Ok(sum)
}

/// Returns the CPU time of one thread of a process, in nanoseconds.
pub fn of_thread(pid: u32, thread: libc::pid_t) -> io::Result<u64> {
    let path = format!("/proc/{pid}/task/{thread}/schedstat");
    parse_schedstat(&fs::read_to_string(&path)?).ok_or_else(|| unexpected(&path))
}

/// Returns the first of three numbers: nanoseconds on a processor.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns all descendants, found by the parent of every process: `children` files are a kernel option.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok())
            && let Ok(stat) = Stat::of(process)
        {
            parents.push((process, stat.parent));
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let born = parents
            .iter()
            .filter(|(_, of)| *of == parent)
            .map(|(child, _)| *child);
        found.extend(born);
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

/// The memory of a process, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident.
    pub resident: u64,
    /// Resident, with shared pages counted proportionally.
    pub proportional: u64,
}

impl Memory {
    /// Returns the memory of process `pid`, without children.
    pub fn of(pid: u32) -> io::Result<Memory> {
        let path = format!("/proc/{pid}/smaps_rollup");
        Memory::parse(&fs::read_to_string(&path)?).ok_or_else(|| unexpected(&path))
    }

    fn parse(text: &str) -> Option<Memory> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_suffix("kB")?.trim().parse().ok()
        };
        Some(Memory {
            resident: field("Rss:")?,
            proportional: field("Pss:")?,
        })
    }
}

/// Returns the nanoseconds for which processor `core` has been busy since boot, for any process; counted in
/// ticks.
pub fn core_busy(core: usize) -> io::Result<u64> {
    let path = "/proc/stat";
    parse_core(&fs::read_to_string(path)?, core).ok_or_else(|| unexpected(path))
}

/// Returns the nanoseconds for which processor `core` has been idle since boot. The kernel takes idle time
/// from clocks, while it samples busy time at each tick; both are reported in ticks.
pub fn core_idle(core: usize) -> io::Result<u64> {
    let path = "/proc/stat";
    let ticks = core_ticks(&fs::read_to_string(path)?, core).ok_or_else(|| unexpected(path))?;
    Ok((ticks[IDLE] + ticks[IDLE + 1]) * TICK)
}

/// Returns the idle time of all processors together, and their number.
pub fn machine_idle() -> io::Result<(u64, u64)> {
    let path = "/proc/stat";
    let text = fs::read_to_string(path)?;
    let each = (0..).map_while(|core| core_ticks(&text, core));
    let idle = each.map(|ticks| (ticks[IDLE] + ticks[IDLE + 1]) * TICK);
    Ok(idle.fold((0, 0), |(sum, count), idle| (sum + idle, count + 1)))
}

fn parse_core(text: &str, core: usize) -> Option<u64> {
    let ticks = core_ticks(text, core)?;
    // All but idle and iowait. Guest time is part of user.
    let sum: u64 = ticks.iter().sum();
    Some((sum - ticks[IDLE] - ticks[IDLE + 1]) * TICK)
}

/// The index of `idle` in the result of [`core_ticks`]; `iowait` follows.
const IDLE: usize = 3;

/// Returns user nice system idle iowait irq softirq steal.
fn core_ticks(text: &str, core: usize) -> Option<[u64; 8]> {
    let name = format!("cpu{core}");
    let line = text
        .lines()
        .find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    ticks.get(..8)?.try_into().ok()
}

fn unexpected(path: &str) -> io::Error {
    io::Error::other(format!("{path} is not as proc(5) describes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn stat_is_read_past_any_program_name() {
        let text = "77 (a) R (b) S 12 77 77 0 -1 4194304 1 2 3 4 150 50 7 3 20 0 5 0 100 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.ticks, stat.waited), (12, 200, 10));
        assert!(Stat::parse("77 (a) S 12").is_none());
    }

    #[test]
    fn other_files_are_read_as_documented() {
        assert_eq!(parse_schedstat("123456 789 3\n"), Some(123_456));
        assert_eq!(parse_schedstat(""), None);
        let memory = "00-ff ---p 0 00:00 0 [rollup]\nRss:     1672 kB\nPss:      235 kB\nPss_Dirty: 112 kB\n";
        assert_eq!(
            Memory::parse(memory),
            Some(Memory {
                resident: 1672,
                proportional: 235
            })
        );
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 5 5 5 5 5 5 5 5 5 5\ncpu10 1 2 3 400 50 6 7 8 1 0\n";
        assert_eq!(parse_core(stat, 10), Some(27 * TICK));
        assert_eq!(parse_core(stat, 0), None);
        assert_eq!(core_ticks(stat, 10).map(|ticks| ticks[IDLE]), Some(400));
    }

    /// Compares the times of live and ended threads with a clock of the same process.
    #[test]
    fn work_is_accounted_to_the_process_that_did_it() {
        let own = std::process::id();
        let before = Processor::of(own).unwrap();
        let spin = |time: Duration| {
            let start = Instant::now();
            let thread = || thread_time();
            let used = thread();
            while thread() - used < time {
                assert!(start.elapsed() < Duration::from_secs(60));
            }
        };
        std::thread::spawn(move || spin(Duration::from_millis(150)))
            .join()
            .unwrap();
        spin(Duration::from_millis(150));
        let used = Processor::of(own).unwrap().since(before);
        assert!(used.scheduled >= 150_000_000, "live threads: {used:?}");
        assert!(used.ticked >= 280_000_000, "ended threads too: {used:?}");
        assert!(Memory::of(own).unwrap().resident > 100);
        assert!(core_busy(0).unwrap() > 0);
        let idle = core_idle(0).unwrap();
        let (of_all, processors) = machine_idle().unwrap();
        assert!(of_all >= idle && processors >= 1);
    }

    fn thread_time() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a timespec of ours.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    #[test]
    fn a_child_counts() {
        let child = std::process::Command::new("sleep").arg("30").spawn();
        let mut child = child.unwrap();
        let listed = children(std::process::id()).unwrap().contains(&child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed);
    }
}
