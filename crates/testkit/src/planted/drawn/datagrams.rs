//! UDP at two rates, and requests with and without load.

use stats::Random;

use super::{BasePath, Check, Kind, Planted, between, kbit, one_of, table, text};
use crate::planted::cases::OnHost;

pub(super) const KINDS: &[Kind] = &[
    random_loss,
    |base, random| Some(shaped(base, random)),
    policed,
    overfull_link,
    |base, random| Some(host_queue(base, random)),
    |base, random| Some(slow_reader(base, random)),
    |base, random| Some(offered(base, random)),
    queue,
    idle,
];

/// Payload of a datagram that fits the MTU, with IPv4, bytes.
fn payload(base: &BasePath) -> u32 {
    (base.mtu - 48).min(1400)
}

/// UDP at these rates, the highest first, bit/s.
fn at(base: &BasePath, rates: &[f64], more: &str) -> Vec<String> {
    let payload = payload(base);
    let line = |rate: &f64| {
        let reverse = if base.is_reverse { " --reverse" } else { "" };
        format!(
            "test far -4 --udp --block {payload} --offered-rate {rate:.0} --duration 1s{reverse}{more}"
        )
    };
    rates.iter().map(line).collect()
}

/// What arrives, from almost nothing to what is offered.
fn check(offered: f64, lost: (f64, f64)) -> Check {
    Check { lost: Some(lost), ..Check::rate(offered * 0.05, offered * 1.05) }
}

fn random_loss(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let rate = between(random, 4e6, base.rate * 0.6);
    let share = between(random, 0.005, 0.05);
    // At half the rate still a count to speak of.
    let count = rate * 0.5 / (8.0 * f64::from(base.mtu.min(1448))) * share;
    (count >= 60.0).then(|| Planted {
        link: vec![("loss", text(format!("{:.3}%", share * 100.0)))],
        measure: at(base, &[rate, rate * 0.5], ""),
        ..Planted::new(
            "a path's loss, of UDP",
            format!(
                "the path loses {:.1}% of its packets; UDP at {:.0} Mbit/s",
                share * 100.0,
                rate / 1e6
            ),
            "loss".to_owned(),
            check(rate, (share * 0.6, share * 1.6)),
        )
    })
}

fn shaped(base: &BasePath, random: &mut Random) -> Planted {
    let rate = between(random, 4e6, base.rate * 0.4);
    let times = one_of(random, &[1.5, 2.0]);
    Planted {
        link: vec![
            ("shaper", table([("rate", kbit(rate)), ("burst", text("64KiB"))])),
            ("queue", text("128KiB")),
        ],
        measure: at(base, &[rate * times, rate * 0.6], ""),
        ..Planted::new(
            "a path's shaper, of UDP",
            format!(
                "a shaper on the path passes {:.0} Mbit/s; UDP at {times} times that",
                rate / 1e6
            ),
            "shaper".to_owned(),
            check(rate * times, (0.1, 0.7)),
        )
    }
}

fn policed(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let rate = between(random, 10e6, base.rate * 0.4);
    let times = one_of(random, &[1.5, 2.0]);
    let end = base.receiver();
    let packets_per_s = rate / (8.0 * f64::from(payload(base)));
    (base.rate >= 30e6).then(|| Planted {
        prepare: super::policed(base.sender(), end, packets_per_s),
        measure: at(base, &[rate * times, rate * 0.6], ""),
        ..Planted::new(
            "a host's policing filter, of UDP",
            format!("a filter of the {end} host drops what exceeds {:.0} Mbit/s; UDP at {times} times that", rate / 1e6),
            "policer".to_owned(),
            check(rate * times, (0.1, 0.7)),
        )
    })
}

fn overfull_link(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let times = one_of(random, &[1.3, 1.6]);
    (base.rate <= 200e6).then(|| Planted {
        link: vec![("queue", text("128KiB"))],
        measure: at(base, &[base.rate * times, base.rate * 0.6], ""),
        accept: vec!["shaper".to_owned(), "link-rate".to_owned()],
        why: "a slower link on the path looks like a shaper to UDP: docs/limits.md names both shaper",
        ..Planted::new(
            "a path's link, of UDP",
            format!("UDP at {times} times the link's rate"),
            "shaper".to_owned(),
            check(base.rate * times, (0.1, 0.6)),
        )
    })
}

