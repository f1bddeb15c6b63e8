//! The full-screen view: for each interface, the figures and a chart of the last two minutes, sent traffic
//! above the axis and received traffic below it. The charts of a path's two ends mirror each other.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};
use ratatui::{DefaultTerminal, Frame};

use crate::exit::VerbError;
use crate::signals;

use super::meter::{Meter, Rates};
use super::text::{self, megabits};
use super::{Face, HISTORY_S, View};

/// A terminal switched to its alternate screen; restored when closed or dropped.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: DefaultTerminal,
    colours: Colours,
    is_open: bool,
}

impl Screen {
    /// Switches the terminal to the alternate screen.
    pub(super) fn open() -> Result<Self, VerbError> {
        let terminal = ratatui::try_init()?;
        Ok(Self { terminal, colours: Colours::of_environment(), is_open: true })
    }

    fn draw(&mut self, view: &View) -> Result<(), VerbError> {
        let colours = self.colours;
        self.terminal.draw(|frame| paint(frame, view, colours))?;
        Ok(())
    }

    fn restore(&mut self) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        self.is_open = false;
        ratatui::try_restore()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // In a destructor there is nobody to report a failure to.
        self.restore().ok();
    }
}

impl Face for Screen {
    fn wait(&mut self, view: &View, until: Instant) -> Result<bool, VerbError> {
        /// Interval of polling for a signal: the key reader restarts its wait after one.
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        if view.ticks.count == 0 {
            self.draw(view)?;
        }
        loop {
            if signals::caught().is_some() {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if event::poll(left.min(LOOK_EVERY))? {
                match event::read()? {
                    Event::Key(key) if ends_the_view(key) => return Ok(false),
                    Event::Resize(..) => self.draw(view)?,
                    _other => {}
                }
            }
        }
    }

    fn show(&mut self, view: &View) -> Result<(), VerbError> {
        self.draw(view)
    }

    /// Prints nothing, because the footer shows the condition.
    fn warn(&mut self, _line: &str) {}

    fn close(&mut self, view: &View) -> Result<(), VerbError> {
        self.restore()?;
        super::print(&text::summary(&view.ends))
    }
}

fn ends_the_view(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let quit = matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (control_c || quit)
}

/// Colours of the view; everything is readable without them.
#[derive(Debug, Clone, Copy)]
struct Colours {
    input: Style,
    output: Style,
    quiet: Style,
    warning: Style,
}

impl Colours {
    /// No colours with `NO_COLOR` (no-color.org) or on a terminal without colours.
    fn of_environment() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.ends_with("-m"));
        if no_color || dumb { Self::none() } else { Self::some() }
    }

    fn none() -> Self {
        let plain = Style::new();
        Self {
            input: plain,
            output: plain,
            quiet: plain,
            warning: plain.add_modifier(Modifier::REVERSED),
        }
    }

    fn some() -> Self {
        let plain = Style::new();
        Self {
            input: plain.fg(Color::Cyan),
            output: plain.fg(Color::Yellow),
            quiet: plain.add_modifier(Modifier::DIM),
            warning: plain.fg(Color::Red),
        }
    }
}

fn paint(frame: &mut Frame<'_>, view: &View, colours: Colours) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(heading(view), head);
    let all: Vec<_> = view.ends.meters().collect();
    let shown_count = all.len().min(panels_count_max(body));
    let panels = Layout::vertical(vec![Constraint::Fill(1); shown_count]).split(body);
    for ((end, meter), area) in all.iter().zip(panels.iter()) {
        paint_meter(frame, *area, end, meter, view.ticks.elapsed_s, colours);
    }
    frame.render_widget(footer(view, all.len() - shown_count, colours), foot);
}

/// Most panels that fit; a panel with fewer rows than its figures need would show nothing.
fn panels_count_max(body: Rect) -> usize {
    const PANEL_ROWS_MIN: u16 = 7;
    usize::from((body.height / PANEL_ROWS_MIN).max(1))
}

fn heading(view: &View) -> Line<'static> {
    let ends = match &view.far {
        Some(far) => format!("this host and {}", far.name),
        None => "this host".to_owned(),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::styled("ClearStream live", bold),
        Span::raw(format!(
            "  {ends}, every {:?}, for {:.0} s",
            view.interval, view.ticks.elapsed_s
        )),
    ])
}

