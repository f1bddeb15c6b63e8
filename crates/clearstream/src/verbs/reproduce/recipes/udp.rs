//! C-udp: delivered rate against offered rate.

use results::{Direction, LawCheck, PaperFigure, Results, TestSpec};

use super::{Context, Recipe, estimate, figure, setting, undecided};

const TCP: &str = "C-udp tcp";
const UDP: &str = "C-udp";
const OFFERED: &str = "offered_share";
const RATE: &str = "forward_received_bits_per_s";
const LAW: &str = "as TCP, without the window: delivered follows offered up to the ceiling";

/// Offered rates as shares of the throughput of one TCP stream.
const SHARES: [f64; 5] = [0.25, 0.5, 0.75, 1.0, 1.5];

/// Least ratio of delivered to offered rate that counts as equal.
const FOLLOWS: f64 = 0.95;

/// IPv6 and UDP headers, bytes.
const HEADERS_BYTES: u32 = 48;

pub(super) const RECIPE: Recipe = Recipe { id: UDP, lab: "glif2010", round, judge };

fn round(number: u32, context: &Context<'_>) -> Option<sweep::Plan> {
    let tcp = context.tcp(1, Direction::Forward);
    if number == 0 {
        return Some(context.plan(vec![setting(TCP, "streams", 1.0, tcp)]));
    }
    let reached: Vec<f64> = context
        .points
        .iter()
        .filter(|point| point.experiment == TCP)
        .filter_map(|point| Some(point.measured()?.directions.first()?.received_bits_per_s))
        .collect();
    let ceiling = stats::median(&reached).filter(|_| number == 1)?;
    let datagram_bytes =
        context.path_mtu_bytes.map_or(1400, |mtu| mtu.saturating_sub(HEADERS_BYTES));
    let settings = SHARES.map(|share| {
        let spec = TestSpec {
            limit: tcp.limit,
            omit_s: tcp.omit_s,
            interval_s: tcp.interval_s,
            offered_bits_per_s: Some((ceiling * share).round()),
            ..TestSpec::udp(datagram_bytes.clamp(64, 65_000))
        };
        setting(UDP, OFFERED, share, spec)
    });
    Some(context.plan(settings.to_vec()))
}

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let tcp = estimate(results, TCP, ("streams", 1.0), RATE);
    let at = |share| estimate(results, UDP, (OFFERED, share), RATE);
    let mut figures = vec![figure("one TCP stream", "-", tcp)];
    for share in SHARES {
        let name = format!("UDP delivered, offered {:.0}% of that", share * 100.0);
        let paper = if share == 1.5 { "the PCIe bus saturates" } else { "-" };
        figures.push(figure(&name, paper, at(share)));
    }
    let (Some(tcp), true) = (tcp, SHARES.iter().all(|share| at(*share).is_some())) else {
        return (figures, undecided(LAW, "a test did not finish"));
    };
    let delivered = |share: f64| at(share).map_or(0.0, |estimate| estimate.median);
    let follows = |share: f64| delivered(share) / (tcp.median * share) >= FOLLOWS;
    let ceiling = delivered(1.0).max(delivered(1.5));
    let holds = follows(0.25) && follows(0.5) && ceiling >= tcp.median * 0.75;
    let judged = format!(
        "at 25% and 50% of TCP's rate {:.1}% and {:.1}% were delivered (follows from {:.0}%); the \
         most delivered was {} against TCP's {}",
        delivered(0.25) / (tcp.median * 0.25) * 100.0,
        delivered(0.5) / (tcp.median * 0.5) * 100.0,
        FOLLOWS * 100.0,
        units::show_bit_rate(ceiling),
        units::show_bit_rate(tcp.median)
    );
    (figures, LawCheck { law: LAW.to_owned(), holds: Some(holds), judged })
}
