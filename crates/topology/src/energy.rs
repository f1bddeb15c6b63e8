//! Energy meters: what the host, or the part of it that can tell, has used.
//!
//! In the order tried: RAPL's package and memory counters (`/sys/class/powercap`, kernel
//! `Documentation/power/powercap/powercap.rst`), energy counters of `/sys/class/hwmon` (kernel
//! `Documentation/hwmon/sysfs-interface.rst`), a power meter of the whole host there, and a battery
//! that discharges. The first kind that can be read is used alone: they overlap.

use std::time::Duration;

use thiserror::Error;

use crate::HostFiles;

const POWERCAP: &str = "class/powercap";
const HWMON: &str = "class/hwmon";
const SUPPLIES: &str = "class/power_supply";
/// Sensors of one kind that a device has at most.
const SENSORS_MAX: u32 = 1024;
/// Meters used at most: two for each package of the largest hosts.
const METERS_MAX: usize = 256;

/// The meters of a host and what they have counted so far.
#[derive(Debug)]
pub struct EnergyMeter {
    files: HostFiles,
    source: Source,
    meters: Vec<Meter>,
    last: Option<Reading>,
    joules: f64,
}

/// What a meter covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// RAPL: processor packages and, where counted apart, their memory.
    Rapl,
    /// Energy counters of processor sockets.
    Sockets,
    /// A power meter of the whole host, sampled.
    Host,
    /// Batteries: the whole host while it runs from them, sampled.
    Battery,
}

/// Why a host's energy is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoMeter {
    /// There is none.
    #[error(
        "this host has no energy meter (no RAPL below /sys/class/powercap, no energy or power \
         sensor below /sys/class/hwmon, no discharging battery)"
    )]
    None,
    /// There is one, and this user may not read it.
    #[error("only root may read /sys/{path}")]
    Privilege {
        /// The counter, below `/sys`.
        path: String,
    },
}

/// One counter or sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Meter {
    /// Path below `/sys`; of batteries, the folder.
    path: String,
    /// A counter starts again from 0 after this many microjoules.
    range_uj: Option<u64>,
}

/// All meters at one moment: microjoules counted, or microwatts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading {
    at: Duration,
    values: Vec<u64>,
}

impl EnergyMeter {
    /// The meters of this host.
    ///
    /// # Errors
    /// There is none, or none that may be read.
    pub fn find(files: HostFiles) -> Result<Self, NoMeter> {
        let mut unreadable = None;
        for source in [Source::Rapl, Source::Sockets, Source::Host, Source::Battery] {
            let mut meters = meters(&files, source);
            meters.truncate(METERS_MAX);
            let Some(first) = meters.first() else { continue };
            let path = first.path.clone();
            let found = Self { files: files.clone(), source, meters, last: None, joules: 0.0 };
            if found.read().is_some() {
                return Ok(found);
            }
            unreadable.get_or_insert(NoMeter::Privilege { path });
        }
        Err(unreadable.unwrap_or(NoMeter::None))
    }

    /// Where the energy is measured, and what it covers.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether the figures are sampled power rather than counted energy.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        matches!(self.source, Source::Host | Source::Battery)
    }

    /// Reads the meters; `now` counts from any fixed moment. To be called often enough: a counter
    /// may start again once between two calls, and sampled power is taken as straight in between.
    /// A meter that cannot be read now is made up for by the next call.
    pub fn sample(&mut self, now: Duration) {
        let Some(values) = self.read() else { return };
        let reading = Reading { at: now, values };
        if let Some(last) = &self.last {
            self.joules += self.between(last, &reading);
        }
        self.last = Some(reading);
    }

    /// Joules from the first sample to the last.
    #[must_use]
    pub fn joules(&self) -> f64 {
        self.joules
    }

    fn between(&self, from: &Reading, to: &Reading) -> f64 {
        let seconds = to.at.saturating_sub(from.at).as_secs_f64();
        let pairs = from.values.iter().zip(&to.values).zip(&self.meters);
        let micro: f64 = pairs
            .map(|((from, to), meter)| {
                if self.is_sampled() {
                    (*from as f64 + *to as f64) / 2.0 * seconds
                } else {
                    gained(*from, *to, meter.range_uj) as f64
                }
            })
            .sum();
        micro / 1e6
    }

    /// All meters or nothing: a sum without one of them is another sum.
    fn read(&self) -> Option<Vec<u64>> {
        let value = |meter: &Meter| match self.source {
            Source::Battery => battery_microwatts(&self.files, &meter.path),
            _ => number(&self.files, &meter.path),
        };
        self.meters.iter().map(value).collect()
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Rapl => "processor packages and memory (RAPL)",
            Self::Sockets => "processor sockets (hwmon energy counters)",
            Self::Host => "the whole host (power meter, sampled)",
            Self::Battery => "the whole host (battery, sampled)",
        })
    }
}

