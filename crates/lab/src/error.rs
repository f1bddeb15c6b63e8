//! Why a lab is refused.

use std::io;
use std::path::PathBuf;

use sys::SyscallError;
use thiserror::Error;

use crate::builtin::builtin_labs;
use crate::file::LabFileError;
use crate::plan::LabPlan;

/// Why a lab could not be brought up, entered, asked or taken down.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The lab file is wrong.
    #[error(transparent)]
    File(#[from] LabFileError),
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither a file nor a built-in lab.
    #[error("no lab '{name}'; built in: {known}; or give a file, NAME.toml")]
    Unknown {
        /// The requested name.
        name: String,
        /// Names of the built-in labs.
        known: String,
    },
    /// A lab of that name is up, made from something else.
    #[error(
        "lab '{name}' is up with another plan; take it down first: clearstream lab down {name}"
    )]
    OtherPlan {
        /// Name of the lab.
        name: String,
    },
    /// The lab ends with a process and serves no other user.
    #[error(
        "lab '{name}' belongs to process {pid} and ends with it; wait for that process to end, or: \
         clearstream lab down {name}"
    )]
    Owned {
        /// Name of the lab.
        name: String,
        /// Process that the lab ends with.
        pid: i32,
    },
    /// Something of it is to run where nothing can.
    #[error("{whose}: core {core}: there is no such core, or this process may not run on it")]
    NoCore {
        /// What: `host near`, `link near-far`, `switch lan`.
        whose: String,
        /// Number of the core.
        core: u32,
    },
    /// The process that a lab is to go with does not run.
    #[error("there is no process {0}, with which the lab was to end")]
    NoOwner(i32),
    /// It is not up.
    #[error("lab '{name}' is not up{instead}")]
    NotUp {
        /// Name of the lab.
        name: String,
        /// Which one may be meant, which are up, or how it comes up: `; running labs: a, b`.
        instead: String,
    },
    /// No lab was named and none is up.
    #[error("no lab is up; bring one up with: clearstream lab up glif2010")]
    NoneUp,
    /// No lab was named and several are up.
    #[error("{count} labs are up: {up}; name one of them with --lab")]
    Ambiguous {
        /// How many are up.
        count: usize,
        /// Names of the labs that are up.
        up: String,
    },
    /// The lab has no such host.
    #[error("lab '{lab}' has no host '{host}'; it has {known}")]
    UnknownHost {
        /// Name of the lab.
        lab: String,
        /// The requested name.
        host: String,
        /// Names of the lab's hosts and guests.
        known: String,
    },
    /// A host has no such port, or it cannot fail so.
    #[error("{host}: {why}")]
    Port {
        /// Name of the host.
        host: String,
        /// What is wrong.
        why: String,
    },
    /// The host already fails in this way.
    #[error("{what} already; mend that first: clearstream lab mend")]
    Fails {
        /// The host and how.
        what: String,
    },
    /// There is nothing to mend.
    #[error("host {host} has no failure{how}: nothing to mend")]
    FailsNot {
        /// Name of the host.
        host: String,
        /// ` by hang`, or nothing.
        how: String,
    },
    /// The kernel or its administrator does not let this user do it.
    #[error("{what}; {advice}")]
    NotPermitted {
        /// What failed.
        what: String,
        /// What to do about it.
        advice: String,
    },
    /// The lab's process said why it could not come up.
    #[error("lab did not come up: {0}")]
    NotStarted(String),
    /// A server did not begin to listen.
    #[error("nothing listens on port {port} of host {host}: {why}")]
    NoListener {
        /// Name of the host.
        host: String,
        /// The TCP port.
        port: u16,
        /// What became of the server.
        why: String,
    },
    /// A guest has ended, and the lab goes on.
    #[error(
        "guest '{guest}' of lab '{lab}' has ended; take the lab down and bring it up again to \
         restart the guest"
    )]
    GuestEnded {
        /// The lab.
        lab: String,
        /// The guest.
        guest: String,
    },
    /// A guest could not be started or asked.
    #[error(transparent)]
    Guest(#[from] vm::VmError),
    /// A file of the lab's state could not be read or written.
    #[error("{action} {path}")]
    State {
        /// The operation that failed.
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody else has, or may have, prepared this user's runtime folder.
    #[error(transparent)]
    Folder(#[from] sys::private::PrivateError),
    /// A system call failed.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// Another process could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Name of the program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl LabError {
    /// The lab of this name is not up; `up` are.
    pub(crate) fn not_up(name: &str, up: &[String]) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self::NotUp { name: name.to_owned(), instead: instead_of(name, up, is_root) }
    }

    /// The lab has no host (or guest) of this name.
    pub(crate) fn unknown_host(plan: &LabPlan, name: &str) -> Self {
        Self::UnknownHost {
            lab: plan.name.clone(),
            host: name.to_owned(),
            known: hosts_and_guests(plan),
        }
    }

    /// Whether what is missing is a privilege or a kernel feature (exit code 4).
    #[must_use]
    pub fn is_missing_privilege(&self) -> bool {
        match self {
            Self::NotPermitted { .. } => true,
            Self::Guest(error) => error.is_missing(),
            // A limit of 0 on namespaces is a way to forbid them: ENOSPC (namespaces(7)).
            Self::Syscall(error) => error.is_privilege() || error.call == "unshare",
            _ => false,
        }
    }

    /// Whether the request itself is wrong (exit code 2).
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::File(_)
                | Self::Unknown { .. }
                | Self::Unreadable { .. }
                | Self::UnknownHost { .. }
                | Self::Port { .. }
                | Self::Ambiguous { .. }
                | Self::NoOwner(_)
                | Self::NoCore { .. }
        )
    }

    pub(crate) fn state(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { action, path, source }
    }
}

