//! Which gateways are used: never none.

use super::event::Cause;
use super::gateway::{Gateway, Health};

/// Why these gateways are the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Healthy,
    /// Healthy and held down.
    Damped,
    Draining,
    /// They lose large packets.
    MtuHoles,
    /// All gateways have failed, and routes stay as they are.
    Held,
}

/// The best gateways there are. `at_once_ns`: those that failed after it failed at the same time as the last.
pub(super) fn select(gateways: &[Gateway], at_once_ns: u64) -> (Tier, Vec<bool>) {
    let is_healthy = |gateway: &Gateway| matches!(gateway.health, Health::Good | Health::Suspect);
    let choose = |tier: Tier, is_chosen: &dyn Fn(&Gateway) -> bool| {
        let chosen: Vec<bool> = gateways.iter().map(is_chosen).collect();
        chosen.contains(&true).then_some((tier, chosen))
    };
    let is_at_once = |one: &Gateway| one.is_used || one.failed_ns >= at_once_ns;
    // Held with all others, a gateway is not taken out of use for answering again a moment later than another one.
    let with_returning = |(tier, mut chosen): (Tier, Vec<bool>)| {
        for (is_chosen, one) in chosen.iter_mut().zip(gateways) {
            *is_chosen |= one.is_used && one.is_returning() && !one.is_draining();
        }
        (tier, chosen)
    };
    choose(Tier::Healthy, &|one| is_healthy(one) && !one.is_draining())
        .map(with_returning)
        .or_else(|| choose(Tier::Damped, &|one| one.health == Health::Damped && !one.is_draining()))
        .or_else(|| choose(Tier::Draining, &|one| is_healthy(one) || one.health == Health::Damped))
        .or_else(|| choose(Tier::MtuHoles, &|one| one.health == Health::Failed(Cause::MtuHole)))
        .or_else(|| choose(Tier::Held, &|one| is_at_once(one) && !one.is_draining()))
        .or_else(|| choose(Tier::Held, &is_at_once))
        .unwrap_or_else(|| (Tier::Held, vec![true; gateways.len()]))
}
