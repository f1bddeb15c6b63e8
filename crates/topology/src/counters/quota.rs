//! The processor quota of the control groups this process is in.

use results::CpuQuota;

use crate::HostFiles;

/// Most levels of groups walked up.
const LEVELS_MAX: usize = 32;

/// Where the cpu controller's tree may be mounted, below `/sys`.
const ROOTS_V2: [&str; 2] = ["fs/cgroup", "fs/cgroup/unified"];
const ROOTS_V1: [&str; 2] = ["fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct"];

/// The quotas this process runs under at one moment, its own group first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Quotas {
    groups: Vec<CpuQuota>,
}

impl Quotas {
    pub(super) fn read_from(files: &HostFiles) -> Self {
        let membership = files.proc("thread-self/cgroup").or_else(|| files.proc("self/cgroup"));
        let mut groups = Vec::new();
        for line in membership.unwrap_or_default().lines() {
            let Some((id, rest)) = line.split_once(':') else { continue };
            let Some((controllers, path)) = rest.split_once(':') else { continue };
            let is_v2 = id == "0" && controllers.is_empty();
            let roots = match (is_v2, controllers.split(',').any(|name| name == "cpu")) {
                (true, _) => ROOTS_V2,
                (false, true) => ROOTS_V1,
                (false, false) => continue,
            };
            for group in upward(path) {
                let found = roots.iter().find_map(|root| {
                    let folder = format!("{root}{group}");
                    if is_v2 {
                        read_v2(files, &folder, group)
                    } else {
                        read_v1(files, &folder, group)
                    }
                });
                groups.extend(found);
            }
        }
        Self { groups }
    }

    /// The quota that stopped this process's threads longest since an earlier reading; where none
    /// did, the narrowest.
    pub(super) fn since(&self, earlier: &Self) -> Option<CpuQuota> {
        let gained = self.groups.iter().filter_map(|now| {
            let then = earlier.groups.iter().find(|then| then.group == now.group)?;
            Some(CpuQuota {
                periods_count: now.periods_count.saturating_sub(then.periods_count),
                throttled_count: now.throttled_count.saturating_sub(then.throttled_count),
                throttled_s: (now.throttled_s - then.throttled_s).max(0.0),
                ..now.clone()
            })
        });
        gained.max_by(|a, b| {
            a.throttled_s.total_cmp(&b.throttled_s).then(b.cores.total_cmp(&a.cores))
        })
    }
}

/// `/a/b`, `/a` and the top (empty).
fn upward(path: &str) -> impl Iterator<Item = &str> {
    let first = path.trim_end_matches('/');
    // A path that leads out of the namespace's tree cannot be followed.
    let first = (!first.split('/').any(|part| part == "..")).then_some(first);
    std::iter::successors(first, |path| Some(path.rsplit_once('/')?.0)).take(LEVELS_MAX)
}

/// `cpu.max` is `quota period` or `max period`, microseconds (kernel
/// `Documentation/admin-guide/cgroup-v2.rst`).
fn read_v2(files: &HostFiles, folder: &str, group: &str) -> Option<CpuQuota> {
    let max = files.sys_line(&format!("{folder}/cpu.max"))?;
    let (quota, period) = max.split_once(' ')?;
    let quota_us: f64 = quota.parse().ok()?;
    let period_us: f64 = period.trim().parse().ok()?;
    let stat = files.sys_line(&format!("{folder}/cpu.stat")).unwrap_or_default();
    let figure = |name: &str| field(&stat, name);
    quota_of(
        (group, format!("/sys/{folder}/cpu.max")),
        (quota_us, period_us),
        &figure,
        figure("throttled_usec").unwrap_or(0) as f64 * 1e-6,
    )
}

