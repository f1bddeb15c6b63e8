//! `clearstream complete`: names that only the program and this machine know (labs, hosts, ports, guests,
//! experiments, models, topics). The shells' completions request them while a command line is typed.
//!
//! Hidden from users' help. On any error it prints nothing, and the shell offers its own completions.

mod cursor;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Command, CommandFactory};
use lab::{Lab, builtin_labs};
use packet_switch::client::{Connection, default_socket};
use route_plan::{Plan, parse_plan};

use crate::catalogue;
use crate::exit::Exit;
use crate::plans;
use crate::topics::{SCHEMA, TOPICS};
use crate::{CommandLine, VerbResult};
use cursor::Cursor;

/// The longest time that a shell waits for names: a switch that is stopped does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

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
    HostList(String),
    /// What `lab fail` calls the ports of a host: interfaces, switches, hosts at the other end.
    HostPorts(Option<String>, String),
    /// Failures that a lab's host can have.
    Failures,
    /// Virtual machines that are up.
    Guests,
    /// Ports and groups of pipes of the switch process with this socket, or the usual one.
    Ports(Option<String>),
    /// `SWITCH:`, for a new port.
    Switches(Option<String>),
    /// Figures and tables of papers.
    Experiments,
    /// Models that come with the program.
    Models,
    /// Actions of a command; without one, commands and help topics.
    Help(Vec<String>),
    /// Plans that come with the program.
    Plans,
    /// Gateways of this plan.
    Gateways(String),
    /// Hosts and gateways of this plan.
    PlanHosts(String),
    /// Network interfaces of this host.
    Interfaces,
    /// Settings that `tune` changes.
    Settings,
}

/// Prints the names, one per line.
pub(crate) fn run(args: &CompleteArgs, _json: bool) -> VerbResult {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let Some((typed, before)) = words.split_last() else { return Ok(Exit::Ok) };
    let this_lab = std::env::var("CLEARSTREAM_LAB").ok();
    let Some((wanted, value_at)) = wanted(&root(), before, typed, this_lab) else {
        return Ok(Exit::Ok);
    };
    let (front, value) = typed.split_at(value_at);
    let mut out = crate::out::stdout();
    for name in names_in_time(wanted).iter().filter(|name| name.starts_with(value)) {
        writeln!(out, "{front}{name}")?;
    }
    Ok(Exit::Ok)
}

/// The command line's definition, options of all commands included in each.
fn root() -> Command {
    let mut root = CommandLine::command();
    root.build();
    root
}

/// The kind of name that is being typed, and where in the word it starts. `this_lab` is the lab that the
/// shell runs in.
fn wanted(
    root: &Command,
    before: &[&str],
    typed: &str,
    this_lab: Option<String>,
) -> Option<(Wanted, usize)> {
    let cursor = Cursor::find(root, before, typed)?;
    if cursor.argument == "options" {
        return unparsed(&cursor, typed, this_lab);
    }
    let lab = || cursor.value_of("lab").map(str::to_owned);
    let socket = || cursor.value_of("socket").map(str::to_owned);
    let command: Vec<&str> = cursor.command.iter().map(String::as_str).collect();
    let wanted = match (&command[..], cursor.argument.as_str()) {
        (["lab", "up" | "show"], "lab") => Wanted::LabsBuiltIn,
        (["lab" | "gateway", _], "lab" | "named") => Wanted::LabsUp,
        (["lab", "exec"], "place") => {
            // A lab may come before the host where several are up.
            let first = || cursor.value_of("place").map(str::to_owned);
            match (lab(), first()) {
                (Some(_), Some(_)) => return None,
                (lab, first) => Wanted::Machines(lab.or(first)),
            }
        }
        (["lab", "fail" | "mend"], "host") => Wanted::Hosts(lab()),
        (["lab", "fail" | "mend"], "kind") => Wanted::Failures,
        (["lab", "fail" | "mend"], "port") => {
            cursor.value_of("kind").filter(|kind| ["port", "carrier"].contains(kind))?;
            Wanted::HostPorts(lab(), cursor.value_of("host")?.to_owned())
        }
        (["vm", "down" | "exec" | "console"], "name") => Wanted::Guests,
        (["vm", "run" | "port"], "port") => Wanted::Switches(socket()),
        (["port", "add"], "name") | (["link", "add"], "one" | "other") => {
            Wanted::Switches(socket())
        }
        (["port", "del" | "stats" | "capture"], "name") | (["link", "del"], "port") => {
            Wanted::Ports(socket())
        }
        (["pkt", _], "port" | "other") => Wanted::Ports(socket()),
        (["path" | "test" | "place" | "reproduce"] | ["tune", "plan" | "apply"], "host")
        | (["live"], "far") => Wanted::Hosts(Some(this_lab?)),
        (["reproduce"], "id") => Wanted::Experiments,
        (["check"], "example") => Wanted::Models,
        (["help"], "words") => Wanted::Help(cursor.values_of("words").map(str::to_owned).collect()),
        (words, argument) => of_plan_or_host(words, argument, &cursor)?,
    };
    Some((wanted, cursor.value_at))
}

