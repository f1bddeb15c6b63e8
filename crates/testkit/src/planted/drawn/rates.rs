//! Rates: of paths, hosts, applications, other traffic and the way back; and paths on which nothing is planted.

use stats::Random;

use super::{
    BELOW_NEXT, BasePath, Check, HEADERS_BYTES, Kind, Planted, between, kbit, one_of, policed,
    table, text,
};
use crate::planted::cases::OnHost;

pub(super) const KINDS: &[Kind] = &[
    |base, random| Some(shaped_path(base, random)),
    |base, random| Some(shaped_host(base, random, false)),
    |base, random| Some(shaped_host(base, random, true)),
    |base, random| Some(shaped_arrival(base, random)),
    |base, random| policer(base, random, false),
    |base, random| policer(base, random, true),
    |base, random| own_rate(base, random, "--pacing-rate", "kernel paces", "pacing"),
    |base, random| {
        own_rate(base, random, "--read-rate", "application reads", "receiving-application")
    },
    |base, random| {
        own_rate(base, random, "--offered-rate", "application writes", "sending-application")
    },
    |base, random| cross_traffic(base, random, false),
    |base, random| cross_traffic(base, random, true),
    |base, random| return_path(base, random, false),
    |base, random| return_path(base, random, true),
    |base, _| Some(nothing(base, "nothing", "nothing".to_owned())),
    |base, random| unplanted(base, random, "nothing: a shaper above the link"),
    |base, random| unplanted(base, random, "nothing: buffers above the product"),
    |base, random| unplanted(base, random, "nothing: acknowledgements lost"),
    |base, random| unplanted(base, random, "nothing: applications above the link"),
];

/// Rates that are planted, bit/s: from the lowest to half of what the link carries.
fn rate(base: &BasePath, random: &mut Random) -> f64 {
    between(random, 4e6, base.ceiling() * BELOW_NEXT)
}

/// A shaper on the path.
fn shaped_path(base: &BasePath, random: &mut Random) -> Planted {
    let rate = rate(base, random);
    let queue = (rate * base.rtt_s.max(10e-3) / 8.0).max(128e3).round();
    Planted {
        link: vec![
            ("shaper", table([("rate", kbit(rate)), ("burst", text("64KiB"))])),
            ("queue", text(format!("{queue}"))),
        ],
        ..Planted::new(
            "a path's shaper",
            format!("a shaper on the path passes {:.0} Mbit/s", rate / 1e6),
            "shaper".to_owned(),
            Check::about(rate),
        )
    }
}

/// A shaper of the sending host.
fn shaped_host(base: &BasePath, random: &mut Random, is_class: bool) -> Planted {
    let rate = rate(base, random);
    let sender = base.sender();
    let (by, run) = if is_class {
        let class = format!(
            "tc qdisc add dev eth0 root handle 1: htb default 1; \
             tc class add dev eth0 parent 1: classid 1:1 htb rate {rate:.0}bit"
        );
        ("a host's htb", class)
    } else {
        let run =
            format!("tc qdisc add dev eth0 root tbf rate {rate:.0}bit burst 128k latency 20ms");
        ("a host's tbf", run)
    };
    Planted {
        prepare: vec![OnHost { host: sender.to_owned(), run }],
        ..Planted::new(
            by,
            format!("the {sender} host shapes to {:.0} Mbit/s", rate / 1e6),
            // A stock iperf3 does not tell that it is its own host.
            match base.is_foreign && base.is_reverse {
                true => "shaper".to_owned(),
                false => format!("shaper at {sender}"),
            },
            Check::about(rate),
        )
    }
}

/// A shaper of the receiving host, through which all that arrives is sent.
fn shaped_arrival(base: &BasePath, random: &mut Random) -> Planted {
    let rate = rate(base, random);
    let end = base.receiver();
    let run = format!(
        "ip link add ifb0 type ifb; ip link set ifb0 up; tc qdisc add dev eth0 ingress; \
         tc filter add dev eth0 parent ffff: protocol all u32 match u32 0 0 \
         action mirred egress redirect dev ifb0; \
         tc qdisc add dev ifb0 root tbf rate {rate:.0}bit burst 128k latency 40ms"
    );
    Planted {
        prepare: vec![OnHost { host: end.to_owned(), run }],
        ..Planted::new(
            "a host's shaper of arrivals",
            format!("the {end} host shapes what arrives to {:.0} Mbit/s", rate / 1e6),
            "shaper".to_owned(),
            Check::about(rate),
        )
    }
}

