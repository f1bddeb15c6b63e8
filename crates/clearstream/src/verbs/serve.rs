//! `clearstream serve`: serves tests to other hosts.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iperf3::Iperf3;
use traffic::control::Limits;
use traffic::server::{
    DEFAULT_PORT, Network, Notice, Server, ServerConfig, ServerError, default_memory_bytes,
};
use units::UnitError;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::log::{ClientLog, Log};
use crate::signals;
use crate::tuners;

/// Options of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream serve --max-duration 60s --max-rate 10G \
    --allow 192.0.2.0/24 --allow 2001:db8::/32\n\n\
    Serves clearstream and stock iperf3 clients on one port, TCP and UDP. Needs no privilege.\n\
    Under systemd the sockets may be passed in (see clearstream.socket); the options for address and\n\
    port then have no effect. Ctrl-C stops the server.")]
pub(crate) struct ServeArgs {
    /// TCP and UDP port.
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address to listen on [default: all, IPv4 and IPv6].
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Accept multipath TCP; windows larger than net.ipv4.tcp_rmem allows are then not offered.
    #[arg(short, long)]
    mptcp: bool,
    /// Longest test allowed, including the omitted start.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::parse_duration)]
    max_duration: Duration,
    /// Highest rate of a test in one direction, all streams together: 10G [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = positive_rate)]
    max_rate: Option<f64>,
    /// Maximum number of streams in each direction.
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_streams: u32,
    /// Maximum number of clients at once.
    #[arg(long, value_name = "N", default_value_t = 32)]
    max_clients: usize,
    /// Maximum number of clients at once from one address or one IPv6 /64 network [default: a
    /// quarter of --max-clients, at least 2].
    #[arg(long, value_name = "N")]
    max_clients_per_address: Option<usize>,
    /// Maximum memory for the tests of all clients together: 8G. One address may use half of it; a
    /// test that needs more is refused [default: a quarter of this machine's or control group's
    /// memory, at least 1 GiB, at most half].
    #[arg(long, value_name = "SIZE", value_parser = server_memory)]
    memory: Option<u64>,
    /// Network whose clients are served; may be given several times [default: any].
    #[arg(long, value_name = "CIDR")]
    allow: Vec<Network>,
    /// Time without a request after which a client is disconnected.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_duration)]
    idle_timeout: Duration,
    /// Let clients change this host's network settings (`clearstream tune apply`); every change is
    /// journalled here and undone by `clearstream tune revert`. Requires --allow: a client's
    /// address is the only check. Settings changed by local users are left alone.
    #[arg(long)]
    allow_tuning: bool,
    /// Where the journal of those changes is kept [default: that of `clearstream tune`].
    #[arg(long, value_name = "DIR", requires = "allow_tuning")]
    tuning_state: Option<std::path::PathBuf>,
    /// Let a test move the interface's receive interrupts or NAPI threads while it runs (`place
    /// --move-interrupts`); they are moved back when it ends, even if this command is killed.
    /// Requires --allow: a client's address is the only check.
    #[arg(long)]
    allow_interrupt_moves: bool,
}

pub(crate) fn run(args: &ServeArgs, json: bool) -> VerbResult {
    args.check_permissions()?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    open_as_many_files_as_allowed();
    let server = Server::bind(args.config()).map_err(|error| explain(&error))?;
    let log = Log { json };
    for address in server.addresses() {
        log.line("listening", &format!("on {address}, TCP and UDP"));
    }
    if let Some(permission) = args.permission() {
        let text = format!(
            "{permission}: clients are not authenticated, an address within --allow is the only check"
        );
        log.line("warning", &text);
    }
    if args.allow_interrupt_moves {
        match traffic::put_back_what_was_left() {
            Ok(lines) => lines.iter().for_each(|line| log.line("restored", line)),
            Err(error) => log.line("warning", &error.to_string()),
        }
    }
    if let Err(error) = traffic::server::notify_ready() {
        log.line("warning", &format!("cannot notify the service manager: {error}"));
    }
    let log = Arc::new(Mutex::new(ClientLog::new(log)));
    let notices = {
        let log = Arc::clone(&log);
        Arc::new(move |notice: &Notice| tell(&mut locked(&log), notice))
    };
    let is_stopped = || {
        locked(&log).settle();
        signals::caught().is_some()
    };
    server.run(notices, &is_stopped).map_err(|error| explain(&error))?;
    // Ended by a signal, with nothing left undone: success.
    Ok(Exit::Ok)
}

