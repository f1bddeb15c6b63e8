//! High numbers of packets per byte: small segments, and offloads that are off.

use results::Limit;
use settings::Change as SettingChange;

use super::causes::{offloads_off, small_packets, small_segments, uncombined};
use super::lifted;
use super::packet_core::packet_core_binds;
use super::processor::processor_binds;
use super::trials::{cpu_experiments, more_packets};
use crate::advice::Advice;
use crate::change::Change;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Method, Remedy, change};
use crate::symptoms::names;
use crate::thresholds::{hosts, predictions, signs};

#[derive(Debug)]
pub(crate) struct PathMtu;

#[derive(Debug)]
pub(crate) struct Offloads;

impl Mechanism for PathMtu {
    fn limit(&self) -> Limit {
        Limit::PathMtu
    }

    fn page(&self) -> Page {
        Page {
            title: "small segments",
            ceiling: "the cores' packets per second times the payload of each",
            mechanism: "Each packet costs the hosts about the same whatever it carries. With small segments (a \
                small MTU somewhere on the path, `TCP_MAXSEG`, a route's `advmss` or `mtu`) a byte costs \
                many packets, and the core that handles them is saturated early.",
            evidence: "The connection's segments against the interface's MTU and what the device could take; \
                a core without time left, and packets that pass the stack one by one.",
            against: "Packets travel merged (segmentation and receive offloads), so their size does not \
                matter; the cores have time.",
            experiment: "The same test without its own segment size: throughput rises. If the test set none: segments of half the size; throughput falls.",
            advice: "A larger MTU along the whole path (`ping -M do -s` finds where it ends); let path MTU \
                discovery work (do not drop ICMP).",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = worse(seen, small_segments);
        let by_cost = signs::SEEN * packet_weight(seen, host) * small_segments(seen, host);
        // Segments that the test itself made small rank slightly higher.
        let asked = if seen.spec.mss_bytes.is_some() { 1.0 } else { hosts::SEGMENTS_NOT_ASKED };
        let weight = by_cost * asked;
        Opinion {
            weight,
            doubt: None,
            end: None,
            evidence: mtu_evidence(seen, host),
            against: match seen.packet_bytes(host) {
                Some(bytes) => format!(
                    "segments of {:.0} bytes, packets of {bytes:.0} bytes on average through the {} end's stack",
                    segment_bytes(seen).unwrap_or(0.0),
                    end_name(host.end)
                ),
                None => "the size of its packets is unknown".to_owned(),
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments = Vec::new();
        if let Some(from_bytes) = seen.spec.mss_bytes {
            let change = Change::LiftMss { from_bytes };
            experiments.push(lifted(
                self.limit(),
                seen,
                change,
                predictions::OWN_RATE_MOST,
                headroom,
            ));
        }
        experiments.extend(more_packets(self.limit(), seen));
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let interface = seen.sender.interface()?;
        let most = interface.mtu_max_bytes.unwrap_or(9000).min(9000);
        let now = interface.mtu_bytes;
        let key = format!("{}/mtu", interface.name);
        let change = change(&key, Some(&now.to_string()), &most.to_string())?;
        (most > now).then(|| {
            Remedy::setting(
                seen.sender.end,
                change,
                headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
                "with the same at every hop and at the other end, throughput rises",
            )
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Vec::new();
        if seen.spec.mss_bytes.is_some() {
            lines.push("leave out --mss: the kernel then takes what the path carries".to_owned());
        }
        if let Some(metric) = route_metric(seen) {
            lines.push(format!(
                "the route at the {} end sets {metric}: ip route change … without it",
                end_name(seen.sender.end)
            ));
        }
        lines.push("a larger MTU at both ends and every hop: ip link set DEV mtu 9000".to_owned());
        lines.push("find the hop that makes it small: tracepath HOST".to_owned());
        Advice::all(lines)
    }
}

impl Mechanism for Offloads {
    fn limit(&self) -> Limit {
        Limit::Offloads
    }

    fn page(&self) -> Page {
        Page {
            title: "offloads that are off",
            ceiling: "the cores' packets per second times the payload of each",
            mechanism: "With segmentation offload (TSO, GSO) a sender's stack handles up to 64 KiB at once; \
                with GRO a receiver merges packets again. Without them each packet passes the whole \
                stack alone, and the core that does it is saturated early.",
            evidence: "Features that are off at the interface (`ethtool -k`), the mean size of the packets \
                its device moved, and the core without time left.",
            against: "The offloads are on; or packets are merged nevertheless; or the cores have time.",
            experiment: "Segments of half the size: throughput falls, as the cost is per packet. The \
                features on: `ethtool -K DEV tso on gso on gro on`.",
            advice: "Switch the offloads on; where they must be off (bridging, capture), a larger MTU.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let (host, weight) = cutting_end(seen);
        let weight = signs::LOCATED * weight;
        let off = offloads_off(seen, host);
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: offload_evidence(seen, host),
            against: match (off.is_empty(), seen.packet_bytes(host)) {
                (true, _)
                    if [&seen.sender, &seen.receiver].iter().all(|it| it.host_is_untold()) =>
                {
                    "no host reports its offloads".to_owned()
                }
                (true, _) => "segmentation and receive offloads are on, as far as the hosts report"
                    .to_owned(),
                (false, Some(bytes)) => {
                    format!(
                        "{} off, but packets of {bytes:.0} bytes on average, or cores with time",
                        off.join(", ")
                    )
                }
                (false, None) => {
                    format!("{} off; the size of the packets is unknown", off.join(", "))
                }
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments: Vec<Experiment> =
            more_packets(self.limit(), seen).into_iter().collect();
        experiments.extend(cpu_experiments(self.limit(), seen, worse(seen, uncombined)));
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let (host, _) = cutting_end(seen);
        Some(Remedy {
            end: host.end,
            method: Method::Settings(switches(seen, host)?),
            predicted_bits_per_s: headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            text: "with packets joined, a byte costs less: throughput rises".to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let (host, _) = cutting_end(seen);
        let commands = switches(seen, host).map_or_else(
            || "ethtool -K DEV tso on gso on gro on".to_owned(),
            |changes| settings::commands(&changes),
        );
        Advice::all(vec![
            format!("at the {} end: {commands}", end_name(host.end)),
            "where they must stay off, a larger MTU along the whole path".to_owned(),
        ])
    }
}

/// The changes that switch on the features that are off.
fn switches(seen: &Observed<'_>, host: &HostView<'_>) -> Option<Vec<SettingChange>> {
    let name = &host.interface()?.name;
    let off = offloads_off(seen, host);
    let features = off.into_iter().filter_map(|short| feature(seen, short));
    let switch = |feature| change(&format!("{name}/feature-{feature}"), Some("off"), "on");
    let changes: Vec<SettingChange> = features.filter_map(switch).collect();
    (!changes.is_empty()).then_some(changes)
}

/// The kernel's name of a feature (`ethtool -k`).
fn feature(seen: &Observed<'_>, short: &str) -> Option<&'static str> {
    Some(match short {
        "tso" if seen.is_ipv6() => "tx-tcp6-segmentation",
        "tso" => "tx-tcp-segmentation",
        "gso" => "tx-generic-segmentation",
        "gro" => "rx-gro",
        _ => return None,
    })
}

/// Confidence, 0 to 1, that an end's per-packet cost binds.
fn packet_weight(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let by_thread = processor_binds(seen, host);
    let by_packets = if host.end == seen.receiver.end { packet_core_binds(seen) } else { 0.0 };
    by_thread.max(by_packets)
}

/// The end where a cause of high packet counts weighs more.
fn worse<'s, 'a>(
    seen: &'s Observed<'a>,
    cause: impl Fn(&Observed<'_>, &HostView<'_>) -> f64,
) -> &'s HostView<'a> {
    let weigh = |host: &HostView<'_>| cause(seen, host) * packet_weight(seen, host);
    let (sender, receiver) = (weigh(&seen.sender), weigh(&seen.receiver));
    if receiver > sender { &seen.receiver } else { &seen.sender }
}

/// The end whose missing offloads raise the packet count where that binds, with the confidence, 0 to 1.
fn cutting_end<'s, 'a>(seen: &'s Observed<'a>) -> (&'s HostView<'a>, f64) {
    let host = worse(seen, uncombined);
    let cut = uncombined(seen, &seen.sender);
    // Between veths super-segments arrive whole: if the sender cuts them, both ends pay for it.
    let is_veth = |host: &HostView<'_>| {
        host.interface().is_some_and(|interface| interface.driver.as_deref() == Some("veth"))
    };
    if cut > hosts::CUT_AT_SENDER && is_veth(&seen.sender) && is_veth(&seen.receiver) {
        let paid = packet_weight(seen, &seen.sender).max(packet_weight(seen, &seen.receiver));
        return (&seen.sender, cut * paid);
    }
    (host, packet_weight(seen, host) * uncombined(seen, host))
}

/// Payload of a full segment, bytes.
fn segment_bytes(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().sender(names::SEGMENT_PAYLOAD)
}

fn route_metric(seen: &Observed<'_>) -> Option<String> {
    let metrics = &seen.sender.interface()?.route_metrics;
    let named = ["mtu", "advmss"].into_iter().filter_map(|name| Some((name, metrics.get(name)?)));
    named.map(|(name, value)| format!("{name} {value}")).reduce(|all, one| format!("{all} {one}"))
}

fn mtu_evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(mss), Some(interface)) = (segment_bytes(seen), seen.sender.interface()) {
        let reason = match seen.spec.mss_bytes {
            Some(asked) => format!("the test asked for {asked}"),
            None => route_metric(seen).map_or_else(
                || {
                    format!(
                        "the path's MTU is {}",
                        seen.path_mtu_bytes()
                            .map_or("unknown".to_owned(), |mtu| format!("{mtu:.0}"))
                    )
                },
                |metric| format!("the route sets {metric}"),
            ),
        };
        lines.push(format!(
            "segments carry {mss:.0} bytes ({reason}); {} has MTU {}{}",
            interface.name,
            interface.mtu_bytes,
            interface
                .mtu_max_bytes
                .map(|most| format!(" and could have {most}"))
                .unwrap_or_default()
        ));
    }
    lines.extend(cost_lines(seen, host));
    lines
}

fn offload_evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let off = offloads_off(seen, host);
    let mut lines = Vec::new();
    if let (false, Some(interface)) = (off.is_empty(), host.interface()) {
        lines.push(format!("{}: {} off at {}", host.name(), off.join(", "), interface.name));
    }
    lines.extend(cost_lines(seen, host));
    lines
}

/// Packet size, packets per second, and the core that handles them.
fn cost_lines(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(bytes), true) = (seen.packet_bytes(host), small_packets(seen, host) > 0.0) {
        lines.push(format!(
            "{}: packets of {bytes:.0} bytes on average, {:.0} a second through its stack",
            host.name(),
            seen.rate() / 8.0 / bytes
        ));
    }
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    if let Some(core) = host.softirq_core {
        lines.push(format!(
            "core {} spends {} of its time in softirq",
            core.core,
            percent(core.softirq)
        ));
    }
    lines
}