fn footer(view: &View, hidden_count: usize, colours: Colours) -> Line<'static> {
    let mut spans = vec![Span::styled("q quit   out above the line, in below it", colours.quiet)];
    if hidden_count > 0 {
        let text = format!("   {hidden_count} more do not fit");
        spans.push(Span::styled(text, colours.warning));
    }
    if let Some(why) = view.far_lost() {
        spans.push(Span::styled(format!("   far end: {why}"), colours.warning));
    }
    Line::from(spans)
}

fn paint_meter(
    frame: &mut Frame<'_>,
    area: Rect,
    end: &str,
    meter: &Meter,
    now_s: f64,
    colours: Colours,
) {
    let block = Block::bordered().title(format!(" {end} {} ", meter.interface));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [figures, chart] =
        Layout::horizontal([Constraint::Length(25), Constraint::Fill(1)]).areas(inside);
    frame.render_widget(Paragraph::new(figure_lines(meter, colours)), figures);
    paint_chart(frame, chart, meter, now_s, colours);
}

fn figure_lines(meter: &Meter, colours: Colours) -> Vec<Line<'static>> {
    let totals = &meter.totals;
    let measured = totals.measured_s > 0.0;
    let row = |label: &str, bits_per_s: Option<f64>| {
        Line::from(format!("{label:<5}{:>12} Mbit/s", megabits(bits_per_s)))
    };
    let of = |name: &str, style: Style, now: Option<f64>, mean: f64, peak: f64| {
        let now = row(name, now).style(style.add_modifier(Modifier::BOLD));
        [now, row(" mean", measured.then_some(mean)), row(" peak", measured.then_some(peak))]
    };
    let current = meter.current;
    let output = of(
        "out",
        colours.output,
        current.map(|rates| rates.out_bits_per_s),
        totals.out_bits_per_s_mean,
        totals.out_bits_per_s_peak,
    );
    let input = of(
        "in",
        colours.input,
        current.map(|rates| rates.in_bits_per_s),
        totals.in_bits_per_s_mean,
        totals.in_bits_per_s_peak,
    );
    let dropped = current.map_or(0, |rates| rates.in_drops_count + rates.out_drops_count);
    let mut lines: Vec<_> = output.into_iter().chain(input).collect();
    if dropped > 0 {
        lines.push(Line::styled(format!("{dropped} dropped"), colours.warning));
    }
    lines
}

fn paint_chart(frame: &mut Frame<'_>, area: Rect, meter: &Meter, now_s: f64, colours: Colours) {
    let points = |rate: fn(&Rates) -> f64| -> Vec<(f64, f64)> {
        meter.history.iter().map(|(at_s, rates)| (at_s - now_s, rate(rates))).collect()
    };
    let output = points(|rates| rates.out_bits_per_s);
    let input = points(|rates| -rates.in_bits_per_s);
    let highest = output.iter().chain(&input).map(|(_at_s, rate)| rate.abs()).fold(0.0, f64::max);
    let top = round_up(highest.max(1e3));
    let dataset = |points, style| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Bar)
            .style(style)
            .data(points)
    };
    // A chart cuts labels that are wider than a third of it.
    let label_columns = usize::from(area.width / 3);
    let chart = Chart::new(vec![dataset(&output, colours.output), dataset(&input, colours.input)])
        .x_axis(
            Axis::default()
                .style(colours.quiet)
                .bounds([-HISTORY_S, 0.0])
                .labels(["-2 min", "-1 min", "now"]),
        )
        .y_axis(Axis::default().style(colours.quiet).bounds([-top, top]).labels([
            scale_label(top, label_columns),
            "0".to_owned(),
            scale_label(top, label_columns),
        ]));
    frame.render_widget(chart, area);
}

/// Label of a scale's end, in the unit of the figures beside it, which is shortened where there is no room.
fn scale_label(top: f64, columns: usize) -> String {
    let figure = match top < 1e6 {
        true => format!("{}", top / 1e6),
        false => text::grouped(units::saturating_u64(top / 1e6)),
    };
    let label = format!("{figure} Mbit/s");
    if label.chars().count() <= columns { label } else { format!("{figure} M") }
}

/// Rounds up to 1, 2 or 5 times a power of ten, so that the scale does not change with every sample.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|step| step * power)
        .find(|&top| top >= value)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests;
