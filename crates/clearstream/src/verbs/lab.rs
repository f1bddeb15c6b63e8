//! `clearstream lab`: emulates hosts, links and switches on this machine.

mod fail;
mod show;

use std::ffi::OsString;
use std::io::Write;

use lab::{
    Arrival, ExecEnd, ExecError, Lab, LabError, Program, SwitchCounters, builtin_labs, find_plan,
};
use serde_json::json;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Options of `lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream lab list\n  \
    clearstream lab up glif2010\n  \
    clearstream lab exec geneva -- iperf3 -s -D\n  \
    clearstream lab exec amsterdam -- iperf3 -c geneva\n  \
    clearstream lab exec --detach geneva -- clearstream serve\n  \
    clearstream lab fail amsterdam hang\n  \
    clearstream lab mend amsterdam\n  \
    clearstream lab status\n  \
    clearstream lab down\n  \
    clearstream lab show glif2010 > mine.toml      a file to start from\n\n\
    A lab is one process; when it ends, however it ends, nothing of the lab remains. Without root, a\n\
    lab needs user namespaces. A host with several links forwards between them. Lab files:\n\
    `clearstream help lab-file`.")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Bring a lab up: a built-in one by name, or a lab file.
    Up {
        /// Name of a built-in lab, or a lab file.
        #[arg(value_name = "NAME|FILE.toml")]
        lab: String,
        /// Take the lab down when the process PID ends, however it ends.
        #[arg(long = "while", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        owner: Option<i32>,
    },
    /// Take a lab down with every program in it.
    Down {
        /// Name of the lab; may be omitted if only one is up.
        lab: Option<String>,
        /// The same as the argument LAB, in the form that `lab exec` uses.
        #[arg(long = "lab", value_name = "LAB", conflicts_with = "lab")]
        named: Option<String>,
        /// Take down every lab that is up.
        #[arg(long, conflicts_with_all = ["lab", "named"])]
        all: bool,
        /// Succeed even if no such lab is up, for scripts that clean up.
        #[arg(long)]
        if_up: bool,
    },
    /// Run a program on a host or a guest of a lab.
    Exec(ExecArgs),
    /// Make a host fail: it stops forwarding, hangs, or loses a port.
    Fail(fail::FailArgs),
    /// End failures of a host and restore its former state.
    Mend(fail::MendArgs),
    /// List the labs and show which are up.
    List,
    /// Show hosts, links and the counters of the links.
    Status {
        /// Name of the lab [default: all that are up].
        lab: Option<String>,
        /// The same as the argument LAB, in the form that `lab exec` uses.
        #[arg(long = "lab", value_name = "LAB", conflicts_with = "lab")]
        named: Option<String>,
    },
    /// Print the file of a built-in lab, as a template.
    Show {
        /// Name of a built-in lab.
        lab: String,
    },
    /// The lab's own processes.
    #[command(hide = true)]
    Internal {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 1..)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "clearstream lab exec [--detach] [--lab LAB | LAB] HOST -- PROGRAM [ARGUMENT]..."
)]
struct ExecArgs {
    /// Leave the program running: print its keeper's process id and name the log that has its
    /// output.
    #[arg(long)]
    detach: bool,
    /// The lab; may be omitted if only one is up.
    #[arg(long)]
    lab: Option<String>,
    /// The host; its lab's name comes first if several labs are up.
    #[arg(value_name = "HOST", num_args = 1..=2, required = true)]
    place: Vec<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &LabArgs, json: bool) -> VerbResult {
    match &args.action {
        Action::Up { lab, owner } => up(lab, *owner, json),
        Action::Down { all: true, .. } => {
            let names = Lab::all().map_err(refused)?;
            // One may end by itself meanwhile.
            down(names.iter().map(|lab| lab.plan().name.clone()).collect(), true, json)
        }
        Action::Down { lab, named, if_up, .. } => match lab.as_ref().or(named.as_ref()) {
            Some(name) => down(vec![name.clone()], *if_up, json),
            None => down_only(json),
        },
        Action::Exec(exec_args) => exec(exec_args),
        Action::Fail(args) => fail::fail(args, json),
        Action::Mend(args) => fail::mend(args, json),
        Action::List => list(json),
        Action::Status { lab, named } => status(lab.as_deref().or(named.as_deref()), json),
        Action::Show { lab } => print_file(lab, json),
        Action::Internal { arguments } => Ok(Exit::Program(lab::run_role(&program(), arguments))),
    }
}

fn up(name_or_file: &str, owner: Option<i32>, json: bool) -> VerbResult {
    let plan = find_plan(name_or_file).map_err(refused)?;
    let (lab, arrival) = Lab::up(&plan, &program(), owner).map_err(refused)?;
    for note in lab.notes() {
        writeln!(crate::out::stderr(), "clearstream: lab {}: {note}", plan.name)?;
    }
    let mut out = crate::out::stdout();
    if json {
        let already = arrival == Arrival::Already;
        let line = json!({ "name": plan.name, "pid": lab.pid(), "already_up": already,
            "owner_pid": lab.owner_pid(), "plan": lab.plan(), "notes": lab.notes() });
        writeln!(out, "{line}")?;
    } else {
        let how = match arrival {
            Arrival::New => "is up",
            Arrival::Already => "is up already",
        };
        writeln!(out, "lab {} {how}{}", plan.name, show::described(&plan))?;
        show::hosts(&mut out, &plan)?;
    }
    Ok(Exit::Ok)
}

fn down_only(json: bool) -> VerbResult {
    match Lab::only() {
        Ok(lab) => down(vec![lab.plan().name.clone()], true, json),
        Err(_) if Lab::all().is_ok_and(|all| all.is_empty()) => down(Vec::new(), true, json),
        Err(error) => Err(refused(error)),
    }
}

fn down(names: Vec<String>, may_be_down: bool, json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    let mut gone = Vec::new();
    for name in names {
        let (was_up, said) = match Lab::down(&name) {
            Ok(true) => (true, format!("lab {name} is down")),
            Ok(false) => {
                (false, format!("lab {name} had already ended; its files have been removed"))
            }
            Err(error @ LabError::NotUp { .. }) if may_be_down => (false, error.to_string()),
            Err(error) => return Err(refused(error)),
        };
        if !json {
            writeln!(out, "{said}")?;
        }
        gone.push(json!({ "name": name, "was_up": was_up }));
    }
    if json {
        writeln!(out, "{}", json!({ "down": gone }))?;
    } else if gone.is_empty() {
        writeln!(out, "no lab is up")?;
    }
    Ok(Exit::Ok)
}

fn exec(args: &ExecArgs) -> VerbResult {
    let (lab, host) = match (&args.place[..], &args.lab) {
        ([host], Some(lab)) | ([lab, host], None) => (Lab::open(lab).map_err(refused)?, host),
        ([host], None) => (Lab::only().map_err(refused)?, host),
        _ => return Err(VerbError::usage("write: lab exec --lab LAB HOST -- PROGRAM")),
    };
    if lab.plan().guest(host).is_some() {
        if args.detach {
            let advice = "write: lab exec GUEST -- sh -c 'PROGRAM &'";
            return Err(VerbError::usage(format!("{host} is a guest; {advice}")));
        }
        return crate::guest::run(&lab.guest(host).map_err(refused)?, &args.program);
    }
    if args.detach {
        return match lab.exec_detached(&program(), host, &args.program) {
            Ok(pid) => {
                writeln!(crate::out::stdout(), "{pid}")?;
                let log = lab.detached_log(host);
                // Informational: a closed stderr does not affect the program.
                writeln!(crate::out::stderr(), "clearstream: output in {}", log.display()).ok();
                Ok(Exit::Ok)
            }
            Err(error) => not_executed(error),
        };
    }
    match lab.exec(&program(), host, &args.program) {
        Ok(ExecEnd::Code(code)) => Ok(Exit::Program(code)),
        Ok(ExecEnd::Signal(number)) => Ok(Exit::Signal(number)),
        Err(error) => not_executed(error),
    }
}

/// A program that cannot be started ends with the exit codes that shells use.
fn not_executed(error: ExecError) -> VerbResult {
    match error {
        ExecError::Lab(error) => Err(refused(error)),
        ExecError::Program { code, message } => {
            writeln!(crate::out::stderr(), "clearstream: {message}")?;
            Ok(Exit::Program(code))
        }
        other => Err(VerbError::from_error(&other)),
    }
}

fn list(json: bool) -> VerbResult {
    let up = Lab::all().map_err(refused)?;
    let mut rows: Vec<(String, bool, String)> = up
        .iter()
        .map(|lab| (lab.plan().name.clone(), true, lab.plan().description.clone()))
        .collect();
    for builtin in builtin_labs() {
        if !rows.iter().any(|(name, ..)| name == builtin.name) {
            let description = builtin.plan().map(|plan| plan.description);
            rows.push((builtin.name.to_owned(), false, description.unwrap_or_default()));
        }
    }
    let mut out = crate::out::stdout();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, is_up, description)| {
                json!({ "name": name, "up": is_up, "description": description })
            })
            .collect();
        writeln!(out, "{}", json!({ "labs": rows }))?;
        return Ok(Exit::Ok);
    }
    let width = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, is_up, description) in rows {
        let label = format!("{name:<width$} {:<5} ", if is_up { "up" } else { "-" });
        write!(out, "{}", crate::tables::labelled(&label, &description))?;
    }
    Ok(Exit::Ok)
}

fn status(name: Option<&str>, json: bool) -> VerbResult {
    let labs = match name {
        Some(name) => vec![Lab::open(name).map_err(refused)?],
        None => Lab::all().map_err(refused)?,
    };
    let mut out = crate::out::stdout();
    if json {
        let mut rows = Vec::new();
        for lab in &labs {
            let counters = lab.counters().map_err(refused)?;
            rows.push(json!({ "name": lab.plan().name, "pid": lab.pid(),
                "owner_pid": lab.owner_pid(), "plan": lab.plan(), "notes": lab.notes(),
                "links": counters.links, "switches": switches(lab, &counters.switches),
                "guests": guests(lab), "failures": lab.failures().map_err(refused)? }));
        }
        writeln!(out, "{}", json!({ "labs": rows }))?;
    } else if labs.is_empty() {
        writeln!(out, "no lab is up; bring one up with: clearstream lab up glif2010")?;
    } else {
        for lab in &labs {
            show::status(&mut out, lab, &lab.counters().map_err(refused)?)?;
        }
    }
    Ok(Exit::Ok)
}

/// The counters of the lab's switches, and the socket by which programs attach to each.
fn switches(lab: &Lab, counted: &[SwitchCounters]) -> Vec<serde_json::Value> {
    let row = |counters: &SwitchCounters| {
        json!({ "switch": counters.switch, "ports": counters.ports,
        "socket": lab.switch_socket(&counters.switch) })
    };
    counted.iter().map(row).collect()
}

/// The lab's guests, and whether each is running.
fn guests(lab: &Lab) -> Vec<serde_json::Value> {
    let guests = lab.plan().guests.iter();
    guests
        .map(|guest| json!({ "name": guest.name, "up": lab.guest(&guest.name).is_ok() }))
        .collect()
}

fn print_file(name: &str, json: bool) -> VerbResult {
    let Some(builtin) = builtin_labs().iter().find(|lab| lab.name == name) else {
        return Err(refused(match find_plan(name) {
            Err(error) => error,
            Ok(_) => {
                let advice = "`lab show` prints files of built-in labs: see `lab list`";
                return Err(VerbError::usage(format!("'{name}' is your own lab file; {advice}")));
            }
        }));
    };
    if json {
        let plan = builtin.plan().map_err(|error| refused(error.into()))?;
        writeln!(crate::out::stdout(), "{}", json!({ "plan": plan, "file": builtin.text }))?;
    } else {
        crate::out::stdout().write_all(builtin.text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

/// The program for the lab's own processes: this one.
fn program() -> Program {
    Program::new("/proc/self/exe", &["lab", "internal"])
}

fn refused(error: LabError) -> VerbError {
    error.into()
}
