//! Counts the CPUs that this process may use, for the default number of threads: its cgroup's quota, else the cores.
//!
//! `std::thread::available_parallelism` rounds a quota down, so that a quota of 1.5 CPUs would leave a
//! third of it unused.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use rustix::thread::sched_getaffinity;

/// Returns the number of CPUs that this process may use, at least 1. A quota is rounded up.
pub(super) fn usable() -> usize {
    let cores = sched_getaffinity(None).map(|cores| cores.count() as usize);
    let cores = cores.unwrap_or_else(|_| available_parallelism().map_or(1, Into::into));
    cores.min(quota(Path::new("/")).unwrap_or(usize::MAX)).max(1)
}

/// Returns the CPU quota of this process's cgroup, rounded up, if it has one. `root` is `/`, except in tests.
fn quota(root: &Path) -> Option<usize> {
    let read = |name: &str| fs::read_to_string(root.join("proc/self").join(name)).ok();
    let (groups, mounts) = (read("cgroup")?, read("mountinfo")?);
    let quotas = groups.lines().filter_map(|line| {
        // `0::/path` for version 2, `number:controllers:/path` for version 1.
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_v1 = controllers.split(',').any(|controller| controller == "cpu");
        let read_quota = match controllers {
            "" => quota_v2,
            _ if is_v1 => quota_v1,
            _ => return None,
        };
        let (mount, group) = mounts.lines().find_map(|line| place(line, is_v1, path))?;
        let mount = root.join(mount.trim_start_matches('/'));
        // The quotas of the groups above apply too.
        let group = mount.join(group.trim_start_matches('/'));
        group.ancestors().take_while(|above| above.starts_with(&mount)).filter_map(read_quota).min()
    });
    quotas.min()
}

/// Returns the mount point of a line of mountinfo, and the path of the group `path` below it, if the line
/// is the mount of such groups.
fn place<'a>(line: &'a str, is_v1: bool, path: &'a str) -> Option<(&'a str, &'a str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (group_root, mount_point) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split(' ');
    let (kind, options) = (file_system.next()?, file_system.nth(1)?);
    let fits = match is_v1 {
        true => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
        false => kind == "cgroup2",
    };
    // A container may see its group as the root of the mount, but its path from the host's root.
    let below = path.strip_prefix(group_root.trim_end_matches('/')).unwrap_or("");
    fits.then_some((mount_point, below))
}

fn quota_v2(group: &Path) -> Option<usize> {
    let limit = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = limit.trim().split_once(' ')?;
    // `max` is not a number.
    round_up(quota.parse().ok()?, period.parse().ok()?)
}

fn quota_v1(group: &Path) -> Option<usize> {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    // -1 is no limit.
    round_up(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

fn round_up(quota: i64, period: i64) -> Option<usize> {
    let is_limited = quota > 0 && period > 0;
    is_limited
        .then(|| usize::try_from(quota.unsigned_abs().div_ceil(period.unsigned_abs())).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates files below a root and returns the quota there.
    fn quota_of(files: &[(&str, &str)]) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        quota(root.path())
    }

    const V2: (&str, &str) = (
        "proc/self/mountinfo",
        "22 1 0:20 / / rw - ext4 /dev/x rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    );

    #[test]
    fn quotas_of_version_2_are_rounded_up() {
        for (max, wanted) in [
            ("max 100000", None),
            ("50000 100000", Some(1)),
            ("100000 100000", Some(1)),
            ("150000 100000", Some(2)),
            ("400000 100000\n", Some(4)),
            ("25000 10000", Some(3)),
            ("0 100000", None),
            ("nonsense", None),
        ] {
            let group = ("proc/self/cgroup", "0::/\n");
            let limit = ("sys/fs/cgroup/cpu.max", max);
            assert_eq!(quota_of(&[V2, group, limit]), wanted, "{max}");
        }
        assert_eq!(quota_of(&[V2, ("proc/self/cgroup", "0::/\n")]), None);
        assert_eq!(quota_of(&[]), None);
    }

    #[test]
    fn the_smallest_quota_of_the_groups_above_counts() {
        let group = ("proc/self/cgroup", "0::/a.slice/b.service\n");
        let own = ("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000");
        let above = ("sys/fs/cgroup/a.slice/cpu.max", "250000 100000");
        let beside = ("sys/fs/cgroup/c.slice/cpu.max", "100000 100000");
        assert_eq!(quota_of(&[V2, group, own, above, beside]), Some(3));
        let own = (own.0, "150000 100000");
        assert_eq!(quota_of(&[V2, group, own, above, beside]), Some(2));
    }

    #[test]
    fn quotas_of_version_1_are_those_of_the_container() {
        let mounts = |root: &str| {
            format!(
                "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                 35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 32 31 0:29 {root} /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
            )
        };
        let groups = ("proc/self/cgroup", "4:memory:/pod/weir\n2:cpu,cpuacct:/pod/weir\n0::/\n");
        let period = "cpu.cfs_period_us";
        // Mounted whole, and with the container's group as the root.
        for (root, directory) in
            [("/", "sys/fs/cgroup/cpu/pod/weir"), ("/pod/weir", "sys/fs/cgroup/cpu")]
        {
            let mounts = mounts(root);
            let file = |name: &str| format!("{directory}/{name}");
            for (quota, wanted) in [("-1\n", None), ("50000\n", Some(1)), ("150000\n", Some(2))] {
                let files = [
                    ("proc/self/mountinfo", mounts.as_str()),
                    groups,
                    (&file("cpu.cfs_quota_us"), quota),
                    (&file(period), "100000\n"),
                ];
                assert_eq!(quota_of(&files), wanted, "{root} {quota}");
            }
        }
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        assert!(usable() >= 1);
    }
}