/// What a gateway plan names, or this host has.
fn of_plan_or_host(command: &[&str], argument: &str, cursor: &Cursor) -> Option<Wanted> {
    let plan = || cursor.value_of("plan").map(str::to_owned);
    match (command, argument) {
        (["gateway", _], "plan") => Some(Wanted::Plans),
        (["gateway", "drain" | "undrain"], "gateway") => Some(Wanted::Gateways(plan()?)),
        (["gateway", _], "host") => Some(Wanted::PlanHosts(plan()?)),
        (["live"] | ["tune", "dump"], "interfaces") => Some(Wanted::Interfaces),
        (["tune", "apply"], "only") | (["tune", "revert"], "keys") => Some(Wanted::Settings),
        _ => None,
    }
}

/// The same for `io`, `meta` and `iperf3`, whose options clap does not know.
fn unparsed(cursor: &Cursor, typed: &str, this_lab: Option<String>) -> Option<(Wanted, usize)> {
    let mut words: Vec<&str> = Vec::new();
    for word in cursor.values_of("options") {
        words.extend(halves(word).into_iter().flatten());
    }
    if words.contains(&"--") {
        return None;
    }
    let [option, value] = halves(typed);
    // `--lab=dsl` is `--lab dsl`.
    let (option, value) = match (option, value) {
        (option, Some(value)) => (option, value),
        _ => (words.last().copied(), typed),
    };
    let lab = words.iter().position(|word| *word == "--lab").and_then(|at| words.get(at + 1));
    let value_at = typed.len() - value.len();
    match (cursor.command[0].as_str(), option?) {
        ("io" | "meta", "--lab") => Some((Wanted::LabsUp, value_at)),
        ("io" | "meta", "--hosts") => {
            let behind_comma = value.rfind(',').map_or(0, |comma| comma + 1);
            Some((Wanted::HostList((*lab?).to_owned()), value_at + behind_comma))
        }
        ("iperf3", "-c" | "--client") => Some((Wanted::Hosts(Some(this_lab?)), value_at)),
        _ => None,
    }
}

/// `--option=value` as an option and a value; any other word as it is.
fn halves(word: &str) -> [Option<&str>; 2] {
    match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => [Some(option), Some(value)],
        _ => [Some(word), None],
    }
}

/// The names of a kind; none where they are not known in time. Some are asked of other processes.
fn names_in_time(wanted: Wanted) -> Vec<String> {
    let (send, receive) = mpsc::channel();
    // Without a thread, or when nobody waits any more, there are no names.
    thread::Builder::new().spawn(move || send.send(names(&wanted))).ok();
    receive.recv_timeout(PATIENCE).unwrap_or_default()
}

fn names(wanted: &Wanted) -> Vec<String> {
    match wanted {
        Wanted::LabsUp => labs().iter().map(|lab| lab.plan().name.clone()).collect(),
        Wanted::LabsBuiltIn => builtin_labs().iter().map(|lab| lab.name.to_owned()).collect(),
        Wanted::Hosts(only) => hosts(only.as_deref()),
        Wanted::HostList(only) => hosts(Some(only)),
        Wanted::Machines(only) => machines(only.as_deref()),
        Wanted::HostPorts(only, host) => host_ports(only.as_deref(), host),
        Wanted::Failures => ["forward", "hang", "port", "carrier"].map(str::to_owned).to_vec(),
        Wanted::Guests => {
            let guests = vm::Machine::all().unwrap_or_default();
            guests.iter().map(|guest| guest.state().config.name.clone()).collect()
        }
        Wanted::Ports(socket) => ports(socket.as_deref()),
        Wanted::Switches(socket) => {
            let ports = ports(socket.as_deref());
            let switches = ports.iter().filter_map(|port| port.split_once(':'));
            in_order(switches.map(|(switch, _)| format!("{switch}:")))
        }
        Wanted::Experiments => catalogue::ids().map(str::to_owned).collect(),
        Wanted::Models => dve::EXAMPLES.iter().map(|model| model.name.to_owned()).collect(),
        Wanted::Help(words) => commands_and_topics(words),
        Wanted::Plans => plans::builtin_names().map(str::to_owned).collect(),
        Wanted::Gateways(file) => {
            of_plan(file, |plan| plan.gateways.iter().map(|gateway| gateway.name.clone()).collect())
        }
        Wanted::PlanHosts(file) => of_plan(file, |plan| plan.names().map(str::to_owned).collect()),
        Wanted::Interfaces => interfaces(),
        Wanted::Settings => {
            tuning::every_key(&interfaces()).iter().map(ToString::to_string).collect()
        }
    }
}