/// Version 1: a quota of -1 is none; `throttled_time` is in nanoseconds.
fn read_v1(files: &HostFiles, folder: &str, group: &str) -> Option<CpuQuota> {
    let figure = |name: &str| files.sys_line(&format!("{folder}/{name}"))?.parse::<f64>().ok();
    let both = (figure("cpu.cfs_quota_us")?, figure("cpu.cfs_period_us")?);
    let stat = files.sys_line(&format!("{folder}/cpu.stat")).unwrap_or_default();
    let stat_of = |name: &str| field(&stat, name);
    let file = format!("/sys/{folder}/cpu.cfs_quota_us");
    quota_of((group, file), both, &stat_of, stat_of("throttled_time").unwrap_or(0) as f64 * 1e-9)
}

fn quota_of(
    (group, file): (&str, String),
    (quota_us, period_us): (f64, f64),
    figure: &dyn Fn(&str) -> Option<u64>,
    throttled_s: f64,
) -> Option<CpuQuota> {
    (quota_us > 0.0 && period_us > 0.0 && quota_us.is_finite() && period_us.is_finite()).then(
        || CpuQuota {
            group: if group.is_empty() { "/".to_owned() } else { group.to_owned() },
            file: Some(file),
            cores: quota_us / period_us,
            period_s: period_us * 1e-6,
            periods_count: figure("nr_periods").unwrap_or(0),
            throttled_count: figure("nr_throttled").unwrap_or(0),
            throttled_s,
        },
    )
}

/// A line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        if found == name { value.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn tree(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("clearstream-quota-{}-{name}", std::process::id()))
    }

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn the_group_that_stops_us_is_found_above_our_own() {
        let root = tree("v2");
        write(&root, "proc/self/cgroup", "0::/jobs/bench\n");
        write(&root, "sys/fs/cgroup/jobs/bench/cpu.max", "max 100000\n");
        write(&root, "sys/fs/cgroup/jobs/cpu.max", "30000 100000\n");
        let stat = "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 200000\n";
        write(&root, "sys/fs/cgroup/jobs/cpu.stat", stat);
        let files = HostFiles::at(&root);
        let before = Quotas::read_from(&files);
        let later = stat.replace("200000", "1700000").replace("nr_throttled 4", "nr_throttled 24");
        write(&root, "sys/fs/cgroup/jobs/cpu.stat", &later.replace("periods 10", "periods 30"));
        let quota = Quotas::read_from(&files).since(&before).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            (quota.group.as_str(), quota.throttled_count, quota.periods_count),
            ("/jobs", 20, 20)
        );
        assert_eq!(quota.file.as_deref(), Some("/sys/fs/cgroup/jobs/cpu.max"));
        assert!((quota.cores - 0.3).abs() < 1e-9 && (quota.throttled_s - 1.5).abs() < 1e-9);
    }

    #[test]
    fn version_1_counts_nanoseconds() {
        let root = tree("v1");
        write(&root, "proc/self/cgroup", "3:memory:/x\n2:cpu,cpuacct:/batch\n0::/\n");
        write(&root, "sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "50000\n");
        write(&root, "sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
        write(
            &root,
            "sys/fs/cgroup/cpu,cpuacct/batch/cpu.stat",
            "nr_periods 7\nthrottled_time 500000000\n",
        );
        write(&root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        write(&root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        let quotas = Quotas::read_from(&HostFiles::at(&root));
        fs::remove_dir_all(&root).unwrap();
        let [quota] = &quotas.groups[..] else { panic!("{quotas:?}") };
        assert!((quota.cores - 0.5).abs() < 1e-9 && (quota.throttled_s - 0.5).abs() < 1e-9);
        assert_eq!(quota.periods_count, 7);
        let file = "/sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us";
        assert_eq!(quota.file.as_deref(), Some(file), "the file that the advice names");
    }

    #[test]
    fn any_membership_ends() {
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(upward(text).count() <= LEVELS_MAX);
            field(text, "nr_periods");
        });
        assert_eq!(upward("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", ""]);
        assert_eq!(upward("/").collect::<Vec<_>>(), [""]);
        assert_eq!(upward("/../x").count(), 0);
    }
}