impl ServeArgs {
    /// The options that permit clients to change this host, if any is given.
    fn permission(&self) -> Option<&'static str> {
        match (self.allow_tuning, self.allow_interrupt_moves) {
            (true, true) => Some("--allow-tuning and --allow-interrupt-moves"),
            (true, false) => Some("--allow-tuning"),
            (false, true) => Some("--allow-interrupt-moves"),
            (false, false) => None,
        }
    }

    /// Requires --allow with such an option, because clients are not authenticated.
    fn check_permissions(&self) -> Result<(), VerbError> {
        match self.permission() {
            Some(permission) if self.allow.is_empty() => Err(VerbError::usage(format!(
                "{permission} needs --allow: clients can change this host and are not authenticated; name \
                 their networks with --allow NETWORK (an address is the only check)"
            ))),
            _ => Ok(()),
        }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig {
            bind: self.bind,
            port: self.port,
            mptcp: self.mptcp,
            limits: Limits {
                duration_max: self.max_duration,
                rate_bits_per_s_max: self.max_rate,
                streams_max: self.max_streams,
                may_move_interrupts: self.allow_interrupt_moves,
            },
            sessions_max: self.max_clients,
            sessions_an_address_max: self.max_clients_per_address,
            memory_bytes_max: self.memory.unwrap_or_else(default_memory_bytes),
            networks: self.allow.clone(),
            idle_timeout: self.idle_timeout,
            tuning: self.allow_tuning.then(|| tuners::far_side(self.tuning_state.as_deref())),
            personalities: vec![Arc::new(Iperf3)],
        }
    }
}

/// Least memory for tests, bytes: sessions alone take 4 MiB each.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

fn server_memory(text: &str) -> Result<u64, String> {
    let bytes = units::parse_byte_size(text).map_err(|error| error.to_string())?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(format!("'{text}' is too little for any test; the minimum is 32M"));
    }
    Ok(bytes)
}

/// Raises the limit of open files to the hard limit: a stream needs one or two.
fn open_as_many_files_as_allowed() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    // If that fails, fewer streams are accepted.
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).ok();
}

fn positive_rate(text: &str) -> Result<f64, UnitError> {
    let bits_per_s = units::parse_bit_rate(text)?;
    if bits_per_s == 0 {
        return Err(UnitError::OutOfRange(text.to_owned()));
    }
    Ok(bits_per_s as f64)
}

fn explain(error: &ServerError) -> VerbError {
    match error {
        ServerError::Bind { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            VerbError::missing(format!(
                "{}; ports below 1024 need CAP_NET_BIND_SERVICE",
                crate::exit::chain(error)
            ))
        }
        _ => VerbError::from_error(error),
    }
}

/// Locked while a line is written. A panic elsewhere cannot leave it inconsistent.
fn locked(log: &Mutex<ClientLog>) -> MutexGuard<'_, ClientLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(log: &mut ClientLog, notice: &Notice) {
    match notice {
        Notice::Opened { peer, protocol } => log.line("client", &format!("{peer} {protocol}")),
        Notice::Began { peer, what } => log.line("begin", &format!("{peer} {what}")),
        Notice::Ended { peer, how } => log.line("end", &format!("{peer} {how}")),
        Notice::Refused { peer, refusal } => {
            log.line("refused", &format!("{peer} {refusal}"));
        }
        other => log.line("notice", &format!("{other:?}")),
    }
}
