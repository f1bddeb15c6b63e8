//! `clearstream topo`: this host's hardware, and the ceilings of its interfaces.

mod memory;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use explain::Headers;
use results::{Machine, NicCeilings};
use topology::HostFiles;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::store;

/// Options of `topo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream topo\n  \
    clearstream topo --svg host.svg\n  \
    clearstream --json topo | jq '.ceilings[].ceilings[] | {link, goodput_bits_per_s}'\n\n\
    A ceiling is the rate that one link could carry if nothing else limited it; the lowest ceiling is\n\
    the limit. Every step of the arithmetic is shown.")]
pub(crate) struct TopoArgs {
    /// Also draw the hardware, as an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compute ceilings for IPv6 instead of IPv4.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Measure how fast memory is copied (loads all usable cores for half a second).
    #[arg(long, conflicts_with = "tree")]
    memory: bool,
    /// Read a recorded host: a folder with copies of its `/proc` and `/sys`, as `proc` and `sys`.
    #[arg(long, value_name = "FOLDER")]
    tree: Option<PathBuf>,
}

pub(crate) fn run(args: &TopoArgs, json: bool) -> VerbResult {
    store::check_outputs([args.svg.as_deref()])?;
    let machine = read(args)?;
    let headers = Headers { is_ipv6: args.ipv6, lacks_timestamps: lacks_timestamps(args) };
    let copy_bytes_per_s = if args.memory { memory::copy_bytes_per_s(&machine) } else { None };
    if args.memory && copy_bytes_per_s.is_none() {
        writeln!(crate::out::stderr(), "memory was not measured: no room for the buffers")?;
    }
    let ceilings: Vec<NicCeilings> =
        machine.nics.iter().map(|nic| explain::ceilings(nic, headers, copy_bytes_per_s)).collect();
    if let Some(file) = &args.svg {
        store::replace(file, report::machine_svg(&machine, &ceilings).as_bytes())?;
        if io::stderr().is_terminal() {
            writeln!(crate::out::stderr(), "wrote {}", file.display())?;
        }
    }
    let mut out = crate::out::stdout();
    if json {
        let document = serde_json::json!({ "machine": machine, "ceilings": ceilings });
        writeln!(out, "{document}")?;
    } else {
        out.write_all(report::machine_text(&machine, &ceilings, crate::out::columns()).as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn read(args: &TopoArgs) -> Result<Machine, VerbError> {
    let Some(tree) = &args.tree else { return Ok(topology::machine()) };
    if !tree.join("sys").is_dir() && !tree.join("proc").is_dir() {
        let name = tree.display();
        return Err(VerbError::usage(format!("{name} has neither a `sys` nor a `proc` folder")));
    }
    Ok(topology::machine_from(&HostFiles::at(tree)))
}

/// Whether this host, or the recorded one, has TCP timestamps switched off.
fn lacks_timestamps(args: &TopoArgs) -> bool {
    let root = args.tree.clone().unwrap_or_else(|| PathBuf::from("/"));
    let setting = fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_timestamps"));
    setting.is_ok_and(|text| text.trim() == "0")
}
