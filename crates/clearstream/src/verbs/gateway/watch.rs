//! `clearstream gateway watch` and `reflect`: monitors one host's gateways until a signal comes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::watch::{
    Form, Promptness, Published, Recorder, Records, Reflecting, StateFile, Steering, Watch,
    WatchError,
};
use gateway::{Asked, Steered, far_hosts, plan_id, reflect_options, watch_options};
use liveness::siphash::Key;
use route_plan::{Bfd, Host, Plan, Role};
use rustix::event::EventfdFlags;
use sys::SyscallError;

use super::identity::own_role;
use super::plan::print_json;
use super::read_plan;
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};
use crate::signals;
use crate::tuners::default_state;

/// Longest key file that is read, bytes; a valid one is shorter.
const KEY_FILE_BYTES_MAX: u64 = 256;
/// Interval of polling for a signal.
const SIGNAL_LOOK: Duration = Duration::from_millis(20);

/// Who this is.
#[derive(Debug, clap::Args)]
struct EndOptions {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// This machine is that host of the plan [default: the one with this machine's name].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// File with the key of the plan's probes, 32 hexadecimal digits [default: the plan's `key_file`].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Options of `gateway watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    openssl rand -hex 16 > watch.key; chmod 600 watch.key  once; the same file on all hosts\n  \
    clearstream gateway watch cumulus --host c1 --key-file watch.key\n  \
    clearstream --json gateway watch cumulus --metrics /var/lib/node_exporter/gateways.prom\n  \
    clearstream gateway watch cumulus --no-steer           watch only\n\n\
    Probes go through every gateway to hosts of the other networks, which send them back through\n\
    the gateway through which they came: run this on both sides. Where probes are not answered, the\n\
    routes that `apply` made are moved to the other gateways, but never off the last one. When this\n\
    command ends, for any reason, routes stay as they are.")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    end: EndOptions,
    /// Where `apply` keeps its journal [default: /var/lib/clearstream/gateway; in a lab, its own place].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Hosts that answer probes [default: two of each other network].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    far: Vec<String>,
    /// Speak BFD, whatever the plan says: with the gateways themselves (RFC 5881), or over several hops with the plan's
    /// `bfd_peers` (RFC 5883) [default without HOPS: one].
    #[arg(long, value_name = "HOPS", num_args = 0..=1, require_equals = true, default_missing_value = "one")]
    bfd: Option<Distance>,
    /// Send a full-size probe in every N-th round, 0 for never [default: five times a second].
    #[arg(long, value_name = "N")]
    full_every: Option<u32>,
    /// Move no routes.
    #[arg(long)]
    no_steer: bool,
    /// Answer no probes from other hosts.
    #[arg(long)]
    no_reflect: bool,
    /// Write OpenMetrics text to this file, which is replaced as a whole each time.
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Answer `GET /metrics` at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

/// Options of `gateway reflect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway reflect cumulus --host s1 --key-file watch.key\n\n\
    For far hosts whose own routes are not to be moved. Only hosts of the plan on other networks are\n\
    answered, with no more bytes than they sent, and each at a limited rate. `gateway watch` also\n\
    answers probes.")]
pub(crate) struct ReflectArgs {
    #[command(flatten)]
    end: EndOptions,
}

/// How far BFD's peers are.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Distance {
    /// The gateways, on the host's link.
    One,
    /// Systems behind the gateways, each through its gateway.
    Multihop,
}

impl Distance {
    fn bfd(self) -> Bfd {
        match self {
            Self::One => Bfd::OneHop,
            Self::Multihop => Bfd::Multihop,
        }
    }
}

