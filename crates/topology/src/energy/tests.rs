use std::fs;
use std::path::PathBuf;

use super::*;

/// A recorded tree: paths below `/sys` and their text.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(label: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("energy-{label}-{}", std::process::id()));
        let tree = Self { root };
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn meter(&self) -> Result<EnergyMeter, NoMeter> {
        EnergyMeter::find(HostFiles::at(&self.root))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// A dual-socket Xeon: two packages, a memory zone in the first, and zones that must not count.
fn xeon(label: &str) -> Tree {
    let tree = Tree::new(label, &[("class/powercap/intel-rapl/enabled", "1")]);
    for (zone, name, uj) in [
        ("intel-rapl:0", "package-0", "262143328000"),
        ("intel-rapl:0:0", "core", "5"),
        ("intel-rapl:0:1", "dram", "1000"),
        ("intel-rapl:1", "package-1", "2000"),
        ("intel-rapl:2", "psys", "77"),
        ("intel-rapl-mmio:0", "package-0", "262143328000"),
    ] {
        tree.write(&format!("class/powercap/{zone}/name"), name);
        tree.write(&format!("class/powercap/{zone}/energy_uj"), uj);
        tree.write(&format!("class/powercap/{zone}/max_energy_range_uj"), "262143328850");
    }
    tree
}

#[test]
fn packages_and_memory_count_once_and_across_a_wrap() {
    let tree = xeon("xeon");
    let mut meter = tree.meter().unwrap();
    assert_eq!(meter.source(), Source::Rapl);
    assert_eq!(meter.meters.len(), 3);
    meter.sample(SECOND);
    assert_eq!(meter.joules(), 0.0);
    // Package 0 starts again: 850 to its end, 3 999 150 after; the others gain 1 J and 2 J.
    tree.write("class/powercap/intel-rapl:0/energy_uj", "3999150");
    tree.write("class/powercap/intel-rapl:0:1/energy_uj", "1001000");
    tree.write("class/powercap/intel-rapl:1/energy_uj", "2002000");
    tree.write("class/powercap/intel-rapl:2/energy_uj", "999999999");
    meter.sample(2 * SECOND);
    assert!((meter.joules() - 7.0).abs() < 1e-9, "{}", meter.joules());
}

#[test]
fn a_meter_that_is_gone_for_a_moment_is_made_up_for() {
    let tree = xeon("gone");
    let mut meter = tree.meter().unwrap();
    meter.sample(SECOND);
    tree.write("class/powercap/intel-rapl:1/energy_uj", "busy");
    tree.write("class/powercap/intel-rapl:0:1/energy_uj", "500001000");
    meter.sample(2 * SECOND);
    assert_eq!(meter.joules(), 0.0);
    tree.write("class/powercap/intel-rapl:1/energy_uj", "1002000");
    meter.sample(3 * SECOND);
    assert!((meter.joules() - 501.0).abs() < 1e-9, "{}", meter.joules());
}

#[test]
fn sockets_without_their_cores() {
    let tree = Tree::new(
        "amd",
        &[
            ("class/hwmon/hwmon0/name", "nvme"),
            ("class/hwmon/hwmon0/temp1_input", "40000"),
            ("class/hwmon/hwmon1/name", "amd_energy"),
            ("class/hwmon/hwmon1/energy1_label", "Ecore000"),
            ("class/hwmon/hwmon1/energy1_input", "100"),
            ("class/hwmon/hwmon1/energy2_label", "Esocket0"),
            ("class/hwmon/hwmon1/energy2_input", "9000000"),
        ],
    );
    let mut meter = tree.meter().unwrap();
    assert_eq!((meter.source(), meter.meters.len()), (Source::Sockets, 1));
    meter.sample(SECOND);
    // A counter without a range that fell was reset: nothing is known of it.
    tree.write("class/hwmon/hwmon1/energy2_input", "1000000");
    meter.sample(2 * SECOND);
    assert_eq!(meter.joules(), 0.0);
    tree.write("class/hwmon/hwmon1/energy2_input", "4500000");
    meter.sample(3 * SECOND);
    assert!((meter.joules() - 3.5).abs() < 1e-9);
}

#[test]
fn a_power_meter_is_summed_over_time() {
    let tree = Tree::new(
        "acpi",
        &[
            ("class/hwmon/hwmon0/name", "amdgpu"),
            ("class/hwmon/hwmon0/power1_average", "33000000"),
            ("class/hwmon/hwmon3/name", "power_meter"),
            ("class/hwmon/hwmon3/power1_average", "200000000"),
        ],
    );
    let mut meter = tree.meter().unwrap();
    assert_eq!(meter.source(), Source::Host);
    assert!(meter.is_sampled());
    meter.sample(SECOND);
    tree.write("class/hwmon/hwmon3/power1_average", "300000000");
    meter.sample(3 * SECOND);
    assert!((meter.joules() - 500.0).abs() < 1e-9, "{}", meter.joules());
}

#[test]
fn a_battery_counts_while_it_discharges() {
    let tree = Tree::new(
        "battery",
        &[
            ("class/power_supply/AC/type", "Mains"),
            ("class/power_supply/BAT0/type", "Battery"),
            ("class/power_supply/BAT0/status", "Discharging"),
            ("class/power_supply/BAT0/current_now", "-1500000"),
            ("class/power_supply/BAT0/voltage_now", "12000000"),
            ("class/power_supply/mouse/type", "Battery"),
            ("class/power_supply/mouse/status", "Discharging"),
            ("class/power_supply/mouse/scope", "Device"),
            ("class/power_supply/mouse/power_now", "1"),
        ],
    );
    let mut meter = tree.meter().unwrap();
    assert_eq!((meter.source(), meter.meters.len()), (Source::Battery, 1));
    meter.sample(SECOND);
    meter.sample(3 * SECOND);
    assert!((meter.joules() - 36.0).abs() < 1e-9, "{}", meter.joules());
    tree.write("class/power_supply/BAT0/status", "Charging");
    assert_eq!(tree.meter().unwrap_err(), NoMeter::None);
}

#[test]
fn no_meter_and_no_permission_are_told_apart() {
    let tree = Tree::new("none", &[("class/hwmon/hwmon0/name", "coretemp")]);
    assert_eq!(tree.meter().unwrap_err(), NoMeter::None);
    let tree = Tree::new("secret", &[("class/powercap/intel-rapl:0/name", "package-0")]);
    let path = "class/powercap/intel-rapl:0/energy_uj".to_owned();
    assert_eq!(tree.meter().unwrap_err(), NoMeter::Privilege { path });
}

#[test]
fn any_text_is_a_reading_or_none() {
    let tree = xeon("any");
    bolero::check!().with_type::<String>().for_each(|text| {
        tree.write("class/powercap/intel-rapl:0/energy_uj", text);
        tree.write("class/powercap/intel-rapl:0/max_energy_range_uj", text);
        if let Ok(mut meter) = tree.meter() {
            meter.sample(SECOND);
            tree.write("class/powercap/intel-rapl:1/energy_uj", text);
            meter.sample(2 * SECOND);
            assert!(meter.joules() >= 0.0);
        }
    });
    for (from, to, range) in
        [(u64::MAX, 0, Some(0)), (u64::MAX, u64::MAX - 1, Some(u64::MAX)), (9, 3, None)]
    {
        gained(from, to, range);
    }
}
