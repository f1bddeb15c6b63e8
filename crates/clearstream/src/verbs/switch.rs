//! `clearstream switch`: the daemon of the packet switch.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use packet_switch::client::default_socket;
use packet_switch::daemon::{Config, Daemon, DaemonError, Notice};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::log::{ClientLog, Log};
use crate::signals;
use crate::verbs::options::{Cores, check_cores, cores};

/// Options of `switch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    clearstream switch run --cores auto &\n  \
    clearstream pkt sink vale0:b &\n  \
    clearstream pkt gen vale0:a --dst 02:00:00:00:00:02 --count 1000000\n  \
    clearstream port stats\n\n\
    The switch needs no privilege: clients are local processes that may open its socket. Once it\n\
    listens, it gives up the system calls that it does not need; such a call then fails with EPERM\n\
    and is logged.")]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Serve ports and pipes until Ctrl-C.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Where clients connect [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Longest time that an idle switch polls before it sleeps, while frames keep arriving: longer
    /// gives lower latency, shorter frees the core.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::parse_duration)]
    linger: Duration,
    /// Cores on which the switch's threads run: 0,2-5, or auto for those next to the fastest network card
    /// that serve no receive interrupts [default: any].
    #[arg(long, value_name = "CORES", value_parser = place)]
    cores: Option<Place>,
    /// Keep all system calls instead of giving up those that a switch does not need.
    #[arg(long)]
    no_sandbox: bool,
    /// Maximum memory for all ports, pipes, devices and links together: 8G.
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = units::parse_byte_size)]
    memory: u64,
}

/// Placement of the switch's threads.
#[derive(Debug, Clone)]
enum Place {
    Auto,
    On(Cores),
}

fn place(text: &str) -> Result<Place, String> {
    if text == "auto" { Ok(Place::Auto) } else { cores(text).map(Place::On) }
}

impl Place {
    /// The cores, and their description with the reason.
    fn decide(&self) -> (Vec<u32>, String) {
        let (cores, why) = match self {
            Self::On(Cores(list)) => (list.clone(), "as asked for".to_owned()),
            Self::Auto => {
                let choice = topology::forwarding_cores(&topology::machine());
                (choice.cores, choice.why)
            }
        };
        let list: Vec<String> = cores.iter().map(u32::to_string).collect();
        let named = if list.is_empty() { "any".to_owned() } else { list.join(",") };
        (cores, format!("{named}: {why}"))
    }
}

pub(crate) fn run(args: &SwitchArgs, json: bool) -> VerbResult {
    let Action::Run(run) = &args.action;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    allow_descriptors();
    let log = Log { json };
    if let Some(Place::On(Cores(list))) = &run.cores {
        check_cores(list)?;
    }
    let placed = run.cores.as_ref().map(Place::decide);
    if let Some((_, said)) = &placed {
        log.line("cores", said);
    }
    let config = Config {
        linger: run.linger,
        cores: placed.map_or_else(Vec::new, |(cores, _)| cores),
        memory_bytes_max: run.memory,
        ..Config::new(run.socket.clone().unwrap_or_else(default_socket))
    };
    let socket = config.socket.display().to_string();
    let mut daemon = Daemon::bind(config).map_err(|error| explain(&error))?;
    if let Some(error) = daemon.waits_for_bells() {
        let why = crate::exit::chain(error);
        let effect = "a client with a jammed eventfd can stop its switch for 200 ms";
        log.line("bells", &format!("without asynchronous requests {effect}: {why}"));
    }
    if run.no_sandbox {
        log.line("sandbox", "none, as asked for");
    } else if let Err(error) = daemon.confine() {
        log.line("sandbox", &format!("none: {}", crate::exit::chain(&error)));
    }
    log.line("listening", &format!("at {socket}"));
    // What clients ask for is logged by the thread that serves them all.
    let log = RefCell::new(ClientLog::new(log));
    let mut notice = |notice: Notice| tell(&mut log.borrow_mut(), &notice);
    let is_stopped = || {
        log.borrow_mut().settle();
        signals::caught().is_some()
    };
    daemon.run(&mut notice, &is_stopped).map_err(|error| explain(&error))?;
    // Ended by a signal, with nothing left undone: success.
    Ok(Exit::Ok)
}

/// Raises the limit of open files to the hard limit: a port needs about ten.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, the switch reports the limit when it reaches it.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

fn explain(error: &DaemonError) -> VerbError {
    match error {
        DaemonError::Syscall(error) if error.is_privilege() => VerbError::missing(format!(
            "{}; choose a folder of your own with --socket",
            crate::exit::chain(error)
        )),
        _ => VerbError::from_error(error),
    }
}

fn tell(log: &mut ClientLog, notice: &Notice) {
    match notice {
        Notice::Attached { name, user } => log.line("attached", &format!("{name} uid {user}")),
        Notice::Detached { name } => log.line("detached", name),
        Notice::CutOff { name, why } => log.line("cut-off", &format!("{name}: {why}")),
        Notice::Refused { user, why } => log.line("refused", &format!("uid {user}: {why}")),
        Notice::Fault { what, why } => log.line("fault", &format!("{what}: {why}")),
        Notice::RefusedCall { call, count } => {
            let text = format!("refused {call}, {count} times so far; please report this as a bug");
            log.line("sandbox", &text);
        }
    }
}
