//! `clearstream iperf3`: iperf3's own flags, output and exit codes.
//!
//! Intercepted before clap, because iperf3's options are parsed the way iperf3 parses them. The same
//! happens when the program is called by the name `iperf3`.

mod place;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use iperf3::account::Side;
use iperf3::client;
use iperf3::failure::{Iperf3Error, signal_name};
use iperf3::json::JsonReport;
use iperf3::options::{self, Options, OptionsError, Request, Role};
use iperf3::server::listener::{AdmittedClient, Listener};
use iperf3::server::{ServeLimits, serve_control};
use iperf3::sink::{Ending, Output, Sink};
use iperf3::text::TextReport;
use iperf3::{system_line, version_line};

use crate::VerbResult;
use crate::exit::Exit;
use crate::signals;

/// Features of this build, in the wording of `iperf3 --version`.
const FEATURES: &str = "Optional features available: CPU affinity setting, IPv6 flow label, \
                        TCP congestion algorithm setting, sendfile / zerocopy, socket pacing, \
                        bind to device, support IPv4 don't fragment, POSIX threads, GSO/GRO support";

/// Options of `iperf3`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Iperf3Args {
    /// iperf3's own options; `clearstream iperf3 --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs the verb if it was not intercepted: when an option of our own precedes it.
pub(crate) fn run(args: &Iperf3Args, json: bool) -> VerbResult {
    let mut words = args.options.clone();
    if json {
        words.insert(0, "--json".into());
    }
    Ok(Exit::Program(iperf3(&words)))
}

/// Runs iperf3 if it is the first argument or the name that the program was called by.
pub(crate) fn intercept(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, words) = arguments.split_first()?;
    let called_iperf3 = Path::new(program).file_name().is_some_and(|name| name == "iperf3");
    let words = match words.split_first() {
        _ if called_iperf3 => words,
        Some((verb, words)) if verb == "iperf3" => words,
        _ => return None,
    };
    Some(ExitCode::from(iperf3(words)))
}

/// Runs iperf3 with these arguments; returns its exit code.
fn iperf3(words: &[OsString]) -> u8 {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match options::parse(&words) {
        Ok(Request::Help) => say(&options::help()),
        Ok(Request::Version) => {
            say(&format!("{}\n{}\n{FEATURES}\n", version_line(), system_line()))
        }
        Ok(Request::Run(options)) => start(&options),
        Err(error @ (OptionsError::Syntax(_) | OptionsError::Parameter(_))) => {
            complain(&format!("iperf3: {error}\n\n{}", options::usage()))
        }
        Err(error) => complain(&format!("iperf3: {error}\n")),
    }
}

fn start(options: &Options) -> u8 {
    if options.server.daemon && !place::is_in_background() {
        return match place::continue_in_background() {
            Ok(()) => 0,
            Err(error) => {
                complain(&format!("iperf3: error - unable to become a daemon: {error}\n"))
            }
        };
    }
    let _pid_file = match options.pid_file.as_deref().map(place::PidFile::create).transpose() {
        Ok(pid_file) => pid_file,
        Err(text) => return complain(&format!("iperf3: {text}\n")),
    };
    if let Err(error) = signals::watch() {
        return complain(&format!("iperf3: error - {error}\n"));
    }
    for warning in options.warnings() {
        complain(&format!("warning: {warning}\n"));
    }
    let side = if options.role == Role::Server { Side::Server } else { Side::Client };
    let mut report = match report(options, side) {
        Ok(report) => report,
        Err(error) => return complain(&format!("iperf3: error - {error}\n")),
    };
    match side {
        Side::Client => run_client(options, report.as_mut()),
        Side::Server => run_server(options, report.as_mut()),
    }
}

fn report(options: &Options, side: Side) -> Result<Box<dyn Sink>, Iperf3Error> {
    let output = Output::new(options)?;
    Ok(if options.json {
        Box::new(JsonReport::new(output, options, side))
    } else {
        Box::new(TextReport::new(output, options, side))
    })
}

fn run_client(options: &Options, report: &mut dyn Sink) -> u8 {
    match client::run(options, report, &signals::caught) {
        Ok(()) => {
            report.ended(Ending::Well);
            0
        }
        Err(Iperf3Error::Interrupted(number)) => {
            report.ended(Ending::Cut(&interruption("client", number)));
            0
        }
        Err(error) => {
            report.ended(Ending::Failed(&error.to_string()));
            1
        }
    }
}

fn run_server(options: &Options, report: &mut dyn Sink) -> u8 {
    let mut listener = match Listener::bind(options) {
        Ok(listener) => listener,
        Err(error) => {
            report.ended(Ending::Failed(&error.to_string()));
            return 1;
        }
    };
    let idle = Duration::from_secs(options.server.idle_timeout_s);
    let mut test_number = 1;
    report.listening(listener.port(), test_number);
    loop {
        let client = listener.next_client(idle, &signals::caught);
        if let Some(number) = signals::caught() {
            report.ended(Ending::Cut(&interruption("server", number)));
            return 0;
        }
        match client {
            Some(client) => {
                if let Some(code) = serve(options, &mut listener, client, report) {
                    return code;
                }
            }
            // The idle timeout restarts the server; only a one-off server ends.
            None if options.server.one_off => return 0,
            None => continue,
        }
        if options.server.one_off {
            return 0;
        }
        test_number += 1;
        report.listening(listener.port(), test_number);
    }
}

/// Serves one client; returns an exit code if the program is to end.
fn serve(
    options: &Options,
    listener: &mut Listener,
    client: AdmittedClient,
    report: &mut dyn Sink,
) -> Option<u8> {
    let limits = limits(options);
    let mut data = listener.connections(&client);
    let AdmittedClient { control, cookie } = client;
    match serve_control(control, cookie, &mut data, &limits, report, &signals::caught) {
        Ok(()) => report.ended(Ending::Well),
        Err(Iperf3Error::Interrupted(number)) => {
            report.ended(Ending::Cut(&interruption("server", number)));
            return Some(0);
        }
        Err(error @ Iperf3Error::ClientTerminated) => report.ended(Ending::Cut(&error.to_string())),
        Err(Iperf3Error::ControlClosed) => {
            report.ended(Ending::Cut("the client has unexpectedly closed the connection"));
        }
        Err(error) => report.ended(Ending::Failed(&error.to_string())),
    }
    None
}

fn limits(options: &Options) -> ServeLimits {
    let server = &options.server;
    let rate = server.rate_limit_bits_per_s;
    let longest_s = server.max_duration_s;
    ServeLimits {
        duration_max: (longest_s > 0).then(|| Duration::from_secs(longest_s)),
        refuses_untimed: longest_s > 0,
        rate_bits_per_s_max: (rate > 0).then_some(rate as f64),
        rate_interval_s: server.rate_limit_interval_s,
        receive_timeout: Duration::from_millis(options.receive_timeout_ms),
        interval_s: options.interval_s,
        core: options.core,
        send_timeout_ms: options.send_timeout_ms,
        ..ServeLimits::default()
    }
}

fn interruption(who: &str, number: i32) -> String {
    format!("interrupt - the {who} has terminated by signal {}", signal_name(number))
}

fn say(text: &str) -> u8 {
    // A reader that has gone away does not change the exit code.
    crate::out::stdout().write_all(text.as_bytes()).ok();
    0
}

fn complain(text: &str) -> u8 {
    // If stderr is closed, there is nowhere to report that.
    crate::out::stderr().write_all(text.as_bytes()).ok();
    1
}
