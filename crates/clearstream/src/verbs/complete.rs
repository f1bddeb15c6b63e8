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
    /// Hosts and guests, which programs can be run on.
    Machines(Option<String>),
    /// Hosts with commas between them.
    HostList(Option<String>),
    /// What `lab fail` calls the ports of a host: interfaces, switches, hosts at the other end.
    HostPorts(Option<String>, String),
    /// Virtual machines that are up.
    Guests,
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
    // `--lab=office` is `--lab office`, and what stands before a value stays in front of it.
    let before = split_values(before);
    let (option, value) = match typed.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (Some(option), value),
        _ => (None, *typed),
    };
    let before: Vec<&str> = before.into_iter().chain(option).collect();
    let wanted = wanted(&before);
    let is_list = matches!(wanted, Some(Wanted::HostList(_)));
    let kept = value.rfind(',').filter(|_| is_list).map_or(0, |comma| comma + 1);
    let front = &typed[..typed.len() - value.len() + kept];
    let names = wanted.map(|wanted| names(&wanted, &before)).unwrap_or_default();
    let mut out = crate::out::stdout();
    for name in names.iter().filter(|name| name.starts_with(&value[kept..])) {
        writeln!(out, "{front}{name}")?;
    }
    Ok(Exit::Ok)
}

/// Words with `--option=value` as two.
fn split_values<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let ours = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let split = words[..ours].iter().flat_map(|word| match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => vec![option, value],
        _ => vec![*word],
    });
    split.chain(words[ours..].iter().copied()).collect()
}

/// The kind of name that comes after these words.
fn wanted(before: &[&str]) -> Option<Wanted> {
    const WITH_VALUE: [&str; 3] = ["--lab", "--socket", "--hosts"];
    // After `--` comes a program with its arguments.
    if before.contains(&"--") {
        return None;
    }
    let lab = before.iter().position(|word| *word == "--lab");
    let lab = lab.and_then(|number| before.get(number + 1)).map(|lab| (*lab).to_owned());
    match before {
        [.., "--lab"] => return Some(Wanted::LabsUp),
        // `gateway` has hosts of a plan, which need not be up.
        [.., "--hosts"] if before.iter().any(|word| ["io", "meta"].contains(word)) => {
            return lab.map(|lab| Wanted::HostList(Some(lab)));
        }
        ["iperf3", .., "-c" | "--client"] => return of_this_lab(),
        [.., last] if WITH_VALUE.contains(last) => return None,
        _ => {}
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
        ["lab", "exec"] => Some(Wanted::Machines(lab)),
        ["lab", "exec", first] if lab.is_none() => Some(Wanted::Machines(Some(first.to_owned()))),
        ["lab", "fail" | "mend"] => Some(Wanted::Hosts(lab)),
        ["lab", "fail" | "mend", _host] => Some(Wanted::Failures),
        ["lab", "fail" | "mend", host, "port" | "carrier"] => {
            Some(Wanted::HostPorts(lab, host.to_owned()))
        }
        ["vm", "down" | "exec" | "console"] => Some(Wanted::Guests),
        ["port", "del" | "stats" | "capture"] | ["link", "del"] => Some(Wanted::Ports),
        ["pkt", "gen" | "sink" | "echo" | "ping" | "bridge"] => Some(Wanted::Ports),
        ["pkt", "bridge", _one] => Some(Wanted::Ports),
        ["port", "add"] | ["link", "add"] | ["link", "add", _] => Some(Wanted::Switches),
        ["path" | "test" | "place"] | ["tune", "plan" | "apply"] => of_this_lab(),
        ["help"] => Some(Wanted::Help),
        _ => None,
    }
}

/// Hosts of the lab in which the shell runs.
fn of_this_lab() -> Option<Wanted> {
    std::env::var("CLEARSTREAM_LAB").ok().map(|lab| Wanted::Hosts(Some(lab)))
}

