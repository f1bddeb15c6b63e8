//! Planted limits drawn from a seed: combinations that nobody chose, each with the throughput that its arithmetic
//! predicts, so that a recording in which the limit did not bind is discarded and not judged.

use results::Results;
use stats::Random;

use super::cases::{Accepted, Case, OnHost};

/// What is planted binds below this part of the next ceiling, so that nothing else does.
const BELOW_NEXT: f64 = 0.5;

/// Header bytes of a segment with timestamps, and of its frame as the lab's link counts it.
const HEADERS_BYTES: f64 = 66.0;

/// A drawn case.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The case; its name holds the seed.
    pub case: Case,
    /// Throughput of one stream that the plan predicts, lowest and highest, bit/s.
    pub predicted_bits_per_s: (f64, f64),
}

/// The path that a limit is planted on.
struct Bed {
    /// Round trip of the idle path, seconds.
    rtt_s: f64,
    /// Rate of the link, bit/s.
    rate: f64,
    mtu: u32,
    congestion: &'static str,
    is_reverse: bool,
}

impl Drawn {
    /// Whether the planted limit is what was measured: by throughput alone, which no verdict decides.
    pub fn binds(&self, results: &Results) -> bool {
        let judged = explain::diagnose(results).measured;
        let (low, high) = self.predicted_bits_per_s;
        judged.is_some_and(|rate| (low..=high).contains(&rate.median))
    }
}

/// The first `count` cases of a seed.
pub fn drawn(seed: u64, count: usize) -> Vec<Drawn> {
    let mut random = Random::from_seed(seed);
    let mut all = Vec::new();
    while all.len() < count {
        let bed = Bed::drawn(&mut random);
        let planted = planted(&bed, random.below(KINDS), &mut random);
        all.extend(planted.map(|planted| planted.on(&bed, seed, all.len())));
    }
    all
}

/// One of `values`.
fn one_of<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.below(values.len() as u64) as usize]
}

/// A value between two, evenly over its logarithm, to two significant digits.
fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    let value = low * (high / low).powf(random.unit());
    let step = 10f64.powf(value.log10().floor() - 1.0);
    (value / step).round() * step
}

/// A rate as lab files have it.
fn kbit(rate: f64) -> String {
    format!("{:.0}kbit", rate / 1e3)
}

impl Bed {
    fn drawn(random: &mut Random) -> Self {
        Self {
            rtt_s: between(random, 1e-3, 80e-3),
            rate: between(random, 50e6, 1e9),
            mtu: one_of(random, &[1280, 1500, 1500, 4000, 9000]),
            congestion: one_of(random, &["reno", "cubic", "bbr"]),
            is_reverse: random.below(3) == 0,
        }
    }

    /// Payload of a segment, bytes.
    fn mss(&self) -> f64 {
        f64::from(self.mtu) - 52.0
    }

    /// What the link carries of payload, bit/s.
    fn ceiling(&self) -> f64 {
        self.rate * self.mss() / (self.mss() + HEADERS_BYTES)
    }

    fn sender(&self) -> &'static str {
        if self.is_reverse { "far" } else { "near" }
    }

    fn receiver(&self) -> &'static str {
        if self.is_reverse { "near" } else { "far" }
    }
}