impl EndOptions {
    fn host<'a>(&self, plan: &'a Plan) -> Result<&'a Host, VerbError> {
        match own_role(plan, self.host.as_deref())? {
            (_, Role::Host(host)) => Ok(host),
            (name, Role::Gateway(..)) => Err(VerbError::usage(format!(
                "{name} is a gateway; gateways are watched from the hosts of the plan"
            ))),
        }
    }

    fn key(&self, plan: &Plan) -> Result<Key, VerbError> {
        let planned = || plan.watch.key_file.as_ref().map(PathBuf::from);
        let Some(path) = self.key_file.clone().or_else(planned) else {
            return Err(VerbError::usage(
                "probes need a key: `openssl rand -hex 16 > FILE; chmod 600 FILE`, the same on all hosts, named by \
                 --key-file or `[watch] key_file`",
            ));
        };
        read_key(&path)
    }
}

fn read_key(path: &Path) -> Result<Key, VerbError> {
    let refused = |why: &str| VerbError::usage(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
    let metadata = file.metadata().map_err(|error| refused(&error.to_string()))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(refused("other users can read or change this key: chmod 600"));
    }
    let mut text = String::new();
    let read = file.take(KEY_FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| refused(&error.to_string()))?;
    Key::from_hex(text.trim()).ok_or_else(|| refused("a key is 32 hexadecimal digits"))
}

/// A steering backend that leaves the routes unchanged.
struct Unmoved;

impl Steering for Unmoved {
    fn steer(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }

    fn restore(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }
}

/// Where the watcher of a plan records what it knows of its gateways.
pub(super) fn state_file(state: &Path, plan: &Plan) -> PathBuf {
    state.join(format!("watch-{:016x}.json", plan_id(plan)))
}

pub(super) fn run(args: &WatchArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.end.plan)?;
    let host = args.end.host(&plan)?;
    let key = args.end.key(&plan)?;
    let state = args.state.clone().unwrap_or_else(|| default_state("gateway"));
    let state_file = state_file(&state, &plan);
    let were_down = StateFile::read(&state_file, &plan.name).map(|file| file.were_down());
    let asked = Asked {
        far: args.far.clone(),
        bfd: args.bfd.map(Distance::bfd),
        full_every: args.full_every,
        were_down: were_down.unwrap_or_default(),
    };
    let options =
        watch_options(&plan, host, key, &asked).map_err(|error| VerbError::usage(chain(&error)))?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut steering: Box<dyn Steering> = if args.no_steer {
        Box::new(Unmoved)
    } else {
        let steered = Steered::open(plan.clone(), &host.name, &state);
        Box::new(steered.map_err(|error| VerbError::failed(chain(&error)))?)
    };
    let reflecting = if args.no_reflect {
        None
    } else {
        let options = reflect_options(&plan, host, key);
        Some(Reflecting::open(&options).map_err(|error| explained(&error))?)
    };
    let mut watch = Watch::open(options).map_err(|error| explained(&error))?;
    let mut recorder = Recorder::start(&plan.name, records(args, json, &state_file)?)?;
    say_start(&plan, host, &asked.far)?;
    let mut outcome = Ok(());
    until_a_signal(reflecting, |stop| {
        if let Err(error) = Promptness::ask().priority {
            let why = chain(&error);
            recorder.complaint(&format!(
                "no real-time priority ({why}): rounds in which this watcher runs late are not \
                 counted"
            ));
        }
        outcome = watch.run(stop.as_fd(), &mut *steering, &mut recorder);
    })?;
    outcome.map_err(|error| VerbError::from_error(&error))?;
    // Ended by a signal, with nothing left undone: success.
    Ok(Exit::Ok)
}

pub(super) fn reflect(args: &ReflectArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.end.plan)?;
    let host = args.end.host(&plan)?;
    let key = args.end.key(&plan)?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let options = reflect_options(&plan, host, key);
    let reflecting = Reflecting::open(&options).map_err(|error| explained(&error))?;
    let sources = options.sources.len();
    writeln!(crate::out::stderr(), "{} answers probes from {sources} hosts", host.name)?;
    let counters = until_a_signal(Some(reflecting), |stop| {
        // Blocks until a signal comes.
        let mut set = [rustix::event::PollFd::new(stop, rustix::event::PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut set, None) {}
    })?;
    let Some(counters) = counters else { return Ok(Exit::Ok) };
    let refused = counters.all_refused_count();
    if json {
        print_json(&serde_json::json!({
            "host": host.name, "answered": counters.accepted_count, "refused": refused
        }))?;
    } else {
        let answered = counters.accepted_count;
        writeln!(crate::out::stdout(), "{answered} probes answered, {refused} refused")?;
    }
    Ok(Exit::Ok)
}

