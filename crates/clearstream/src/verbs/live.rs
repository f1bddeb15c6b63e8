//! `clearstream live`: shows each interface's traffic, every second, at one end or both (figure 7 of the
//! ClearStream paper: what one end sends, the other receives).
//!
//! The counters are read every interval, here and, with `--far`, by the server at the far end. Rates are
//! differences over the time between two readings of the *same* end, so a late line is still correct.
//! Ending the view by hand is a success.

mod far;
mod json;
mod messages;
mod meter;
mod screen;
mod text;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use topology::InterfaceCounters;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

use far::FarEnd;
use meter::{Meter, Reading};

/// Options of `live`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream live eth0 --interval 500ms\n  \
    clearstream live --far geneva        both ends of the path to a host that runs `clearstream serve`\n  \
    clearstream live --messages job      the ranks of a job started by `clearstream mpi --live job`\n\n\
    Rates are those of the interface's counters, including Ethernet headers. --json prints one object\n\
    per line. Ctrl-C (or q in the full-screen view) ends the view with a summary.")]
pub(crate) struct LiveArgs {
    /// Interfaces to show [default: those that are up, except loopback; with --far, the one toward
    /// that host].
    #[arg(value_name = "IFACE")]
    interfaces: Vec<String>,
    /// Time between two lines: 1s, 200ms (at least 50ms).
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after N lines.
    #[arg(short, long, value_name = "N", value_parser = lines_count)]
    count: Option<u64>,
    /// Also show the other end: a host that runs `clearstream serve`.
    #[arg(long, value_name = "HOST[:PORT]")]
    far: Option<String>,
    /// Show the messages of an MPI job's ranks instead: a folder named to `clearstream mpi --live`.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["interfaces", "far", "tui"])]
    messages: Option<PathBuf>,
    /// Full screen, with the last two minutes as a chart.
    #[arg(long)]
    tui: bool,
}

/// Seconds of history that a view keeps.
const HISTORY_S: f64 = 120.0;

pub(crate) fn run(args: &LiveArgs, json: bool) -> VerbResult {
    if args.tui && json {
        return Err(VerbError::usage("--tui and --json cannot be combined"));
    }
    if args.tui && !io::stdout().is_terminal() {
        return Err(VerbError::usage("--tui needs a terminal on stdout; leave it out for text"));
    }
    if args.far.is_some() && args.interfaces.len() > 1 {
        return Err(VerbError::usage("with --far name one interface at most"));
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    if let Some(folder) = &args.messages {
        return messages::follow(folder, args.interval, args.count, json);
    }
    let far = args.far.as_deref().map(|host| FarEnd::connect(host, args.interval)).transpose()?;
    let near = near_interfaces(args, far.as_ref())?;
    let mut view = View::new(near, far, args.interval);
    let mut face: Box<dyn Face> = if args.tui {
        Box::new(screen::Screen::open()?)
    } else if json {
        Box::new(Json)
    } else {
        Box::new(Text { bars: text::Bars::of_locale() })
    };
    let ended = follow(&mut view, face.as_mut(), args.count);
    // The terminal is restored before anything else is written.
    let closed = face.close(&view);
    drop(face);
    ended?;
    closed?;
    match (Exit::of_run(args.count.is_some(), signals::caught()), view.far_lost()) {
        (Exit::Ok, Some(why)) => {
            Err(VerbError::partial(format!("the far end reported only part of the time: {why}")))
        }
        (exit, _) => Ok(exit),
    }
}

/// The progress of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    /// Intervals since the start.
    count: u64,
    /// Seconds since the first reading.
    elapsed_s: f64,
}

/// The monitored interfaces.
#[derive(Debug)]
struct Ends {
    near: Vec<Meter>,
    far: Option<Meter>,
}

impl Ends {
    /// Each interface's meter with the name of its end.
    fn meters(&self) -> impl Iterator<Item = (&'static str, &Meter)> {
        let near = self.near.iter().map(|meter| ("near", meter));
        near.chain(self.far.iter().map(|meter| ("far", meter)))
    }
}

/// A way of displaying a view.
trait Face {
    /// Waits until then; `false` if the user wants to end.
    fn wait(&mut self, view: &View, until: Instant) -> Result<bool, VerbError>;
    /// Shows the latest interval.
    fn show(&mut self, view: &View) -> Result<(), VerbError>;
    /// Reports a lasting condition immediately.
    fn warn(&mut self, line: &str) {
        // A closed stderr does not affect the view.
        writeln!(crate::out::stderr(), "clearstream: {line}").ok();
    }
    /// Shows the totals.
    fn close(&mut self, view: &View) -> Result<(), VerbError>;
}

/// The traffic of both ends over time.
#[derive(Debug)]
struct View {
    ends: Ends,
    ticks: Ticks,
    interval: Duration,
    far: Option<FarEnd>,
    started: Instant,
}

impl View {
    /// A view with the first reading, from which the rates are counted.
    fn new(near: Vec<String>, far: Option<FarEnd>, interval: Duration) -> Self {
        let near = near.into_iter().map(|name| Meter::new(name, HISTORY_S)).collect();
        let meter = far.as_ref().map(|far| Meter::new(&far.interface, HISTORY_S));
        let ends = Ends { near, far: meter };
        let mut view =
            Self { ends, ticks: Ticks::default(), interval, far, started: Instant::now() };
        view.read();
        view
    }