fn names(wanted: &Wanted, before: &[&str]) -> Vec<String> {
    match wanted {
        Wanted::LabsUp => labs().iter().map(|lab| lab.plan().name.clone()).collect(),
        Wanted::LabsBuiltIn => builtin_labs().iter().map(|lab| lab.name.to_owned()).collect(),
        Wanted::Hosts(only) => hosts(only.as_deref(), false, false),
        Wanted::HostList(only) => hosts(only.as_deref(), false, false),
        // A lab may stand before the host where several are up.
        Wanted::Machines(only) => hosts(only.as_deref(), true, true),
        Wanted::HostPorts(only, host) => host_ports(only.as_deref(), host),
        Wanted::Guests => {
            let guests = vm::Machine::all().unwrap_or_default();
            guests.iter().map(|guest| guest.state().config.name.clone()).collect()
        }
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

/// Hosts of one lab, or of all, with their guests; with several labs up, the labs' names too.
fn hosts(only: Option<&str>, with_guests: bool, with_labs: bool) -> Vec<String> {
    let labs = labs();
    let mut names: Vec<String> = labs
        .iter()
        .filter(|lab| only.is_none_or(|only| lab.plan().name == only))
        .flat_map(|lab| {
            let hosts = lab.plan().hosts.iter().map(|host| host.name.clone());
            let guests = lab.plan().guests.iter().filter(|_| with_guests);
            hosts.chain(guests.map(|guest| guest.name.clone()))
        })
        .collect();
    if with_labs && only.is_none() && labs.len() > 1 {
        names.extend(labs.iter().map(|lab| lab.plan().name.clone()));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The ports of a host, by the names that `lab fail` takes.
fn host_ports(only: Option<&str>, host: &str) -> Vec<String> {
    let mut names = Vec::new();
    for lab in labs().iter().filter(|lab| only.is_none_or(|only| lab.plan().name == only)) {
        for link in &lab.plan().links {
            let [one, other] = &link.ends;
            for (own, far) in [(one, other), (other, one)] {
                if own.host == host {
                    names.extend([own.interface.clone(), far.host.clone()]);
                }
            }
        }
        for switch in &lab.plan().switches {
            for end in switch.ends.iter().filter(|end| end.host == host) {
                names.extend([end.interface.clone(), switch.name.clone()]);
            }
        }
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
        let dsl = || Some("dsl".to_owned());
        assert_eq!(of("lab exec --detach"), Some(Wanted::Machines(None)));
        assert_eq!(of("lab exec dsl"), Some(Wanted::Machines(dsl())));
        assert_eq!(of("lab exec --lab dsl"), Some(Wanted::Machines(dsl())));
        assert_eq!(of("lab exec --lab dsl near"), None);
        assert_eq!(
            of("lab fail near port --lab dsl"),
            Some(Wanted::HostPorts(dsl(), "near".into()))
        );
        assert_eq!(of("io --lab dsl --hosts"), Some(Wanted::HostList(dsl())));
        assert_eq!(of("vm console"), Some(Wanted::Guests));
        assert_eq!(of("lab exec near --"), None);
        assert_eq!(of("lab fail --lab dsl"), Some(Wanted::Hosts(dsl())));
        assert_eq!(of("gateway apply plan.toml --lab"), Some(Wanted::LabsUp));
        assert_eq!(of("port --socket /run/x del"), Some(Wanted::Ports));
        assert_eq!(of("link add vale0:a"), Some(Wanted::Switches));
        assert_eq!(of("report"), None);
    }

    #[test]
    fn an_option_with_its_value_is_two_words_up_to_the_program() {
        let words = ["lab", "exec", "--lab=dsl", "near", "--", "ls", "--sort=size"];
        let split = ["lab", "exec", "--lab", "dsl", "near", "--", "ls", "--sort=size"];
        assert_eq!(split_values(&words), split);
    }
}
