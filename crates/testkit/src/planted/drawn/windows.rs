//! Windows and buffers: what one connection may have on its way.

use stats::Random;

use super::{BELOW_NEXT, BasePath, Check, Kind, MOST_OF_NEXT, Planted, between, on_arrival};
use crate::planted::cases::OnHost;

pub(super) const KINDS: &[Kind] = &[
    |base, random| grown(base, random, true),
    |base, random| grown(base, random, false),
    |base, random| asked(base, random, true),
    |base, random| asked(base, random, false),
    of_route,
    |base, random| unscaled(base, random, false),
    |base, random| unscaled(base, random, true),
    locked,
    ramp,
];

/// Round trips of windows: long against what hosts add to them.
const RTT_MIN_S: f64 = 4e-3;

/// A window that leaves the link half empty, bytes; `None` where even the least is more.
fn window(base: &BasePath, random: &mut Random) -> Option<f64> {
    let most = base.product() * BELOW_NEXT;
    // A window below a super-segment or a few segments brings effects of its own.
    let least = 6.0 * base.mss().max(16e3);
    (base.rtt_s >= RTT_MIN_S && most >= least).then(|| between(random, least, most))
}

/// Throughput of a window, as its buffer may hold more or less payload.
fn carries(window: f64, base: &BasePath) -> Check {
    let rate = window * 8.0 / base.rtt_s;
    Check::rate(rate * 0.35, (rate * 1.7).min(base.ceiling() * MOST_OF_NEXT))
}

/// The send queue over the send buffer, beyond which the kernel exceeded the buffer, which then does not bind: a
/// sender's queue of small segments was seen at up to 2.4 times a buffer that held it back.
const EXCEEDED: f64 = 3.0;

/// A buffer that a kernel lets grow so far only.
fn grown(base: &BasePath, random: &mut Random, is_receive: bool) -> Option<Planted> {
    let window = window(base, random)?;
    // How much of a buffer is payload depends on the segments.
    let (key, end, what, share, limit) = if is_receive {
        ("net.ipv4.tcp_rmem", base.receiver(), "receive", 2.0, "receive-window")
    } else {
        ("net.ipv4.tcp_wmem", base.sender(), "send", 1.6, "send-buffer")
    };
    let bytes = (window * share).round();
    let plants = format!("the {end} kernel lets a {what} buffer grow to {bytes} bytes only");
    let by = if is_receive { "tcp_rmem" } else { "tcp_wmem" };
    let check =
        Check { queued_max: (!is_receive).then_some(bytes * EXCEEDED), ..carries(window, base) };
    Some(Planted {
        sysctl: vec![(end, key, format!("4096 {} {bytes}", bytes.min(131_072.0)))],
        ..Planted::new(by, plants, format!("{limit} at {end}"), check)
    })
}

/// A buffer that the test itself asks for, at one side.
fn asked(base: &BasePath, random: &mut Random, is_receive: bool) -> Option<Planted> {
    // A stock iperf3 sets both sides.
    if base.is_foreign {
        return None;
    }
    // The default of net.core.rmem_max and wmem_max.
    let window = window(base, random)?.min(200e3);
    let (side, end, limit) = if is_receive {
        ("receiver", base.receiver(), "receive-window")
    } else {
        ("sender", base.sender(), "send-buffer")
    };
    let plants = format!("the test asks for a {side}'s buffer of {window} bytes");
    let by = if is_receive { "--window, the receiver's" } else { "--window, the sender's" };
    let options = ["--window".to_owned(), format!("{window}"), "--window-side".to_owned()];
    // The kernel doubles what is asked for.
    let queued_max = (!is_receive).then_some(2.0 * window * EXCEEDED);
    let check = Check { queued_max, ..carries(window, base) };
    Some(Planted {
        options: options.into_iter().chain([side.to_owned()]).collect(),
        ..Planted::new(by, plants, format!("{limit} at {end}"), check)
    })
}

/// A window that the receiver's route allows. Kernels that tune the receive buffer exceed a large one.
fn of_route(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let window = window(base, random)?.round();
    let rate = window * 8.0 / base.rtt_s;
    let end = base.receiver();
    let run = format!("ip route change 10.77.0.0/24 dev eth0 window {window}");
    let plants = format!("the {end} host's route allows a window of {window} bytes only");
    Some(Planted {
        prepare: vec![OnHost { host: end.to_owned(), run }],
        options: vec!["-4".to_owned()],
        ..Planted::new(
            "a route's window",
            plants,
            format!("receive-window at {end}"),
            Check::rate(rate * 0.35, (rate * 1.2).min(base.ceiling() * MOST_OF_NEXT)),
        )
    })
}

/// Windows of at most 65,535 bytes, because the ends do not agree on a scale.
fn unscaled(base: &BasePath, _: &mut Random, is_stripped: bool) -> Option<Planted> {
    const WINDOW: f64 = 65_535.0;
    if base.rtt_s < RTT_MIN_S || base.product() * BELOW_NEXT < WINDOW {
        return None;
    }
    let end = base.receiver();
    let accept = format!("receive-window at {end}");
    if is_stripped {
        // The SYN arrives without the option, so neither end scales.
        let rule = "tcp flags syn reset tcp option window";
        return Some(Planted {
            prepare: vec![on_arrival("far", rule)],
            ..Planted::new(
                "window scaling removed on the way",
                "the way to the far end removes the option of window scaling".to_owned(),
                accept,
                carries(WINDOW, base),
            )
        });
    }
    Some(Planted {
        sysctl: vec![(end, "net.ipv4.tcp_window_scaling", "0".to_owned())],
        ..Planted::new(
            "tcp_window_scaling",
            format!("the {end} kernel scales no windows"),
            accept,
            carries(WINDOW, base),
        )
    })
}

/// A congestion window that the route locks.
fn locked(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let segments = between(random, 10.0, 80.0);
    let rate = segments * base.mss() * 8.0 / base.rtt_s;
    if rate > base.ceiling() * BELOW_NEXT || !base.heeds_loss() || base.rtt_s < RTT_MIN_S {
        return None;
    }
    let sender = base.sender();
    let run = format!("ip route change 10.77.0.0/24 dev eth0 cwnd lock {segments:.0}");
    let plants =
        format!("the {sender} host's route locks the congestion window to {segments:.0} segments");
    Some(Planted {
        prepare: vec![OnHost { host: sender.to_owned(), run }],
        options: vec!["-4".to_owned()],
        ..Planted::new(
            "a route's congestion window",
            plants,
            format!("congestion-control at {sender}"),
            Check::about(rate),
        )
    })
}

/// A test that ends while the window still grows.
fn ramp(base: &BasePath, _: &mut Random) -> Option<Planted> {
    const DURATION_S: f64 = 2.0;
    // Doublings of slow start, from ten segments to the product.
    let start_s = (base.product() / (10.0 * base.mss())).max(1.0).log2() * base.rtt_s;
    if start_s < 0.7 * DURATION_S || !base.heeds_loss() {
        return None;
    }
    let sender = base.sender();
    Some(Planted {
        duration_s: Some(DURATION_S),
        ..Planted::new(
            "a short test",
            format!("a test of {DURATION_S} s ends while the window still grows"),
            format!("congestion-control at {sender}"),
            Check::rate(1e5, base.ceiling() * 0.7),
        )
    })
}
