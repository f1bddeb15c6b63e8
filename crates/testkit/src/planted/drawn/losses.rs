//! Losses and what the congestion control takes for them, and full segments that never arrive.

use stats::Random;

use super::{
    BELOW_NEXT, BasePath, Check, HEADERS_BYTES, Kind, Planted, between, on_arrival, one_of, table,
    text,
};
use crate::planted::cases::OnHost;

pub(super) const KINDS: &[Kind] = &[
    random_loss,
    bursts,
    at_the_host,
    |base, random| without_sack(base, random, false),
    |base, random| without_sack(base, random, true),
    reordering,
    marks,
    short_queue,
    black_hole,
];

/// Where losses rule, bit/s: less is timeouts.
const RATE_MIN: f64 = 3e6;

/// A lost share at which Reno's law lies well below the link, and what that law gives, bit/s.
fn lost(base: &BasePath, random: &mut Random, least: f64, most: f64) -> Option<(f64, f64)> {
    let share = between(random, least, most);
    let law = 1.22 * base.mss() * 8.0 / (base.rtt_s * share.sqrt());
    let leaves_room = law <= base.ceiling() * BELOW_NEXT && law >= RATE_MIN;
    // Enough of them in a test to be a share at all.
    let count = law / (8.0 * base.mss()) * base.duration_s() * share;
    (leaves_room && count >= 10.0 && base.heeds_loss()).then_some((share, law))
}

fn percent(share: f64) -> toml::Value {
    text(format!("{:.3}%", share * 100.0))
}

/// Random losses that hold the window well below the link.
fn random_loss(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let (share, law) = lost(base, random, 0.0005, 0.02)?;
    let plants = format!("the path loses {:.2}% of its packets", share * 100.0);
    Some(Planted {
        link: vec![("loss", percent(share))],
        ..Planted::new("a path's loss", plants, "loss".to_owned(), Check::lossy(law, base))
    })
}

/// Losses of several packets in a row.
fn bursts(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let (share, law) = lost(base, random, 0.0005, 0.005)?;
    let length = one_of(random, &[3.0, 5.0, 10.0]);
    let plants = format!(
        "{:.2}% of the packets begin a burst of losses, {length} packets long in the mean",
        share * 100.0
    );
    let bursts = table([("enter", percent(share)), ("leave", percent(1.0 / length))]);
    Some(Planted {
        link: vec![("burst_loss", bursts)],
        ..Planted::new(
            "a path's bursts of loss",
            plants,
            "loss".to_owned(),
            Check::lossy(law * 0.5, base),
        )
    })
}

/// A filter of the receiving host that drops at random, before its counters see anything.
fn at_the_host(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let (share, law) = lost(base, random, 0.002, 0.02)?;
    let end = base.receiver();
    let of_ten_thousand = (share * 1e4).round();
    let plants = format!("a filter of the {end} host drops {of_ten_thousand} of 10000 packets");
    let rule = format!("numgen random mod 10000 '<' {of_ten_thousand} drop");
    Some(Planted {
        prepare: vec![on_arrival(end, &rule)],
        ..Planted::new("a host's filter", plants, "loss".to_owned(), Check::lossy(law * 0.5, base))
    })
}

/// Losses that are repaired one a round trip, as nobody reports more.
fn without_sack(base: &BasePath, random: &mut Random, is_stripped: bool) -> Option<Planted> {
    let share = between(random, 0.001, 0.005);
    let law = base.mss() * 8.0 / (base.rtt_s * share);
    if base.heeds_loss() || law > base.ceiling() * BELOW_NEXT || law < RATE_MIN {
        return None;
    }
    let check = Check::lossy(law, base);
    let link = vec![("loss", percent(share))];
    let lost = format!("the path loses {:.2}% of its packets", share * 100.0);
    if is_stripped {
        let rule = "tcp flags syn reset tcp option sack-perm";
        return Some(Planted {
            link,
            prepare: vec![on_arrival("far", rule)],
            ..Planted::new(
                "SACK removed on the way",
                format!("{lost}, and the way to the far end removes the option of SACK"),
                "loss-recovery".to_owned(),
                check,
            )
        });
    }
    let end = one_of(random, &["near", "far"]);
    Some(Planted {
        link,
        sysctl: vec![(end, "net.ipv4.tcp_sack", "0".to_owned())],
        ..Planted::new(
            "tcp_sack",
            format!("{lost}, and the {end} kernel refuses SACK"),
            "loss-recovery".to_owned(),
            check,
        )
    })
}