/// Names from a plan; none if it cannot be read. A shell's completion has no standard input to read it from.
fn of_plan(file: &str, names: impl Fn(&Plan) -> Vec<String>) -> Vec<String> {
    let file_text = || plans::plan_text(Path::new(file)).ok();
    let text = if file == "-" { None } else { file_text() };
    let plan = text.and_then(|text| parse_plan(file, &text).ok());
    plan.map_or_else(Vec::new, |plan| names(&plan))
}

fn interfaces() -> Vec<String> {
    topology::interfaces().into_iter().map(|link| link.name).collect()
}

/// The actions of a command; without a command, all commands and topics.
fn commands_and_topics(words: &[String]) -> Vec<String> {
    let root = CommandLine::command();
    let mut command = &root;
    for word in words {
        let Some(found) = command.find_subcommand(word) else { return Vec::new() };
        command = found;
    }
    let shown = command.get_subcommands().filter(|action| !action.is_hide_set());
    let topics = TOPICS.iter().map(|topic| topic.name).chain([SCHEMA]);
    let topics = topics.filter(|_| words.is_empty());
    shown.map(Command::get_name).chain(topics).map(str::to_owned).collect()
}

fn labs() -> Vec<Lab> {
    Lab::all_now().unwrap_or_default()
}

/// The lab of this name, or all.
fn labs_of(only: Option<&str>) -> impl Iterator<Item = Lab> {
    labs().into_iter().filter(move |lab| only.is_none_or(|only| lab.plan().name == only))
}

fn hosts(only: Option<&str>) -> Vec<String> {
    in_order(labs_of(only).flat_map(|lab| {
        let hosts = lab.plan().hosts.iter();
        hosts.map(|host| host.name.clone()).collect::<Vec<_>>()
    }))
}

/// Hosts and guests; with several labs up, the labs' names too, which may come before a host's.
fn machines(only: Option<&str>) -> Vec<String> {
    let mut names = hosts(only);
    names.extend(labs_of(only).flat_map(|lab| {
        let guests = lab.plan().guests.iter();
        guests.map(|guest| guest.name.clone()).collect::<Vec<_>>()
    }));
    let labs = labs();
    if only.is_none() && labs.len() > 1 {
        names.extend(labs.iter().map(|lab| lab.plan().name.clone()));
    }
    in_order(names)
}

