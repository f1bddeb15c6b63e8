//! Failures planted on hosts of a lab that is up, and taken back exactly.
//!
//! What is changed is the kernel's state of the host's network namespace, so a failure ends with its lab. How things
//! were is noted in the lab's directory before anything is changed: whoever is killed between leaves a failure that
//! [`Lab::mend`] takes back.

mod change;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::plan::{EndPlan, LabPlan};
use crate::{Lab, LabError};
use change::Change;

/// Where a lab's failures are noted.
const FAILURES_FILE: &str = "failures.json";

/// How a host fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// It forwards no more, and answers as before: `ip_forward` and IPv6 `forwarding` are 0.
    Forward,
    /// All its interfaces carry nothing either way, with their carriers on.
    Hang,
    /// One interface carries nothing either way, with its carrier on: a dead switch port.
    Port,
    /// One interface loses its carrier, as when its cable is pulled. What the kernel deletes for that (nexthop objects
    /// and routes over them) does not come back with it.
    Carrier,
}

impl FailureKind {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("forward", Self::Forward),
        ("hang", Self::Hang),
        ("port", Self::Port),
        ("carrier", Self::Carrier),
    ];

    /// Whether one interface fails, and not the host.
    #[must_use]
    pub fn is_of_port(self) -> bool {
        matches!(self, Self::Port | Self::Carrier)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for FailureKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("unknown failure '{text}'; expected one of {names}")
        })
    }
}

/// A failure of a lab that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Name of the host.
    pub host: String,
    /// Kind of failure.
    pub kind: FailureKind,
    /// The interfaces that fail; empty for [`FailureKind::Forward`].
    pub interfaces: Vec<String>,
    /// What was changed, with how it was.
    changes: Vec<Change>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, interfaces) = (&self.host, self.interfaces.join(" and "));
        match self.kind {
            FailureKind::Forward => write!(f, "{host} forwards nothing"),
            FailureKind::Hang if self.interfaces.len() > 1 => {
                write!(f, "{host} hangs: {interfaces} carry no traffic; their carriers stay on")
            }
            FailureKind::Hang => {
                write!(f, "{host} hangs: {interfaces} carries no traffic; its carrier stays on")
            }
            FailureKind::Port => {
                write!(f, "{host}: {interfaces} carries no traffic; its carrier stays on")
            }
            FailureKind::Carrier => write!(f, "{host}: {interfaces} has no carrier"),
        }
    }
}

impl Lab {
    /// Makes a host fail. `port` says which interface, by its name or that of its switch or of the host at the link's
    /// other end; it may be left out where the host has one.
    ///
    /// In a lab of a user who is not root this process joins the lab's namespaces: it must have one thread and should
    /// end soon after.
    ///
    /// # Errors
    /// No such host or port, it fails in this way already, or its kernel refuses; then nothing has changed.
    pub fn fail(
        &self,
        host: &str,
        kind: FailureKind,
        port: Option<&str>,
    ) -> Result<Failure, LabError> {
        self.host_index(host)?;
        let interfaces = interfaces_of(self.plan(), host, kind, port)?;
        let _turn = self.failures_lock()?;
        let mut failures = self.failures()?;
        let is_taken = |failure: &Failure| {
            let is_same = failure.kind == kind && failure.interfaces == interfaces;
            let overlaps = failure.interfaces.iter().any(|name| interfaces.contains(name));
            failure.host == host && (is_same || overlaps)
        };
        if let Some(failure) = failures.iter().find(|failure| is_taken(failure)) {
            return Err(LabError::Fails { what: failure.to_string() });
        }
        self.on_host(host, || {
            let changes = change::needed(host, kind, &interfaces)?;
            let failure = Failure { host: host.to_owned(), kind, interfaces, changes };
            failures.push(failure.clone());
            self.note(&failures)?;
            if let Err(error) = change::make(&failure.changes) {
                // What was changed before goes back; of two errors the first one is the reason.
                change::take_back(&failure.changes).ok();
                failures.pop();
                self.note(&failures)?;
                return Err(error);
            }
            Ok(failure)
        })
    }

    /// Ends the failures of a host, or one kind of them: everything is as before the first. They are returned.
    ///
    /// The same condition as for [`Lab::fail`] holds.
    ///
    /// # Errors
    /// No such host or port, it does not fail so, or its kernel refuses; what is not taken back stays noted.
    pub fn mend(
        &self,
        host: &str,
        kind: Option<FailureKind>,
        port: Option<&str>,
    ) -> Result<Vec<Failure>, LabError> {
        self.host_index(host)?;
        let interfaces = match (kind, port) {
            (Some(kind), Some(_)) => Some(interfaces_of(self.plan(), host, kind, port)?),
            _ => None,
        };
        let _turn = self.failures_lock()?;
        let is_meant = |failure: &Failure| {
            failure.host == host
                && kind.is_none_or(|kind| kind == failure.kind)
                && interfaces.as_ref().is_none_or(|names| *names == failure.interfaces)
        };
        let (meant, mut others): (Vec<_>, Vec<_>) =
            self.failures()?.into_iter().partition(is_meant);
        if meant.is_empty() {
            let how = kind.map_or_else(String::new, |kind| format!(" by {kind}"));
            return Err(LabError::FailsNot { host: host.to_owned(), how });
        }
        self.on_host(host, || {
            let mut refused = None;
            let mut mended = Vec::new();
            for failure in meant.into_iter().rev() {
                match change::take_back(&failure.changes) {
                    Ok(()) => mended.push(failure),
                    Err(error) => {
                        others.push(failure);
                        refused.get_or_insert(error);
                    }
                }
            }
            self.note(&others)?;
            refused.map_or(Ok(mended), Err)
        })
    }

