//! The buses between device, memory and core: PCI Express, memory bandwidth.

use results::{Ceiling, CeilingLink, End, Limit};
use units::show_bit_rate;

use super::plateau::{plateau, plateau_evidence};
use super::processor::processor_binds;
use super::trials::stays;
use crate::advice::Advice;
use crate::ceilings::ceilings;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, ratio};
use crate::observed::{HostView, Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{hosts, path, signs};

#[derive(Debug)]
pub(crate) struct Pcie;

#[derive(Debug)]
pub(crate) struct MemoryBandwidth;

impl Mechanism for Pcie {
    fn limit(&self) -> Limit {
        Limit::Pcie
    }

    fn page(&self) -> Page {
        Page {
            title: "the PCI Express link of an interface",
            ceiling: "its lanes and speed, less encoding, packet overhead and headers",
            mechanism: "Every byte crosses the interface's PCI Express link. Its rate is lanes times transfers per second, less the line code (8b/10b to 5 GT/s, 128b/130b beyond) and about 24 bytes around each \
                transaction's payload; a slot of fewer lanes or an older generation makes it narrower than \
                the interface.",
            evidence: "Speed and lanes in use, and possible (`current_link_speed`, `max_link_width`), the \
                ceiling step by step, throughput within a few percent of it; more streams carry no more.",
            against: "Throughput is well below it; it is wider than the line; a virtual device has none.",
            experiment: "UDP a third faster, then more streams: nothing changes.",
            advice: "Another slot with more lanes; where the link trained below its speed, reseat the card or update its firmware.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let Some((host, link)) = narrowest(seen) else {
            let against = "no interface reports a PCI Express link".to_owned();
            return Opinion { against, ..Opinion::default() };
        };
        let reached = ratio(seen.rate(), link.goodput_bits_per_s).unwrap_or(0.0);
        let narrower =
            seen.line_goodput(host.end).is_none_or(|line| link.goodput_bits_per_s < line);
        let shown = if plateau(seen) > signs::LIKELY { signs::STATED } else { signs::INDIRECT };
        let weight = if narrower { shown } else { 0.0 }
            * hosts::BUS_REACHED.of(reached)
            * hosts::BUS_EXCEEDED.not(reached)
            * (1.0 - path::LIFTED_LINE * seen.lifted_by_streams());
        let first = format!(
            "the {} end's PCI Express link can carry {} of payload; measured {} ({})",
            end_name(host.end),
            show_bit_rate(link.goodput_bits_per_s),
            show_bit_rate(seen.rate()),
            percent(reached)
        );
        let mut evidence = vec![first.clone()];
        evidence.extend(link.steps.iter().map(|step| {
            format!("{}: {} = {}", step.what, step.working, show_bit_rate(step.bits_per_s))
        }));
        evidence.extend(plateau_evidence(seen));
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence,
            against: first,
            ceiling_bits_per_s: Some(link.goodput_bits_per_s),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        stays(self.limit(), seen, seen.rate())
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Vec::new();
        let link = narrowest(seen).and_then(|(host, _)| {
            let pcie = host.machine()?.nic(&host.interface()?.name)?.pcie.as_ref()?;
            Some((host.end, pcie))
        });
        if let Some((end, pcie)) = link {
            let address = &pcie.address;
            lines.push(format!(
                "at the {} end see what the link trained to: lspci -vv -s {address} | grep -i lnk",
                end_name(end)
            ));
            if let Some(bridge) = &pcie.narrowest_bridge {
                lines.push(format!(
                    "the bridge {bridge} above it is narrower than the device: another slot"
                ));
            }
        }
        lines.push(
            "move the interface to a slot with more or faster lanes, or use a second one"
                .to_owned(),
        );
        Advice::all(lines)
    }
}

/// The lower PCI Express ceiling of the two ends in the judged direction.
fn narrowest<'s, 'a>(seen: &'s Observed<'a>) -> Option<(&'s HostView<'a>, Ceiling)> {
    let of = |host: &'s HostView<'a>| {
        let nic = host.machine()?.nic(&host.interface()?.name)?;
        let link = if host.end == seen.sender.end {
            CeilingLink::PcieTransmit
        } else {
            CeilingLink::PcieReceive
        };
        Some((host, ceilings(nic, seen.headers(), None).of(link)?.clone()))
    };
    let both = [&seen.sender, &seen.receiver].into_iter().filter_map(of);
    both.min_by(|a, b| a.1.goodput_bits_per_s.total_cmp(&b.1.goodput_bits_per_s))
}

impl Mechanism for MemoryBandwidth {
    fn limit(&self) -> Limit {
        Limit::MemoryBandwidth
    }

    fn page(&self) -> Page {
        Page {
            title: "memory bandwidth",
            ceiling: "the highest memory traffic seen at a node, divided by the memory traffic per payload byte",
            mechanism: "A byte that is copied crosses the memory bus about three times at each end (device, \
                read and write of the copy), more when buffers are larger than the caches. A node that other \
                programs keep busy leaves little, and cores wait for memory instead of working.",
            evidence: "Memory traffic of the nodes while the test ran (`resctrl` `mbm_total_bytes`) far above \
                what the test's own bytes explain; a core without time left.",
            against: "No counter of memory traffic (most hosts show none unless `resctrl` is mounted), or \
                little traffic; the cores have time.",
            experiment: "None by a change to the test alone: stop the other programs, or measure without \
                copying (`--receive-path discard`).",
            advice: "Keep buffers small enough for the last-level cache; zero-copy paths; move other programs \
                to another node.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = hungrier(seen);
        let traffic = traffic_bytes_per_s(seen, host.end);
        let weight = signs::INDIRECT
            * processor_binds(seen, host)
            * hosts::MEMORY_EXCESS.of(excess(seen, host));
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: traffic
                .map(|bytes| {
                    format!(
                        "{}: memory carried {:.1} GB/s, {:.0} times the {:.1} GB/s of payload",
                        host.name(),
                        bytes / 1e9,
                        excess(seen, host),
                        seen.rate() / 8e9
                    )
                })
                .into_iter()
                .chain(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())))
                .collect(),
            against: match traffic {
                Some(bytes) => {
                    format!("memory carried {:.1} GB/s, or the cores have time", bytes / 1e9)
                }
                None => "no host counts its memory traffic (mount resctrl to see it)".to_owned(),
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        Vec::new()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(hungrier(seen).end);
        Advice::all(vec![
            format!(
                "find which programs load the memory of the {end} end: perf stat -a -M memory_bandwidth_total, or resctrl"
            ),
            "keep socket buffers within the last-level cache; use zero-copy paths".to_owned(),
        ])
    }
}

fn traffic_bytes_per_s(seen: &Observed<'_>, end: End) -> Option<f64> {
    seen.shown().host(end, names::MEMORY_TRAFFIC)
}

/// Memory traffic per byte of payload; 0 if unknown.
fn excess(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let traffic = traffic_bytes_per_s(seen, host.end);
    traffic.and_then(|bytes| ratio(bytes, seen.rate() / 8.0)).unwrap_or(0.0)
}

fn hungrier<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    if excess(seen, &seen.receiver) > excess(seen, &seen.sender) {
        &seen.receiver
    } else {
        &seen.sender
    }
}