/// What is planted on a bed.
struct Planted {
    plants: String,
    accept: String,
    predicted: (f64, f64),
    link: Vec<(&'static str, toml::Value)>,
    sysctl: Option<(&'static str, String, String)>,
    prepare: Vec<OnHost>,
    options: Vec<String>,
}

const KINDS: u64 = 10;

/// A limit of this kind on this bed; `None` where the arithmetic leaves no room for it.
fn planted(bed: &Bed, kind: u64, random: &mut Random) -> Option<Planted> {
    match kind {
        0 | 1 => buffer(bed, kind == 0, random),
        2 => loss(bed, random),
        3 | 4 => Some(shaper(bed, kind == 3, random)),
        5 => {
            let about = about(bed.ceiling());
            Some(Planted::new("the interfaces' own rate".to_owned(), "link-rate".to_owned(), about))
        }
        6..=8 => Some(own_rate(bed, kind, random)),
        _ => locked(bed, random),
    }
}

/// What a rate that is planted lets through.
fn about(rate: f64) -> (f64, f64) {
    (rate * 0.6, rate * 1.15)
}

/// A buffer that a kernel lets grow so far only.
fn buffer(bed: &Bed, is_receive: bool, random: &mut Random) -> Option<Planted> {
    let most = bed.ceiling() * BELOW_NEXT * bed.rtt_s / 8.0;
    let least = 6.0 * bed.mss().max(16e3);
    if most < least {
        return None;
    }
    let window = between(random, least, most);
    // How much of a buffer is payload depends on the segments.
    let (key, end, what, share) = if is_receive {
        ("net.ipv4.tcp_rmem", bed.receiver(), "receive", 2.0)
    } else {
        ("net.ipv4.tcp_wmem", bed.sender(), "send", 1.6)
    };
    let bytes = (window * share).round();
    let limit = if is_receive { "receive-window" } else { "send-buffer" };
    let rate = window * 8.0 / bed.rtt_s;
    let plants = format!("the {end} kernel lets a {what} buffer grow to {bytes} bytes only");
    Some(Planted {
        sysctl: Some((end, key.to_owned(), format!("4096 131072 {bytes}"))),
        ..Planted::new(plants, format!("{limit} at {end}"), (rate * 0.35, rate * 1.6))
    })
}

/// Random losses that hold the window well below the link.
fn loss(bed: &Bed, random: &mut Random) -> Option<Planted> {
    let lost = between(random, 0.0005, 0.01);
    let law = 1.22 * bed.mss() * 8.0 / (bed.rtt_s * lost.sqrt());
    if law > bed.ceiling() * BELOW_NEXT || law < 4e6 || bed.congestion == "bbr" {
        return None;
    }
    let plants = format!("the path loses {:.2}% of its packets", lost * 100.0);
    Some(Planted {
        link: vec![("loss", toml::Value::String(format!("{:.3}%", lost * 100.0)))],
        ..Planted::new(plants, "loss".to_owned(), (law * 0.3, bed.ceiling() * 0.8))
    })
}

/// A shaper on the path, or of the sending host.
fn shaper(bed: &Bed, is_on_path: bool, random: &mut Random) -> Planted {
    let rate = between(random, 10e6, bed.ceiling() * BELOW_NEXT);
    let megabits = rate / 1e6;
    if !is_on_path {
        let sender = bed.sender();
        let run =
            format!("tc qdisc add dev eth0 root tbf rate {rate:.0}bit burst 128k latency 20ms");
        let plants = format!("the {sender} host shapes to {megabits:.0} Mbit/s");
        return Planted {
            prepare: vec![OnHost { host: sender.to_owned(), run }],
            ..Planted::new(plants, format!("shaper at {sender}"), about(rate))
        };
    }
    let queue = (rate * bed.rtt_s.max(10e-3) / 8.0).max(128e3).round();
    let shaper = [("rate", kbit(rate)), ("burst", "64KiB".to_owned())];
    let shaper = shaper.map(|(key, value)| (key.to_owned(), toml::Value::String(value)));
    Planted {
        link: vec![
            ("shaper", toml::Value::Table(shaper.into_iter().collect())),
            ("queue", toml::Value::String(format!("{queue}"))),
        ],
        ..Planted::new(
            format!("a shaper on the path passes {megabits:.0} Mbit/s"),
            "shaper".to_owned(),
            about(rate),
        )
    }
}

/// A rate that the test itself asks for: of pacing, of reading, of writing.
fn own_rate(bed: &Bed, kind: u64, random: &mut Random) -> Planted {
    let rate = between(random, 5e6, bed.ceiling() * BELOW_NEXT);
    let (option, what, limit, end) = match kind {
        6 => ("--pacing-rate", "kernel paces", "pacing", bed.sender()),
        7 => ("--read-rate", "application reads", "receiving-application", bed.receiver()),
        _ => ("--offered-rate", "application writes", "sending-application", bed.sender()),
    };
    Planted {
        options: vec![option.to_owned(), format!("{rate:.0}")],
        ..Planted::new(
            format!("the {end} {what} at {:.0} Mbit/s", rate / 1e6),
            format!("{limit} at {end}"),
            about(rate),
        )
    }
}

/// A congestion window that the route locks.
fn locked(bed: &Bed, random: &mut Random) -> Option<Planted> {
    let segments = between(random, 10.0, 80.0);
    let rate = segments * bed.mss() * 8.0 / bed.rtt_s;
    if rate > bed.ceiling() * BELOW_NEXT || bed.congestion == "bbr" {
        return None;
    }
    let sender = bed.sender();
    let run = format!("ip route change 10.77.0.0/24 dev eth0 cwnd lock {segments:.0}");
    let plants =
        format!("the {sender} host's route locks the congestion window to {segments:.0} segments");
    Some(Planted {
        prepare: vec![OnHost { host: sender.to_owned(), run }],
        options: vec!["-4".to_owned()],
        ..Planted::new(plants, format!("congestion-control at {sender}"), about(rate))
    })
}

impl Planted {
    fn new(plants: String, accept: String, predicted: (f64, f64)) -> Self {
        Self {
            plants,
            accept,
            predicted,
            link: Vec::new(),
            sysctl: None,
            prepare: Vec::new(),
            options: Vec::new(),
        }
    }

    fn on(self, bed: &Bed, seed: u64, number: usize) -> Drawn {
        let text = |value: String| toml::Value::String(value);
        // Twice the product of rate and round trip, and room for a super-segment.
        let queue = (2.0 * bed.rate * bed.rtt_s / 8.0).max(256e3).round();
        let mut link: toml::Table = [
            ("delay", text(format!("{}us", (bed.rtt_s * 5e5).round()))),
            ("rate", text(kbit(bed.rate))),
            ("queue", text(format!("{queue}"))),
            ("mtu", toml::Value::Integer(i64::from(bed.mtu))),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect();
        // What happens on the way of the data happens on the way back of a reversed test.
        let mut backward = toml::Table::new();
        for (key, value) in self.link {
            if bed.is_reverse {
                backward.insert(key.to_owned(), value);
            } else {
                link.insert(key.to_owned(), value);
            }
        }
        if !backward.is_empty() {
            link.insert("backward".to_owned(), toml::Value::Table(backward));
        }
        let host = |name: &str| -> toml::Table {
            let own = self.sysctl.as_ref().filter(|(end, ..)| *end == name);
            let sysctl: toml::Table =
                own.map(|(_, key, value)| (key.clone(), text(value.clone()))).into_iter().collect();
            let mut host = toml::Table::new();
            if !sysctl.is_empty() {
                host.insert("sysctl".to_owned(), toml::Value::Table(sysctl));
            }
            host
        };
        let mut options = vec!["--congestion".to_owned(), bed.congestion.to_owned()];
        options.extend(bed.is_reverse.then(|| "--reverse".to_owned()));
        // A test is long against its start.
        let seconds = (25.0 * bed.rtt_s).max(1.0).ceil();
        options.extend(["--duration".to_owned(), format!("{seconds}s")]);
        options.extend(self.options);
        let accept = Accepted::try_from(self.accept).expect("a known limit");
        let case = Case {
            name: format!("drawn-{seed}-{number}"),
            plants: format!(
                "{}; {:.0} Mbit/s, {:.1} ms, MTU {}, {}{}",
                self.plants,
                bed.rate / 1e6,
                bed.rtt_s * 1e3,
                bed.mtu,
                bed.congestion,
                if bed.is_reverse { ", the far end sends" } else { "" }
            ),
            accept: vec![accept],
            why: String::new(),
            live: false,
            link,
            near: host("near"),
            far: host("far"),
            options,
            prepare: self.prepare,
            beside: Vec::new(),
            serve: None,
            quota: None,
        };
        Drawn { case, predicted_bits_per_s: self.predicted }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_cases_again_and_another_seed_others() {
        let plants = |seed| -> Vec<String> {
            drawn(seed, 40).into_iter().map(|drawn| drawn.case.plants).collect()
        };
        assert_eq!(plants(1), plants(1));
        assert_ne!(plants(1), plants(2));
        assert_eq!(
            plants(1)[..20],
            drawn(1, 20).iter().map(|one| one.case.plants.clone()).collect::<Vec<_>>()[..]
        );
    }

    #[test]
    fn what_is_drawn_leaves_the_planted_limit_room_to_bind() {
        let all = drawn(7, 300);
        let mut limits = BTreeSet::new();
        for Drawn { case, predicted_bits_per_s: (low, high) } in &all {
            assert!(*low > 0.0 && low < high, "{case:?}");
            limits.insert(case.accept[0].limit.clone());
            assert!(case.link.contains_key("delay") && case.link.contains_key("rate"), "{case:?}");
        }
        assert!(limits.len() >= 9, "{limits:?}");
    }
}
