//! How much memory the process may have: the limit of its control group, which is a container's.

use std::fs;
use std::path::Path;

/// The mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// Version 1 reports about as much as an address can hold when there is no limit.
const UNLIMITED: usize = 1 << 62;

/// Returns the limit in bytes; `None` if there is none, or the kernel does not report it.
pub(crate) fn memory_limit() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_below(Path::new(ROOT), &groups)
}

/// Returns the lowest limit of these groups and their ancestors; `groups` as in `/proc/PID/cgroup`.
fn limit_below(root: &Path, groups: &str) -> Option<usize> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => lowest(root, path, "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                lowest(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// Returns the lowest limit from a group up to the root. In a container, the root is the container's own
/// group, and the path may be the host's, which does not exist here.
fn lowest(root: &Path, path: &str, file: &str) -> Option<usize> {
    let group = root.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let limits = groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok());
    limits.filter(|limit| *limit < UNLIMITED).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_on_the_way_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let limit = |groups: &str| limit_below(root.path(), groups);
        assert_eq!(limit("0::/pod/container\n"), None);
        write("pod/container/memory.max", "max\n");
        assert_eq!(limit("0::/pod/container\n"), None);
        write("pod/memory.max", "41943040\n");
        assert_eq!(limit("0::/pod/container\n"), Some(40 << 20));
        write("pod/container/memory.max", "20971520\n");
        assert_eq!(limit("0::/pod/container\n"), Some(20 << 20));
        // A container sees its own group as the root.
        write("memory.max", "10485760\n");
        assert_eq!(limit("0::/\n"), Some(10 << 20));
        assert_eq!(limit("0::/../elsewhere\n"), Some(10 << 20));

        write("memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
        let version_1 = "5:cpu,cpuacct:/docker\n4:memory:/docker\n";
        assert_eq!(limit(version_1), None);
        write("memory/memory.limit_in_bytes", "52428800\n");
        assert_eq!(limit(version_1), Some(50 << 20));
        assert_eq!(limit("nonsense\n"), None);
    }
}
