//! `clearstream complete`: names that only this machine knows (labs, hosts, ports, switches). The shells'
//! completions request them while a command line is typed.
//!
//! Hidden from users' help. On any error it prints nothing, and the shell offers its own completions.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use lab::{Lab, builtin_labs};
use packet_switch::client::{Connection, default_socket};

use crate::exit::Exit;
use crate::topics::{SCHEMA, TOPICS};
use crate::{CommandLine, VerbResult};

/// Options of `complete`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArgs {
    /// The words after the program's name, the last one as far as it is typed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Kind of name that the word being typed stands for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Running labs.
    LabsUp,
    /// Built-in labs.
    LabsBuiltIn,
    /// Hosts of this lab, or of all running labs.
    Hosts(Option<String>),
    /// Ports and groups of pipes of a switch process.
    Ports,
    /// `SWITCH:`, for a new port.
    Switches,
    /// Failures that a lab's host can have.
    Failures,
    /// Commands and help topics.
    Help,
}

/// Prints the names, one per line.
pub(crate) fn run(args: &CompleteArgs, _json: bool) -> VerbResult {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let Some((typed, before)) = words.split_last() else { return Ok(Exit::Ok) };
    let names = wanted(before).map(|wanted| names(&wanted, before)).unwrap_or_default();
    let mut out = crate::out::stdout();
    for name in names.iter().filter(|name| name.starts_with(typed)) {
        writeln!(out, "{name}")?;
    }
    Ok(Exit::Ok)
}

/// The kind of name that comes after these words.
fn wanted(before: &[&str]) -> Option<Wanted> {
    const WITH_VALUE: [&str; 2] = ["--lab", "--socket"];
    match before.last() {
        Some(&"--lab") => return Some(Wanted::LabsUp),
        Some(last) if WITH_VALUE.contains(last) => return None,
        _ => {}
    }
    // After `--` comes a program with its arguments.
    if before.contains(&"--") {
        return None;
    }
    let is_value = |number: usize| number > 0 && WITH_VALUE.contains(&before[number - 1]);
    let named: Vec<&str> = before
        .iter()
        .enumerate()
        .filter(|(number, word)| !word.starts_with('-') && !is_value(*number))
        .map(|(_, word)| *word)
        .collect();
    match named[..] {
        ["lab", "down" | "status"] => Some(Wanted::LabsUp),
        ["lab", "up" | "show"] => Some(Wanted::LabsBuiltIn),
        ["lab", "exec" | "fail" | "mend"] => Some(Wanted::Hosts(None)),
        ["lab", "exec", lab] => Some(Wanted::Hosts(Some(lab.to_owned()))),
        ["lab", "fail" | "mend", _host] => Some(Wanted::Failures),
        ["port", "del" | "stats" | "capture"] | ["link", "del"] => Some(Wanted::Ports),
        ["pkt", "gen" | "sink" | "echo" | "ping" | "bridge"] => Some(Wanted::Ports),
        ["pkt", "bridge", _one] => Some(Wanted::Ports),
        ["port", "add"] | ["link", "add"] | ["link", "add", _] => Some(Wanted::Switches),
        ["path" | "test" | "place"] => {
            std::env::var("CLEARSTREAM_LAB").ok().map(|lab| Wanted::Hosts(Some(lab)))
        }
        ["help"] => Some(Wanted::Help),
        _ => None,
    }
}

fn names(wanted: &Wanted, before: &[&str]) -> Vec<String> {
    match wanted {
        Wanted::LabsUp => labs().iter().map(|lab| lab.plan().name.clone()).collect(),
        Wanted::LabsBuiltIn => builtin_labs().iter().map(|lab| lab.name.to_owned()).collect(),
        Wanted::Hosts(only) => hosts(only.as_deref()),
        Wanted::Ports => ports(before),
        Wanted::Switches => {
            let ports = ports(before);
            let switches = ports.iter().filter_map(|port| port.split_once(':'));
            let mut switches: Vec<String> =
                switches.map(|(switch, _)| format!("{switch}:")).collect();
            switches.sort_unstable();
            switches.dedup();
            switches
        }
        Wanted::Failures => ["forward", "hang", "port", "carrier"].map(str::to_owned).to_vec(),
        Wanted::Help => {
            let command = CommandLine::command();
            let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
            let verbs = verbs.map(|verb| verb.get_name().to_owned());
            let topics = TOPICS.iter().map(|topic| topic.name).chain([SCHEMA]);
            verbs.chain(topics.map(str::to_owned)).collect()
        }
    }
}

fn labs() -> Vec<Lab> {
    Lab::all().unwrap_or_default()
}

/// Hosts of one lab, or of all; with several labs up, the labs' names too.
fn hosts(only: Option<&str>) -> Vec<String> {
    let labs = labs();
    let mut names: Vec<String> = labs
        .iter()
        .filter(|lab| only.is_none_or(|only| lab.plan().name == only))
        .flat_map(|lab| lab.plan().hosts.iter().map(|host| host.name.clone()))
        .collect();
    if only.is_none() && labs.len() > 1 {
        names.extend(labs.iter().map(|lab| lab.plan().name.clone()));
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn ports(before: &[&str]) -> Vec<String> {
    let named = before.iter().position(|word| *word == "--socket");
    let named = named.and_then(|number| before.get(number + 1)).map(PathBuf::from);
    let socket = named.unwrap_or_else(default_socket);
    let entries = Connection::open(&socket).and_then(|mut connection| connection.list());
    entries.unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_before_decides_what_can_be_named() {
        let of = |line: &str| wanted(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(of("lab down"), Some(Wanted::LabsUp));
        assert_eq!(of("--json lab status"), Some(Wanted::LabsUp));
        assert_eq!(of("lab exec --detach"), Some(Wanted::Hosts(None)));
        assert_eq!(of("lab exec dsl"), Some(Wanted::Hosts(Some("dsl".to_owned()))));
        assert_eq!(of("lab exec near --"), None);
        assert_eq!(of("lab fail --lab dsl"), Some(Wanted::Hosts(None)));
        assert_eq!(of("gateway apply plan.toml --lab"), Some(Wanted::LabsUp));
        assert_eq!(of("port --socket /run/x del"), Some(Wanted::Ports));
        assert_eq!(of("link add vale0:a"), Some(Wanted::Switches));
        assert_eq!(of("report"), None);
    }
}
