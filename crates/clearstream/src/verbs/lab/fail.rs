//! `lab fail` and `lab mend`: causes failures of a lab's hosts, and ends them.

use std::io::Write;

use lab::{FailureKind, Lab, LabError};
use serde_json::json;

use super::refused;
use crate::VerbResult;
use crate::exit::Exit;

/// Options of `lab fail`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream lab fail amsterdam hang\n  \
    clearstream lab fail nid0001 port ib0\n\n\
    forward: the host forwards nothing, but still answers for itself.\n\
    hang:    its interfaces carry no traffic in either direction; their carriers stay on.\n\
    port:    one interface carries no traffic in either direction: a dead switch port.\n\
    carrier: one interface loses its carrier, as when its cable is pulled (not for a veth pair).\n\n\
    A failure lasts until `lab mend` or the end of the lab.")]
pub(super) struct FailArgs {
    /// The host.
    host: String,
    /// How it fails.
    #[arg(value_name = "forward|hang|port|carrier")]
    kind: FailureKind,
    /// The port, named by its interface, its switch, or the host at the other end of its link.
    port: Option<String>,
    /// The lab; may be omitted if only one is up.
    #[arg(long)]
    lab: Option<String>,
}

/// Options of `lab mend`.
#[derive(Debug, clap::Args)]
pub(super) struct MendArgs {
    /// The host.
    host: String,
    /// Kind of failure to end [default: all].
    #[arg(value_name = "forward|hang|port|carrier")]
    kind: Option<FailureKind>,
    /// Port whose failures end [default: all].
    port: Option<String>,
    /// The lab; may be omitted if only one is up.
    #[arg(long)]
    lab: Option<String>,
}

pub(super) fn fail(args: &FailArgs, json: bool) -> VerbResult {
    let lab = open(args.lab.as_deref()).map_err(refused)?;
    let failure = lab.fail(&args.host, args.kind, args.port.as_deref()).map_err(refused)?;
    let name = &lab.plan().name;
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", json!({ "lab": name, "failed": failure }))?;
    } else {
        let port = failure.interfaces.first().filter(|_| args.kind.is_of_port());
        let port = port.map_or_else(String::new, |port| format!(" {port}"));
        writeln!(out, "{failure}")?;
        writeln!(
            out,
            "  until: clearstream lab mend {} {}{port} --lab {name}",
            args.host, args.kind
        )?;
    }
    Ok(Exit::Ok)
}

pub(super) fn mend(args: &MendArgs, json: bool) -> VerbResult {
    let lab = open(args.lab.as_deref()).map_err(refused)?;
    let mended = lab.mend(&args.host, args.kind, args.port.as_deref()).map_err(refused)?;
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", json!({ "lab": lab.plan().name, "mended": mended }))?;
    } else {
        for failure in mended {
            writeln!(out, "ended: {failure}")?;
        }
    }
    Ok(Exit::Ok)
}

fn open(name: Option<&str>) -> Result<Lab, LabError> {
    name.map_or_else(Lab::only, Lab::open)
}