/// Microjoules a counter gained; one that has no range and fell was reset, and tells nothing.
fn gained(from: u64, to: u64, range: Option<u64>) -> u64 {
    match to.checked_sub(from) {
        Some(gain) => gain,
        None => range.map_or(0, |range| range.saturating_sub(from).saturating_add(to)),
    }
}

fn meters(files: &HostFiles, source: Source) -> Vec<Meter> {
    match source {
        Source::Rapl => rapl(files),
        Source::Sockets => sensors(files, "energy", "input", |label| !label.starts_with("Ecore")),
        Source::Host => host_power(files),
        Source::Battery => batteries(files),
    }
}

/// Packages, and memory where it is a zone of its own. `psys` covers both and more, `core` and
/// `uncore` are parts of their package, and `intel-rapl-mmio` is the same package once more.
fn rapl(files: &HostFiles) -> Vec<Meter> {
    let mut zones = files.sys_names(POWERCAP);
    zones.retain(|zone| zone.starts_with("intel-rapl:"));
    zones.sort();
    zones
        .into_iter()
        .filter_map(|zone| {
            let folder = format!("{POWERCAP}/{zone}");
            let name = files.sys_line(&format!("{folder}/name"))?;
            let range_uj = number(files, &format!("{folder}/max_energy_range_uj"));
            let counts = name.starts_with("package") || name == "dram";
            counts.then(|| Meter { path: format!("{folder}/energy_uj"), range_uj })
        })
        .collect()
}

/// `KINDn_FIELD` of every hwmon device whose label passes.
fn sensors(files: &HostFiles, kind: &str, field: &str, passes: fn(&str) -> bool) -> Vec<Meter> {
    let mut devices = files.sys_names(HWMON);
    devices.sort();
    let mut meters = Vec::new();
    for device in devices {
        let mut names = files.sys_names(&format!("{HWMON}/{device}"));
        names.sort();
        for name in names {
            let number = name.strip_prefix(kind).and_then(|rest| rest.strip_suffix(field));
            let number = number.and_then(|number| number.strip_suffix('_')?.parse::<u32>().ok());
            let Some(number) = number.filter(|number| *number <= SENSORS_MAX) else { continue };
            let label = files.sys_line(&format!("{HWMON}/{device}/{kind}{number}_label"));
            if passes(label.as_deref().unwrap_or_default()) {
                let path = format!("{HWMON}/{device}/{name}");
                meters.push(Meter { path, range_uj: None });
            }
        }
    }
    meters
}

/// The ACPI power meter: what the whole host draws. Other power sensors are of parts.
fn host_power(files: &HostFiles) -> Vec<Meter> {
    let is_host = |meter: &Meter| {
        let device = meter.path.rsplit_once('/').map_or("", |(device, _)| device);
        files.sys_line(&format!("{device}/name")).as_deref() == Some("power_meter")
    };
    let mut meters = sensors(files, "power", "average", |_| true);
    meters.retain(is_host);
    meters.truncate(1);
    meters
}

fn batteries(files: &HostFiles) -> Vec<Meter> {
    let mut supplies = files.sys_names(SUPPLIES);
    supplies.sort();
    let folders = supplies.into_iter().map(|name| format!("{SUPPLIES}/{name}"));
    folders
        .filter(|folder| {
            let line = |name: &str| files.sys_line(&format!("{folder}/{name}"));
            let is_host = line("scope").is_none_or(|scope| scope == "System");
            line("type").as_deref() == Some("Battery")
                && line("status").as_deref() == Some("Discharging")
                && is_host
        })
        .map(|path| Meter { path, range_uj: None })
        .collect()
}

/// Power drawn from a battery; `None` once it no longer discharges.
fn battery_microwatts(files: &HostFiles, folder: &str) -> Option<u64> {
    let value = |name: &str| number(files, &format!("{folder}/{name}"));
    let status = files.sys_line(&format!("{folder}/status"))?;
    if status != "Discharging" {
        return None;
    }
    value("power_now").or_else(|| {
        // Microamperes times microvolts.
        let product = u128::from(value("current_now")?) * u128::from(value("voltage_now")?);
        u64::try_from(product / 1_000_000).ok()
    })
}

fn number(files: &HostFiles, path: &str) -> Option<u64> {
    // Some drivers show a current that flows out as negative.
    files.sys_line(path)?.parse::<i64>().ok().map(i64::unsigned_abs)
}

#[cfg(test)]
mod tests;