fn host_queue(base: &BasePath, random: &mut Random) -> Planted {
    let rate = between(random, 4e6, base.rate * 0.4);
    let sender = base.sender();
    let run = format!("tc qdisc add dev eth0 root tbf rate {rate:.0}bit burst 70k limit 40k");
    Planted {
        prepare: vec![OnHost { host: sender.to_owned(), run }],
        measure: at(base, &[rate * 2.0, rate * 0.6], ""),
        accept: vec![format!("qdisc at {sender}"), format!("shaper at {sender}")],
        why: "the queue that drops is a shaper's",
        ..Planted::new(
            "a host's tbf, of UDP",
            format!(
                "the {sender} host shapes to {:.0} Mbit/s with a short queue; UDP at twice that",
                rate / 1e6
            ),
            format!("qdisc at {sender}"),
            check(rate * 2.0, (0.1, 0.7)),
        )
    }
}

fn slow_reader(base: &BasePath, random: &mut Random) -> Planted {
    let rate = between(random, 8e6, base.rate * 0.7);
    let end = base.receiver();
    Planted {
        // The usual buffer would hold seconds of it.
        measure: at(base, &[rate], &format!(" --window 256K --read-rate {:.0}", rate * 0.3)),
        ..Planted::new(
            "--read-rate, of UDP",
            format!("the {end} application reads 0.3 of {:.0} Mbit/s of UDP", rate / 1e6),
            format!("receiving-application at {end}"),
            check(rate, (0.1, 0.8)),
        )
    }
}

fn offered(base: &BasePath, random: &mut Random) -> Planted {
    let rate = between(random, 2e6, base.rate * 0.5);
    let sender = base.sender();
    Planted {
        measure: at(base, &[rate], ""),
        ..Planted::new(
            "--offered-rate, of UDP",
            format!(
                "the {sender} application sends {:.0} Mbit/s of UDP, and all of it arrives",
                rate / 1e6
            ),
            format!("sending-application at {sender}"),
            Check { lost: Some((0.0, 5e-5)), ..Check::about(rate) },
        )
    }
}

/// Requests behind bulk data in the queue of the slowest link.
fn queue(base: &BasePath, _: &mut Random) -> Option<Planted> {
    const PORT: u16 = 5301;
    if base.rtt_s > 20e-3 || base.rate > 200e6 || base.is_reverse {
        return None;
    }
    // A queue of 30 ms, all of which six flows fill.
    let bytes = (base.rate * 30e-3 / 8.0).max(128e3).round();
    let load = format!(
        "test far --port {PORT} --streams 6 --congestion cubic --duration 4s >/dev/null & sleep 1; exec clearstream "
    );
    let requests = "test far -4 --rr --duration 1s";
    Some(Planted {
        link: vec![("queue", text(format!("{bytes}")))],
        beside: vec![OnHost {
            host: "far".to_owned(),
            run: format!("exec clearstream serve --port {PORT}"),
        }],
        measure: vec![requests.to_owned(), format!("{load}{requests}")],
        ..Planted::new(
            "bulk data before requests",
            "six TCP flows fill the queue of the link before requests".to_owned(),
            "queue".to_owned(),
            Check::median_s(base.rtt_s + 8e-3, 1.0),
        )
    })
}

/// Requests on an idle path: its delay is what they take.
fn idle(base: &BasePath, _: &mut Random) -> Option<Planted> {
    (base.rtt_s >= 5e-3 && !base.is_reverse).then(|| Planted {
        measure: vec!["test far -4 --rr --duration 1s".to_owned()],
        ..Planted::new(
            "nothing, of requests",
            "nothing: requests on an idle path".to_owned(),
            "none-found".to_owned(),
            Check::median_s(base.rtt_s * 0.95, base.rtt_s * 1.2 + 0.5e-3),
        )
    })
}