/// `a, b and the guests c, d`; a lab has a host or a guest.
fn hosts_and_guests(plan: &LabPlan) -> String {
    let hosts: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
    let guests: Vec<&str> = plan.guests.iter().map(|guest| guest.name.as_str()).collect();
    let named = match guests[..] {
        [] => None,
        [one] => Some(format!("the guest {one}")),
        _ => Some(format!("the guests {}", guests.join(", "))),
    };
    let hosts = (!hosts.is_empty()).then(|| hosts.join(", "));
    hosts.into_iter().chain(named).collect::<Vec<_>>().join(" and ")
}

/// What the user may have meant by a lab that is not up.
fn instead_of(name: &str, up: &[String], is_root: bool) -> String {
    if let Some(near) = units::closest(name, up.iter().map(String::as_str)) {
        return format!("; did you mean '{near}'?");
    }
    // Another user's labs are found in another folder, and root's are no exception.
    let whose = if is_root { "" } else { " for this user (labs of other users are not seen)" };
    match up {
        [] if builtin_labs().iter().any(|lab| lab.name == name) => {
            format!("{whose}; bring it up with: clearstream lab up {name}")
        }
        [] => format!("{whose}; no lab is up"),
        up => format!("{whose}; running labs: {}", up.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_host_gets_the_hosts_and_the_guests_that_there_are() {
        let told = |hosts: &str, members: &str| {
            let text =
                format!("name = \"x\"\n{hosts}\n[[switch]]\nname = \"lan\"\nhosts = [{members}]\n");
            let plan = crate::file::parse_lab("x", &text).unwrap();
            LabError::unknown_host(&plan, "zz").to_string()
        };
        let guests = told("[guest.one]\n[guest.two]", "\"one\", \"two\"");
        assert_eq!(guests, "lab 'x' has no host 'zz'; it has the guests one, two");
        let mixed = told("[host.a]\n[host.b]\n[guest.vm]", "\"a\", \"b\", \"vm\"");
        assert_eq!(mixed, "lab 'x' has no host 'zz'; it has a, b and the guest vm");
        let hosts = told("[host.a]\n[host.b]", "\"a\", \"b\"");
        assert_eq!(hosts, "lab 'x' has no host 'zz'; it has a, b");
    }

    #[test]
    fn a_lab_that_is_not_up_gets_the_nearest_one_or_all_that_are() {
        let up = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for (name, names, is_root, words) in [
            ("ofice", &["office", "lab"][..], true, "; did you mean 'office'?"),
            ("wan", &["office", "lab"], true, "; running labs: office, lab"),
            ("lan", &[], true, "; bring it up with: clearstream lab up lan"),
            ("mine", &[], true, "; no lab is up"),
            ("mine", &[], false, " for this user (labs of other users are not seen); no lab is up"),
        ] {
            assert_eq!(instead_of(name, &up(names), is_root), words, "{name}");
        }
    }
}