/// The ports of a host, by the names that `lab fail` takes.
fn host_ports(only: Option<&str>, host: &str) -> Vec<String> {
    let mut names = Vec::new();
    for lab in labs_of(only) {
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
    in_order(names)
}

fn ports(socket: Option<&str>) -> Vec<String> {
    let socket = socket.map_or_else(default_socket, PathBuf::from);
    let entries = Connection::open(&socket).and_then(|mut connection| connection.list());
    entries.unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

fn in_order(names: impl IntoIterator<Item = String>) -> Vec<String> {
    names.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last word of a line stands for, in a shell outside of a lab.
    fn of(line: &str) -> Option<Wanted> {
        of_in(None, line)
    }

    fn of_in(this_lab: Option<&str>, line: &str) -> Option<Wanted> {
        let words: Vec<&str> = line.split(' ').collect();
        let (typed, before) = words.split_last().expect("a word");
        wanted(&root(), before, typed, this_lab.map(str::to_owned)).map(|(wanted, _)| wanted)
    }

    #[test]
    fn the_argument_decides_what_can_be_named() {
        let dsl = || Some("dsl".to_owned());
        assert_eq!(of("lab up "), Some(Wanted::LabsBuiltIn));
        assert_eq!(of("lab show "), Some(Wanted::LabsBuiltIn));
        assert_eq!(of("lab down "), Some(Wanted::LabsUp));
        assert_eq!(of("--json lab status "), Some(Wanted::LabsUp));
        assert_eq!(of("lab exec --detach "), Some(Wanted::Machines(None)));
        assert_eq!(of("lab exec dsl "), Some(Wanted::Machines(dsl())));
        assert_eq!(of("lab exec --lab dsl "), Some(Wanted::Machines(dsl())));
        assert_eq!(of("lab exec --lab dsl near "), None);
        assert_eq!(of("lab exec near -- "), None);
        assert_eq!(of("lab fail --lab dsl "), Some(Wanted::Hosts(dsl())));
        assert_eq!(of("lab mend near "), Some(Wanted::Failures));
        let ports = Some(Wanted::HostPorts(dsl(), "near".into()));
        assert_eq!(of("lab fail near port --lab dsl "), ports);
        assert_eq!(of("lab fail near hang "), None);
        assert_eq!(of("gateway apply plan.toml --lab "), Some(Wanted::LabsUp));
        assert_eq!(of("vm console "), Some(Wanted::Guests));
        assert_eq!(of("vm run one --port "), Some(Wanted::Switches(None)));
        assert_eq!(of("port --socket /run/x del "), Some(Wanted::Ports(Some("/run/x".into()))));
        assert_eq!(of("port add "), Some(Wanted::Switches(None)));
        assert_eq!(of("port stats "), Some(Wanted::Ports(None)));
        assert_eq!(of("link add vale0:a "), Some(Wanted::Switches(None)));
        assert_eq!(of("link del "), Some(Wanted::Ports(None)));
        assert_eq!(of("pkt ping --size 64 "), Some(Wanted::Ports(None)));
        assert_eq!(of("pkt bridge vale0:a "), Some(Wanted::Ports(None)));
        assert_eq!(of("reproduce --repeats 5 "), Some(Wanted::Experiments));
        assert_eq!(of("check --example "), Some(Wanted::Models));
        assert_eq!(of("check "), None);
        assert_eq!(of("help "), Some(Wanted::Help(Vec::new())));
        assert_eq!(of("report "), None);
        let plan = || "cumulus".to_owned();
        assert_eq!(of("gateway plan "), Some(Wanted::Plans));
        assert_eq!(of("gateway explain a:1 b:2 --plan "), Some(Wanted::Plans));
        assert_eq!(of("gateway drain cumulus "), Some(Wanted::Gateways(plan())));
        assert_eq!(of("gateway watch cumulus --host "), Some(Wanted::PlanHosts(plan())));
        assert_eq!(of("gateway revert --host "), None);
        assert_eq!(of("live "), Some(Wanted::Interfaces));
        assert_eq!(of("tune apply geneva --only "), Some(Wanted::Settings));
        assert_eq!(of("tune revert "), Some(Wanted::Settings));
    }

    #[test]
    fn hosts_to_test_against_are_those_of_the_lab_that_the_shell_runs_in() {
        let dsl = || Some(Wanted::Hosts(Some("dsl".to_owned())));
        for line in [
            "path ",
            "test -w 1M ",
            "place ",
            "reproduce C-fig6 ",
            "tune plan ",
            "live --far ",
            "iperf3 -c ",
            "iperf3 --client=",
        ] {
            assert_eq!(of_in(Some("dsl"), line), dsl(), "{line}");
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn io_and_meta_take_a_lab_and_its_hosts() {
        assert_eq!(of("io --lab "), Some(Wanted::LabsUp));
        assert_eq!(of("meta --lab="), Some(Wanted::LabsUp));
        assert_eq!(of("io --lab dsl --hosts a,"), Some(Wanted::HostList("dsl".into())));
        assert_eq!(of("io --hosts "), None);
        assert_eq!(of("io --lab dsl -- --hosts "), None);
        let hosts = wanted(&root(), &["io", "--lab=dsl"], "--hosts=a,b", None);
        assert_eq!(hosts, Some((Wanted::HostList("dsl".into()), "--hosts=a,".len())));
    }

    #[test]
    fn help_offers_commands_and_topics_then_actions() {
        let first = commands_and_topics(&[]);
        for name in ["path", "help", "limits", "schema"] {
            assert!(first.iter().any(|known| known == name), "{name}: {first:?}");
        }
        assert!(!first.iter().any(|name| name == "complete"), "{first:?}");
        let actions = commands_and_topics(&["lab".to_owned()]);
        assert!(actions.contains(&"exec".to_owned()), "{actions:?}");
        assert!(!actions.contains(&"internal".to_owned()), "{actions:?}");
        assert_eq!(commands_and_topics(&["limits".to_owned()]), [""; 0]);
    }
}
