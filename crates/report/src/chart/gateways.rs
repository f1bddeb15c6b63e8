//! What each gateway carried while files were written or read: two bars for each.

use results::{CachePlace, Carried, Crossing, GatewayShare, LoadWay};

use super::{FULL_PX, Figure, NARROW_PX, Swatch};
use crate::show;
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Gateways drawn, the busiest first; the table lists them all.
const DRAWN_MAX: usize = 24;

/// The two sides: class of the bar, name, bytes.
const SIDES: [Side; 2] = [
    Side { class: "fill user", name: "clients' side", bytes: |one| one.client_side_bytes },
    Side { class: "fill softirq", name: "servers' side", bytes: |one| one.server_side_bytes },
];

struct Side {
    class: &'static str,
    name: &'static str,
    bytes: fn(&GatewayShare) -> u64,
}

/// The figure of one point.
pub(crate) fn figure(id: String, title: String, carried: &Carried, seen: &Crossing) -> Figure {
    let mut shown: Vec<&GatewayShare> = seen.gateways.iter().collect();
    if shown.len() > DRAWN_MAX {
        shown.sort_by_key(|one| std::cmp::Reverse(one.client_side_bytes));
        shown.truncate(DRAWN_MAX);
    }
    Figure {
        id,
        title,
        caption: caption(carried, seen),
        legend: SIDES.map(|side| (Swatch::Fill(side.class), side.name.to_owned())).into(),
        wide: draw(&shown, FULL_PX),
        narrow: draw(&shown, NARROW_PX),
        table: table(carried, seen),
    }
}

fn caption(carried: &Carried, seen: &Crossing) -> String {
    let mut parts = vec![match seen.way {
        LoadWay::Written => format!("{} written", show::size(seen.load as f64)),
        LoadWay::Read => format!("{} read", show::size(seen.load as f64)),
        LoadWay::Calls => format!("{} calls", show::count(seen.load as f64)),
    }];
    if let Some(times) = seen.amplification {
        parts.push(format!("crossed {times:.2} times"));
    }
    if let Some(imbalance) = seen.imbalance {
        parts.push(format!("busiest gateway {imbalance:.2} times the mean"));
    }
    match seen.cached {
        Some(CachePlace::Client) => parts.push("cached at the client".to_owned()),
        Some(CachePlace::Gateway) => parts.push("cached at the gateway".to_owned()),
        None => {}
    }
    if !carried.absent.is_empty() {
        let names: Vec<&str> = carried.absent.iter().map(|one| one.host.as_str()).collect();
        parts.push(format!("without counters: {}", show::clip(&names.join(", "), 80)));
    }
    parts.join("; ") + "."
}

fn draw(shown: &[&GatewayShare], width: f64) -> Drawing {
    const ROW: f64 = 46.0;
    const BAR: f64 = 10.0;
    let most = shown.iter().flat_map(|one| SIDES.map(|side| (side.bytes)(one))).max().unwrap_or(0);
    let mut drawing = Drawing::new(width, ROW * shown.len() as f64);
    for (row, one) in shown.iter().enumerate() {
        let y = ROW * row as f64;
        let name = show::clip(&one.gateway, 24);
        drawing.draw(svg::text("t", (0.0, y + 12.0), name));
        drawing.draw(svg::text("t strong end", (width, y + 12.0), show::share(one.share)));
        for (place, side) in SIDES.iter().enumerate() {
            let length = (side.bytes)(one) as f64 / most.max(1) as f64 * (width - 2.0);
            let top = y + 18.0 + (BAR + 1.0) * place as f64;
            drawing.draw(svg::rect(side.class, (1.0, top), (length.max(1.0), BAR)));
        }
    }
    drawing
}

fn table(carried: &Carried, seen: &Crossing) -> Table {
    let head =
        ["gateway", "carries", "share", "clients' side", "servers' side", "dropped", "round trip"];
    let mut table = Table::new("What the gateways carried", 2, &head);
    for one in &seen.gateways {
        let flows = carried.flows.iter().filter(|flow| flow.gateway == one.gateway);
        let flows: Vec<String> =
            flows.map(|flow| format!("{}-{}", flow.client, flow.server)).collect();
        table.row([
            show::clip(&one.gateway, 60),
            show::clip(&flows.join(" "), 120),
            show::share(one.share),
            show::size(one.client_side_bytes as f64),
            show::size(one.server_side_bytes as f64),
            show::count(one.drops_count as f64),
            carried
                .round_trips(&one.gateway)
                .map_or_else(|| show::DASH.to_owned(), |trips| show::seconds(trips.median_s)),
        ]);
    }
    table
}