/// Frames that others overtake, between kernels that take each for lost.
fn reordering(base: &BasePath, random: &mut Random) -> Option<Planted> {
    if !base.heeds_loss() || base.rtt_s < 4e-3 || base.product() < 30.0 * base.mss().max(16e3) {
        return None;
    }
    let share = between(random, 0.005, 0.03);
    let by_ms = base.rtt_s * 0.75e3;
    let plants = format!("the path delays {:.1}% of its frames by {by_ms:.1} ms", share * 100.0);
    let keys = |end: &'static str| {
        [
            (end, "net.ipv4.tcp_recovery", "3"),
            (end, "net.ipv4.tcp_timestamps", "0"),
            (end, "net.ipv4.tcp_dsack", "0"),
        ]
    };
    let sender = base.sender();
    let sysctl = keys("near").into_iter().chain(keys("far"));
    // The sender learns of needless retransmissions by timestamps or DSACK; without both it goes on taking each for
    // a loss.
    let sysctl = sysctl.filter(|(end, key, _)| *end == sender || *key != "net.ipv4.tcp_recovery");
    Some(Planted {
        link: vec![("reorder", percent(share)), ("reorder_by", text(format!("{by_ms:.2}ms")))],
        sysctl: sysctl.map(|(end, key, value)| (end, key, value.to_owned())).collect(),
        ..Planted::new(
            "a path's reordering",
            plants,
            "reordering".to_owned(),
            Check { retransmits_min: 10, ..Check::rate(1e6, base.ceiling() * 0.7) },
        )
    })
}

/// Marks from a queue on that is short against the product of rate and round trip.
fn marks(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let threshold = one_of(random, &[16_384.0, 32_768.0, 65_536.0]);
    if !base.heeds_loss() || base.rtt_s < 4e-3 || base.product() < 8.0 * threshold {
        return None;
    }
    let ends = ["near", "far"].map(|end| (end, "net.ipv4.tcp_ecn", "1".to_owned()));
    Some(Planted {
        link: vec![("ecn_threshold", text(format!("{threshold}")))],
        sysctl: ends.to_vec(),
        ..Planted::new(
            "a path's ECN marks",
            format!("the path marks packets from {threshold} bytes of queue on"),
            "ecn-marks".to_owned(),
            Check { marks_min: 10, ..Check::rate(5e5, base.ceiling() * 0.7) },
        )
    })
}

/// A queue of the sending host that is shorter than what its TCP hands down at once.
fn short_queue(base: &BasePath, random: &mut Random) -> Option<Planted> {
    if !base.heeds_loss() || base.rtt_s < 4e-3 || base.rtt_s > 60e-3 {
        return None;
    }
    // A link that is never full: only then does the window grow until the queue drops, again and again.
    let fast = || vec![("rate", text("10Gbit")), ("queue", text("32MiB"))];
    let packets = 2 + random.below(3);
    let sender = base.sender();
    let run = format!(
        "tc qdisc add dev eth0 root handle 1: htb default 1; \
         tc class add dev eth0 parent 1: classid 1:1 htb rate 5gbit burst 15k; \
         tc qdisc add dev eth0 parent 1:1 pfifo limit {packets}"
    );
    Some(Planted {
        link: fast(),
        way_back: fast(),
        prepare: vec![OnHost { host: sender.to_owned(), run }],
        ..Planted::new(
            "a short queue of the host",
            format!(
                "the {sender} host's queue holds {packets} packets, before a link of 10 Gbit/s"
            ),
            format!("qdisc at {sender}"),
            Check { qdisc_drops_min: 10, ..Check::rate(1e6, 2e9) },
        )
    })
}

/// Full segments that are dropped, and nobody says that they are too large.
fn black_hole(base: &BasePath, random: &mut Random) -> Option<Planted> {
    let most = base.mss() + HEADERS_BYTES;
    // The far end's report is long too, and passes in the direction of a reversed test's data.
    if base.mtu < 1280 || base.is_foreign || base.is_reverse || base.rtt_s > 60e-3 {
        return None;
    }
    let passes = between(random, 1000.0, most - 100.0);
    let end = base.receiver();
    Some(Planted {
        prepare: vec![on_arrival(end, &format!("meta length '>' {passes:.0} drop"))],
        ..Planted::new(
            "a host's filter of long packets",
            format!("the {end} host drops packets of more than {passes:.0} bytes and tells nobody"),
            "mtu-black-hole".to_owned(),
            Check::rate(0.0, 1e6),
        )
    })
}