/// Packets above a rate are dropped, not queued.
fn policer(base: &BasePath, random: &mut Random, is_filter: bool) -> Option<Planted> {
    // The path's policer is a shaper with a queue of two super-segments: room for them, and no time.
    const QUEUE_BYTES: f64 = 128.0 * 1024.0;
    const WAITS_S: f64 = 5e-3;
    let least = if is_filter { 4e6 } else { QUEUE_BYTES * 8.0 / WAITS_S };
    let most = base.ceiling() * BELOW_NEXT;
    let mss = if is_filter { base.mss() } else { base.mss().max(16e3) };
    // A window at the rate is several times what leaves at once, so that not every burst is cut.
    if most < least
        || most * base.rtt_s / 8.0 < 8.0 * mss
        || base.rtt_s < 4.0 * WAITS_S && !is_filter
    {
        return None;
    }
    let rate = between(random, least.max(8.0 * mss * 8.0 / base.rtt_s), most);
    let check = Check { retransmits_min: 10, ..Check::rate(rate * 0.1, rate * 1.15) };
    let end = base.receiver();
    let megabits = rate / 1e6;
    Some(if is_filter {
        Planted {
            prepare: policed(base.sender(), end, rate / (8.0 * base.mss())),
            ..Planted::new(
                "a host's policing filter",
                format!("a filter of the {end} host drops what exceeds {megabits:.0} Mbit/s"),
                "policer".to_owned(),
                check,
            )
        }
    } else {
        let burst = text(format!("{:.0}", (rate * 0.02 / 8.0).max(QUEUE_BYTES)));
        Planted {
            link: vec![
                ("shaper", table([("rate", kbit(rate)), ("burst", burst)])),
                ("queue", text(format!("{QUEUE_BYTES:.0}"))),
            ],
            ..Planted::new(
                "a path's policer",
                format!("a policer on the path drops what exceeds {megabits:.0} Mbit/s"),
                "policer".to_owned(),
                check,
            )
        }
    })
}

/// A rate that the test itself asks for: of pacing, of reading, of writing.
fn own_rate(
    base: &BasePath,
    random: &mut Random,
    option: &'static str,
    what: &str,
    limit: &str,
) -> Option<Planted> {
    // A stock iperf3 does as it is told of these.
    if base.is_foreign {
        return None;
    }
    let rate = rate(base, random);
    let end = if limit == "receiving-application" { base.receiver() } else { base.sender() };
    Some(Planted {
        options: vec![option.to_owned(), format!("{rate:.0}")],
        ..Planted::new(
            option,
            format!("the {end} {what} at {:.0} Mbit/s", rate / 1e6),
            format!("{limit} at {end}"),
            Check::about(rate),
        )
    })
}

/// Another program that sends over the same interface.
fn cross_traffic(base: &BasePath, random: &mut Random, is_tcp: bool) -> Option<Planted> {
    const PORT: u16 = 5301;
    if base.is_foreign || base.rtt_s > 50e-3 || base.rate < 30e6 {
        return None;
    }
    let (sender, receiver) = (base.sender(), base.receiver());
    let share = between(random, 0.6, 0.75);
    let (by, what, traffic, most) = if is_tcp {
        let line = "--streams 6 --congestion cubic".to_owned();
        ("six other TCP flows", "sends six TCP flows".to_owned(), line, 0.6)
    } else {
        let rate = base.rate * share;
        let line = format!("--udp --offered-rate {rate:.0}");
        let what = format!("sends {:.0} Mbit/s of UDP", rate / 1e6);
        ("other UDP traffic", what, line, 0.7)
    };
    let other = |host: &str, run: String| OnHost { host: host.to_owned(), run };
    let run = format!(
        "sleep 0.3; exec clearstream test {receiver} --port {PORT} {traffic} --duration 120s"
    );
    Some(Planted {
        beside: vec![
            other(receiver, format!("exec clearstream serve --port {PORT}")),
            other(sender, run),
        ],
        ..Planted::new(
            by,
            format!("another program of the {sender} host {what} over the same link"),
            "cross-traffic".to_owned(),
            Check::rate(base.ceiling() * 0.03, base.ceiling() * most),
        )
    })
}

