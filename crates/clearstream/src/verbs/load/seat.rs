//! Ranks on the hosts of a lab: each sees the file system as its host does.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;

use crate::exit::VerbError;
use crate::plans;

/// Longest time a host takes to mount the file system once it reaches the servers.
const MOUNTED_MAX: Duration = Duration::from_secs(15);

/// Environment variables by which launchers pass each rank its number: Open MPI, MPICH.
const RANK_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// Placement of a job's ranks on hosts of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seats {
    /// Name of the lab.
    pub(crate) lab: String,
    /// Hosts that mount its file system, filled in this order; empty: the first such host.
    pub(crate) hosts: Vec<String>,
    /// Ranks per host.
    pub(crate) each: usize,
}

impl Seats {
    /// Parses `LAB:HOST,HOST:EACH`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (lab, rest) = text.split_once(':')?;
        let (hosts, each) = rest.rsplit_once(':')?;
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let each = each.parse().ok().filter(|each| *each > 0)?;
        Some(Self { lab: lab.to_owned(), hosts, each })
    }

    /// The text that [`Seats::parse`] parses.
    pub(super) fn text(&self) -> String {
        format!("{}:{}:{}", self.lab, self.hosts.join(","), self.each)
    }

    /// Moves this process to its rank's host. Must be called while the process has one thread.
    pub(super) fn take(&self) -> Result<(), VerbError> {
        let lab = Lab::open(&self.lab)?;
        let files = lab.plan().filesystem.as_ref();
        let files = files.ok_or_else(|| {
            VerbError::usage(format!("the lab '{}' has no file system", self.lab))
        })?;
        let hosts = if self.hosts.is_empty() { &files.clients[..1] } else { &self.hosts[..] };
        let host = &hosts[(own_rank() / self.each) % hosts.len()];
        lab.visit(host)?;
        let place = files.mount_point();
        let began = Instant::now();
        while !is_mounted(&place)? {
            if began.elapsed() > MOUNTED_MAX {
                let (place, servers) = (place.display(), files.servers.join(" and "));
                let why = self.why_unreached(lab.plan().is_unrouted, &servers);
                let line = format!("{host} has not mounted {place}: {why}");
                return Err(VerbError::failed(line));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Why a host may not reach the servers, and what to do.
    fn why_unreached(&self, is_unrouted: bool, servers: &str) -> String {
        if !is_unrouted {
            return format!("does it reach {servers}?");
        }
        let lab = &self.lab;
        let plan = if plans::is_builtin(lab) { lab } else { "PLAN" };
        format!(
            "it is mounted as soon as there are routes to {servers}: clearstream gateway apply \
             {plan} --lab {lab}"
        )
    }
}

/// Whether a file system is mounted there, by the host's mount table: accessing the mount could hang.
fn is_mounted(place: &Path) -> Result<bool, VerbError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(place)))
}

/// This process's rank in its job; 0 if there is no job.
pub(super) fn own_rank() -> usize {
    let of = |name: &str| std::env::var(name).ok()?.parse().ok();
    RANK_VARIABLES.into_iter().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_makes_routes_is_named() {
        let why = |lab: &str, is_unrouted| {
            let seats = Seats { lab: lab.to_owned(), hosts: Vec::new(), each: 1 };
            seats.why_unreached(is_unrouted, "s1 and s2")
        };
        let ours = why("cumulus", true);
        assert!(ours.ends_with("clearstream gateway apply cumulus --lab cumulus"), "{ours}");
        let other = why("other", true);
        assert!(other.ends_with("clearstream gateway apply PLAN --lab other"), "{other}");
        assert_eq!(why("other", false), "does it reach s1 and s2?");
    }

    #[test]
    fn seats_are_read_back() {
        let seats = Seats {
            lab: "cumulus".to_owned(),
            hosts: vec!["c1".to_owned(), "c2".to_owned()],
            each: 2,
        };
        assert_eq!(Seats::parse(&seats.text()), Some(seats));
        for text in ["", "a", "a:b", "a:b:0", "a:b:x"] {
            assert_eq!(Seats::parse(text), None, "{text}");
        }
    }
}