/// Runs `body` with a descriptor that becomes readable when a signal asks this program to end, and reflects
/// probes meanwhile; returns the reflector's counters.
fn until_a_signal(
    reflecting: Option<Reflecting>,
    body: impl FnOnce(&OwnedFd),
) -> Result<Option<liveness::probe::ProbeCounters>, VerbError> {
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let has_ended = AtomicBool::new(false);
    let reflect = |mut reflecting: Reflecting| {
        let _granted = Promptness::ask();
        let outcome: Result<(), SyscallError> = reflecting.run(stop.as_fd());
        (outcome, reflecting.counters())
    };
    let reflected = thread::scope(|scope| {
        scope.spawn(|| {
            while signals::caught().is_none() && !has_ended.load(Ordering::Relaxed) {
                thread::sleep(SIGNAL_LOOK);
            }
            // Writing 1 to a fresh eventfd never blocks.
            rustix::io::write(&stop, &1_u64.to_ne_bytes()).ok();
        });
        let reflector = reflecting.map(|reflecting| scope.spawn(|| reflect(reflecting)));
        body(&stop);
        has_ended.store(true, Ordering::Relaxed);
        reflector.and_then(|thread| thread.join().ok())
    });
    let Some((outcome, counters)) = reflected else { return Ok(None) };
    outcome.map_err(|error| VerbError::from_error(&error))?;
    Ok(Some(counters))
}

fn records(args: &WatchArgs, json: bool, state_file: &Path) -> Result<Records, VerbError> {
    let has_folder = |path: &Path| path.parent().is_some_and(Path::is_dir);
    if let Some(path) = &args.metrics
        && !std::path::absolute(path).is_ok_and(|path| has_folder(&path) && !path.is_dir())
    {
        return Err(VerbError::usage(format!(
            "--metrics {}: not a file name in an existing folder",
            path.display()
        )));
    }
    let published = match args.metrics_listen {
        None => None,
        Some(address) => {
            let published = Published::default();
            let taken = |error| VerbError::failed(format!("--metrics-listen {address}: {error}"));
            let bound = published.serve(address).map_err(taken)?;
            writeln!(crate::out::stderr(), "metrics at http://{bound}/metrics")?;
            Some(published)
        }
    };
    Ok(Records {
        form: if json { Form::Json } else { Form::Text },
        state_file: Some(state_file.to_owned()).filter(|path| has_folder(path)),
        metrics_file: args.metrics.clone(),
        published,
        ..Records::of_events(Box::new(Lines))
    })
}

fn say_start(plan: &Plan, host: &Host, named: &[String]) -> Result<(), VerbError> {
    let far = far_hosts(plan, host, named).map_err(|error| VerbError::usage(chain(&error)))?;
    let far: Vec<&str> = far.iter().map(|far| far.name.as_str()).collect();
    let (count, interval) = (plan.gateways.len(), plan.watch.interval);
    let (multiplier, far) = (plan.watch.multiplier, far.join(", "));
    let name = &host.name;
    writeln!(
        crate::out::stderr(),
        "{name} watches {count} gateways: a probe every {interval:?}, {multiplier} missed rounds \
         count as a failure, answers from {far}"
    )?;
    Ok(())
}

/// Writes events to standard output, one line each.
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = crate::out::endless_stdout();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn explained(error: &WatchError) -> VerbError {
    let line = chain(error);
    if error.is_privilege() { VerbError::missing(line) } else { VerbError::failed(line) }
}