/// Acknowledgements that find less room on their way than the data needs.
fn return_path(base: &BasePath, random: &mut Random, is_host: bool) -> Option<Planted> {
    if base.mtu < 1280
        || base.rtt_s < 4e-3
        || base.rtt_s > 40e-3
        || base.rate < 80e6
        || base.is_foreign
    {
        return None;
    }
    let rate = between(random, 250e3, 800e3);
    let end = base.receiver();
    // Two segments for each acknowledgement are usual, sixty the most that receivers join.
    let acknowledgements = rate / (8.0 * (HEADERS_BYTES + 24.0));
    let least = acknowledgements * base.mss() * 8.0;
    let most = base.ceiling() * 0.6;
    if least > most {
        return None;
    }
    let planted = |by, plants| Planted {
        duration_s: Some(2.0),
        ..Planted::new(by, plants, "return-path".to_owned(), Check::rate(least * 0.3, most))
    };
    let kilobits = rate / 1e3;
    Some(if is_host {
        let run = format!(
            "tc qdisc replace dev eth0 root tbf rate {kilobits:.0}kbit burst 10kb limit 30kb"
        );
        Planted {
            prepare: vec![OnHost { host: end.to_owned(), run }],
            ..planted(
                "a host's shaper of the way back",
                format!(
                    "the {end} host shapes what it sends, acknowledgements, to {kilobits:.0} kbit/s"
                ),
            )
        }
    } else {
        Planted {
            way_back: vec![("rate", kbit(rate)), ("queue", text("30KiB"))],
            ..planted(
                "a path's way back",
                format!("the way back of the path carries {kilobits:.0} kbit/s"),
            )
        }
    })
}

/// A path on which nothing is planted: its own rate binds.
fn nothing(base: &BasePath, by: &'static str, plants: String) -> Planted {
    let check = Check::rate(base.ceiling() * 0.85, base.ceiling() * 1.05);
    Planted::new(by, plants, "link-rate".to_owned(), check)
}

/// What would bind on another path, but not here.
fn unplanted(base: &BasePath, random: &mut Random, by: &'static str) -> Option<Planted> {
    let times = one_of(random, &[2.0, 3.0, 5.0]);
    let (sender, receiver) = (base.sender(), base.receiver());
    Some(match by {
        "nothing: a shaper above the link" => {
            let run = format!(
                "tc qdisc add dev eth0 root tbf rate {:.0}bit burst 128k latency 20ms",
                base.rate * times
            );
            Planted {
                prepare: vec![OnHost { host: sender.to_owned(), run }],
                ..nothing(
                    base,
                    by,
                    format!("nothing: the {sender} host shapes to {times} times the link's rate"),
                )
            }
        }
        "nothing: buffers above the product" => {
            // The queue of the link holds two products, and the buffer twice the window.
            let bytes = (2.0 * times * 3.0 * base.product()).max(1e6).round();
            let value = format!("4096 131072 {bytes}");
            Planted {
                sysctl: vec![
                    (receiver, "net.ipv4.tcp_rmem", value.clone()),
                    (sender, "net.ipv4.tcp_wmem", value),
                ],
                ..nothing(
                    base,
                    by,
                    format!("nothing: buffers may grow to {bytes} bytes, which is enough"),
                )
            }
        }
        "nothing: acknowledgements lost" => Planted {
            way_back: vec![("loss", text(format!("{}%", 2.0 * times)))],
            ..nothing(
                base,
                by,
                format!("nothing that binds: the way back loses {}% of its packets", 2.0 * times),
            )
        },
        _ => {
            if base.is_foreign {
                return None;
            }
            let rate = format!("{:.0}", base.rate * times);
            Planted {
                options: vec![
                    "--offered-rate".to_owned(),
                    rate.clone(),
                    "--read-rate".to_owned(),
                    rate,
                ],
                ..nothing(
                    base,
                    by,
                    format!(
                        "nothing: the applications write and read at {times} times the link's rate"
                    ),
                )
            }
        }
    })
}