    /// The failures that are in force, in the order in which they were planted.
    ///
    /// # Errors
    /// The lab has just ended.
    pub fn failures(&self) -> Result<Vec<Failure>, LabError> {
        if !self.dir.has(FAILURES_FILE)? {
            return Ok(Vec::new());
        }
        let text = self.dir.read(FAILURES_FILE)?;
        serde_json::from_str(&text).map_err(|error| {
            LabError::state("read", self.dir.path().join(FAILURES_FILE))(error.into())
        })
    }

    fn note(&self, failures: &[Failure]) -> Result<(), LabError> {
        let text = serde_json::to_string(failures).map_err(|error| {
            LabError::state("write", self.dir.path().join(FAILURES_FILE))(error.into())
        })?;
        self.dir.write(FAILURES_FILE, &text)
    }

    /// While it lives nobody else plants failures in this lab.
    fn failures_lock(&self) -> Result<OwnedFd, LabError> {
        let file = self.dir.append("failures.lock")?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| LabError::state("lock", self.dir.path())(error.into()))?;
        Ok(OwnedFd::from(file))
    }

    /// Runs in a host's network namespace.
    fn on_host<T: Send>(
        &self,
        host: &str,
        body: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let network = self.open_network(host)?;
        if self.state.own_user_namespace {
            sys::namespace::enter_user_and_process_ids(self.anchor.as_fd(), true)?;
            sys::namespace::enter_network(network.as_fd())?;
            return body();
        }
        let inside = || {
            sys::namespace::enter_network(network.as_fd())?;
            body()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

/// The interfaces that a failure is about.
fn interfaces_of(
    plan: &LabPlan,
    host: &str,
    kind: FailureKind,
    port: Option<&str>,
) -> Result<Vec<String>, LabError> {
    let ports = ports_of(plan, host);
    let refused = |why: String| LabError::Port { host: host.to_owned(), why };
    let known = || {
        let names = ports.iter().map(|(end, place)| format!("{} ({place})", end.interface));
        names.collect::<Vec<_>>().join(", ")
    };
    match (kind.is_of_port(), port, &ports[..]) {
        (false, Some(_), _) => {
            Err(refused(format!("'{kind}' applies to the whole host: leave out the port")))
        }
        (false, None, _) if kind == FailureKind::Forward => Ok(Vec::new()),
        (false, None, all) => Ok(all.iter().map(|(end, _)| end.interface.clone()).collect()),
        (true, None, [(only, _)]) => Ok(vec![only.interface.clone()]),
        (true, None, _) => Err(refused(format!("which port? It has {}", known()))),
        (true, Some(name), all) => {
            let is_it = |(end, place): &&(&EndPlan, &str)| end.interface == name || *place == name;
            let found: Vec<_> = all.iter().filter(is_it).collect();
            match &found[..] {
                [(end, _)] => Ok(vec![end.interface.clone()]),
                [] => Err(refused(format!("no port '{name}'; it has {}", known()))),
                _ => Err(refused(format!("several ports '{name}'; it has {}", known()))),
            }
        }
    }
}

/// A host's interfaces, each with what it leads to: a switch, or the host at the link's other end.
fn ports_of<'a>(plan: &'a LabPlan, host: &str) -> Vec<(&'a EndPlan, &'a str)> {
    let links = plan.links.iter().flat_map(|link| {
        let [first, second] = &link.ends;
        [(first, second.host.as_str()), (second, first.host.as_str())]
    });
    let switches = plan
        .switches
        .iter()
        .flat_map(|switch| switch.ends.iter().map(|end| (end, switch.name.as_str())));
    links.chain(switches).filter(|(end, _)| end.host == host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find_plan;

    fn ask(host: &str, kind: &str, port: Option<&str>) -> Result<Vec<String>, String> {
        let plan = find_plan("cumulus").unwrap();
        let kind: FailureKind = kind.parse()?;
        interfaces_of(&plan, host, kind, port).map_err(|error| error.to_string())
    }

    #[test]
    fn a_port_is_named_by_its_interface_or_by_what_it_leads_to() {
        assert_eq!(ask("g1", "port", Some("eth1")), Ok(vec!["eth1".to_owned()]));
        assert_eq!(ask("g1", "carrier", Some("storage")), Ok(vec!["eth1".to_owned()]));
        assert_eq!(ask("c1", "port", None), Ok(vec!["eth0".to_owned()]));
        assert_eq!(ask("g1", "hang", None), Ok(vec!["eth0".to_owned(), "eth1".to_owned()]));
        assert_eq!(ask("g1", "forward", None), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let line = ask("g1", "port", Some("eth7")).unwrap_err();
        assert_eq!(line, "g1: no port 'eth7'; it has eth0 (compute), eth1 (storage)");
        let line = ask("g1", "port", None).unwrap_err();
        assert_eq!(line, "g1: which port? It has eth0 (compute), eth1 (storage)");
        let line = ask("g1", "hang", Some("eth0")).unwrap_err();
        assert_eq!(line, "g1: 'hang' applies to the whole host: leave out the port");
        let line = ask("g1", "burn", None).unwrap_err();
        assert_eq!(line, "unknown failure 'burn'; expected one of forward, hang, port, carrier");
    }
}
