//! Who is told what happens in a run, and where lines go.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use units::printable_lines;

use super::account::{Interval, Setup, StreamLabel, Summary};
use super::failure::Iperf3Error;
use super::options::Options;
use super::wire::{Cookie, ServerOutput};

/// What is known once the two ends have agreed.
#[derive(Debug, Clone)]
pub struct Agreement {
    /// The test.
    pub setup: Setup,
    /// At a client: host and port as asked. At a server: the client's address.
    pub peer_host: String,
    /// Its port.
    pub peer_port: u16,
    /// The test's name.
    pub cookie: Cookie,
    /// MSS of the control connection, bytes; 0: not known.
    pub control_mss_bytes: u64,
    /// Wall-clock milliseconds since 1970.
    pub unix_ms: u64,
}

/// Socket buffers of the data connections, bytes, as the kernel has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buffers {
    /// `-w`.
    pub asked_bytes: u64,
    /// `SO_SNDBUF`.
    pub send_bytes: u64,
    /// `SO_RCVBUF`.
    pub receive_bytes: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    /// Well.
    Well,
    /// By a signal or by the other end, which this text says.
    Cut(&'a str),
    /// By a failure: iperf3 puts "error - " before the text, and leaves that out in a document.
    Failed(&'a str),
}

/// What happens in a run, in this order. Every method does nothing by default.
pub trait Sink {
    /// A server begins to wait; `test_number` counts from 1.
    fn listening(&mut self, _port: u16, _test_number: u64) {}
    /// The control connection stands, before the parameters.
    fn opened(&mut self, _control_mss_bytes: u64) {}
    /// The size of datagrams was found from the path.
    fn sized(&mut self, _datagram_bytes: u64) {}
    /// Both ends know the test.
    fn agreed(&mut self, _agreement: &Agreement) {}
    /// Data connections have these buffers.
    fn buffers(&mut self, _buffers: Buffers) {}
    /// A data connection stands.
    fn stream(&mut self, _label: &StreamLabel) {}
    /// Data flows.
    fn started(&mut self) {}
    /// An interval is over.
    fn interval(&mut self, _interval: &Interval) {}
    /// The test is over.
    fn finished(&mut self, _summary: &Summary) {}
    /// Everything is over.
    fn ended(&mut self, _how: Ending<'_>) {}
    /// A line for the user beside the output.
    fn warning(&mut self, _text: &str) {}
    /// What a server has printed about this test, for a client that wants it.
    fn output(&self) -> Option<ServerOutput> {
        None
    }
}

/// Nobody is told.
#[derive(Debug, Default)]
pub struct Silent;

impl Sink for Silent {}

/// Most output kept for a client that wants it, bytes; it does not get what comes later.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Where the lines of a report go: standard output or `--logfile`, with `--timestamps` and `-T`.
#[derive(Debug)]
pub struct Output {
    file: Option<File>,
    flush: bool,
    timestamps: Option<String>,
    title: Option<String>,
    kept: Option<String>,
}

impl Output {
    /// As the options say.
    ///
    /// # Errors
    /// The log file cannot be opened.
    pub fn new(options: &Options) -> Result<Self, Iperf3Error> {
        let open =
            |path: &String| sys::private::append_to(Path::new(path)).map_err(Iperf3Error::LogFile);
        Ok(Self {
            file: options.log_file.as_ref().map(open).transpose()?,
            flush: options.force_flush || options.log_file.is_some(),
            timestamps: options.timestamps.clone(),
            title: options.client.title.clone(),
            kept: None,
        })
    }

    /// From now on lines are also kept, for `--get-server-output`.
    pub fn keep(&mut self) {
        self.kept = Some(String::new());
    }

    /// Kept lines; nothing is kept any more.
    pub fn take_kept(&mut self) -> Option<String> {
        self.kept.take()
    }

    /// Lines kept so far.
    #[must_use]
    pub fn kept(&self) -> Option<&str> {
        self.kept.as_deref()
    }

    /// Writes one line with its prefixes; what a terminal would obey is shown instead.
    pub fn line(&mut self, text: &str) {
        let time = self.timestamps.as_deref().map(now).unwrap_or_default();
        let title = self.title.as_ref().map(|title| format!("{title}:  ")).unwrap_or_default();
        let text = printable_lines(text).replace('\n', "\\u000a");
        let line = printable_lines(&format!("{time}{title}{text}\n")).into_owned();
        if let Some(kept) = &mut self.kept
            && kept.len() + line.len() <= KEPT_BYTES_MAX
        {
            kept.push_str(&line);
        }
        self.raw(&line);
    }

    /// Writes text without prefixes. Whatever the other end put into it, a terminal has nothing in
    /// it to obey; JSON stays the same JSON.
    pub fn raw(&mut self, text: &str) {
        let text = printable_lines(text);
        // Nobody is left to tell when the reader of our output has gone.
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).ok(),
            None => io::stdout().write_all(text.as_bytes()).ok(),
        };
    }

    /// A line on standard error, or in the log file.
    pub fn complain(&mut self, text: &str) {
        let time = self.timestamps.as_deref().map(now).unwrap_or_default();
        if self.file.is_some() {
            self.raw(&format!("{time}iperf3: {text}\n"));
        } else {
            self.flush();
            let text = printable_lines(text);
            writeln!(io::stderr(), "{time}iperf3: {text}").ok();
        }
    }

    /// A warning on standard error, whatever becomes of it and wherever the output goes.
    pub fn warn(&mut self, text: &str) {
        writeln!(io::stderr(), "warning: {}", units::printable(text)).ok();
    }

    /// At the end of an interval: flushes where that was asked for.
    pub fn pause(&mut self) {
        if self.flush {
            self.flush();
        }
    }

    /// Hands everything to the kernel.
    pub fn flush(&mut self) {
        if self.file.is_none() {
            io::stdout().flush().ok();
        }
    }
}

fn now(format: &str) -> String {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since_epoch.unwrap_or_default().as_secs();
    sys::local_time::local_time(format, i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// An address as iperf3 prints it: IPv4 stays IPv4 on a socket of both families.
#[must_use]
pub fn host_of(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}
