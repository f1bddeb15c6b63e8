//! Ranks on the hosts of a lab: each sees the file system as its host does.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;

use crate::exit::VerbError;

/// Longest that a host takes to mount the file system once it reaches the servers.
const MOUNTED_MAX: Duration = Duration::from_secs(15);

/// What launchers tell each rank of its number: Open MPI, MPICH.
const RANK_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// Where the ranks of a job are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seats {
    /// The lab.
    pub(crate) lab: String,
    /// Hosts that mount its file system, filled one after the other; empty: the first of them.
    pub(crate) hosts: Vec<String>,
    /// Ranks of each host.
    pub(crate) each: usize,
}

impl Seats {
    /// Reads `LAB:HOST,HOST:EACH`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (lab, rest) = text.split_once(':')?;
        let (hosts, each) = rest.rsplit_once(':')?;
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let each = each.parse().ok().filter(|each| *each > 0)?;
        Some(Self { lab: lab.to_owned(), hosts, each })
    }

    /// What [`Seats::parse`] reads.
    pub(super) fn text(&self) -> String {
        format!("{}:{}:{}", self.lab, self.hosts.join(","), self.each)
    }

    /// Takes this process's seat. To be called while the process has one thread.
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
                let line = format!("{host} has not mounted {place}: does it reach {servers}?");
                return Err(VerbError::failed(line));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Whether something is mounted there, by a host's own account: asking the file system could hang.
fn is_mounted(place: &Path) -> Result<bool, VerbError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(place)))
}

/// This process's number among the ranks of its job; 0 where it is alone.
pub(super) fn own_rank() -> usize {
    let of = |name: &str| std::env::var(name).ok()?.parse().ok();
    RANK_VARIABLES.into_iter().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