    /// End of the current interval. Counted from the start, so that delays do not add up; intervals missed
    /// by a stopped process are skipped.
    fn next_tick(&self) -> Instant {
        let interval_s = self.interval.as_secs_f64();
        let whole = (self.started.elapsed().as_secs_f64() / interval_s).floor();
        self.started + self.interval.mul_f64(whole + 1.0)
    }

    fn handle_tick(&mut self) {
        self.read();
        self.ticks.count += 1;
    }

    fn read(&mut self) {
        let at_s = self.started.elapsed().as_secs_f64();
        let reading = Reading { at_s, devices: InterfaceCounters::read() };
        self.ends.near.iter_mut().for_each(|meter| meter.handle_reading(&reading));
        self.ticks.elapsed_s = at_s;
        if let (Some(far), Some(meter)) = (&mut self.far, &mut self.ends.far) {
            match far.next_reading(self.interval / 2) {
                Some(reading) => meter.handle_reading(&reading),
                None => meter.handle_silence(),
            }
        }
    }

    /// Why the far end gives no more figures, if it does not.
    fn far_lost(&self) -> Option<&str> {
        self.far.as_ref()?.lost.as_deref()
    }
}

fn follow(view: &mut View, face: &mut dyn Face, count: Option<u64>) -> Result<(), VerbError> {
    while count.is_none_or(|count| view.ticks.count < count) {
        if !face.wait(view, view.next_tick())? {
            break;
        }
        let far_was_there = view.far_lost().is_none();
        view.handle_tick();
        if let (true, Some(why)) = (far_was_there, view.far_lost()) {
            face.warn(&format!("the far end no longer sends counters: {why}"));
        }
        face.show(view)?;
    }
    Ok(())
}

/// Displays lines of text on stdout.
#[derive(Debug)]
struct Text {
    bars: text::Bars,
}

impl Face for Text {
    fn wait(&mut self, _view: &View, until: Instant) -> Result<bool, VerbError> {
        Ok(sleep_until(until))
    }

    fn show(&mut self, view: &View) -> Result<(), VerbError> {
        print(&text::lines(&view.ends, view.ticks, self.bars))
    }

    fn close(&mut self, view: &View) -> Result<(), VerbError> {
        print(&text::summary(&view.ends))
    }
}

/// Displays JSON objects on stdout, one per line.
#[derive(Debug)]
struct Json;

impl Face for Json {
    fn wait(&mut self, _view: &View, until: Instant) -> Result<bool, VerbError> {
        Ok(sleep_until(until))
    }

    fn show(&mut self, view: &View) -> Result<(), VerbError> {
        let line = json::interval(&view.ends, view.ticks, now_unix_ms());
        print(&line.map_err(|error| VerbError::from_error(&error))?)
    }

    fn close(&mut self, view: &View) -> Result<(), VerbError> {
        let line = json::summary(&view.ends, view.ticks, now_unix_ms());
        print(&line.map_err(|error| VerbError::from_error(&error))?)
    }
}

/// Writes and flushes at once, because the reader of a pipe wants each line when it is new.
fn print(text: &str) -> Result<(), VerbError> {
    let mut out = crate::out::endless_stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Sleeps until then; returns `false` as soon as a signal asks this program to end.
fn sleep_until(until: Instant) -> bool {
    loop {
        if signals::caught().is_some() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = rustix::event::Timespec::try_from(left) else { return false };
        if left.is_zero() {
            return true;
        }
        // Unlike the standard library's sleep, a poll without descriptors ends on a signal.
        rustix::event::poll(&mut [], Some(&timeout)).ok();
    }
}

fn now_unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    units::Timestamp::from_unix(since_epoch).unix_ms
}

fn near_interfaces(args: &LiveArgs, far: Option<&FarEnd>) -> Result<Vec<String>, VerbError> {
    let present = topology::interfaces();
    let names = || present.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(missing) =
        args.interfaces.iter().find(|name| !present.iter().any(|link| link.name == **name))
    {
        return Err(VerbError::usage(format!(
            "no interface '{missing}' here; there are {}",
            names()
        )));
    }
    if !args.interfaces.is_empty() {
        return Ok(args.interfaces.clone());
    }
    if let Some(far) = far {
        let toward = topology::interface_toward(far.address).ok_or_else(|| {
            VerbError::failed(format!("no route to {}; name the interface", far.address))
        })?;
        return Ok(vec![toward]);
    }
    let up: Vec<String> = present
        .iter()
        .filter(|link| link.is_up && !link.is_loopback)
        .map(|link| link.name.clone())
        .collect();
    if up.is_empty() {
        return Err(VerbError::failed(format!("no interface is up; name one of {}", names())));
    }
    Ok(up)
}

fn lines_count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("'{text}' is not a whole number from 1 on"))
}

fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(3600);
    let interval = units::parse_duration(text).map_err(|error| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("'{text}' is not between 50ms and 1h"))
    }
}
