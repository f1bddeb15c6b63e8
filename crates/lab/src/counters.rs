use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use switch::lightpath::LightpathCounters;

use packet_switch::counters::PortCount;
use packet_switch::line::SharedReport;

/// Where the anchor writes them.
pub(crate) const COUNTERS_FILE: &str = "counters.json";

/// What a lab has done since it came up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabCounters {
    /// Counters of the emulated links.
    pub links: Vec<LinkCounters>,
    /// Counters of the switches.
    pub switches: Vec<SwitchCounters>,
}

/// What a switch has done since the lab came up, half a second old at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwitchCounters {
    /// Name of the switch.
    pub switch: String,
    /// In the order of the lab file.
    pub ports: Vec<HostPortCounters>,
}

/// The port of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPortCounters {
    /// The port's host.
    pub host: String,
    /// Seen from the switch: what is incoming the host has sent.
    #[serde(flatten)]
    pub count: PortCount,
    /// Frames that the host's interface did not take.
    pub refused_frames_count: u64,
    /// Why the port no longer works.
    pub ended: Option<String>,
    /// The line from the host to the switch, where there is one.
    pub to_switch: Option<DirectionCounters>,
    /// And from there to the host.
    pub from_switch: Option<DirectionCounters>,
}

/// What an emulated link has done since the lab came up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Which of the plan's links.
    pub link_index: usize,
    /// From its first end to its second.
    pub forward: DirectionCounters,
    /// From its second end to its first.
    pub backward: DirectionCounters,
}

/// One direction of it, half a second old at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// What became of the packets.
    #[serde(flatten)]
    pub packets: LightpathCounters,
    /// Frames given up because the emulation itself ran out of room: a limit of the lab, not of the
    /// link.
    pub overflow_frames_count: u64,
    /// Frames that the receiving device did not take.
    pub refused_frames_count: u64,
    /// Wire bytes waiting for the line.
    pub queue_bytes: u64,
    /// Frames on the fibre or waiting.
    pub held_frames_count: usize,
    /// How late frames left against their due time; absent before the first.
    pub lateness: Option<Lateness>,
}

/// How late frames were released.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Frames released.
    pub frames_count: u64,
    /// Half were at most so late, seconds.
    pub p50_s: f64,
    /// Nine in ten, seconds.
    pub p90_s: f64,
    /// 99 in a hundred, seconds.
    pub p99_s: f64,
    /// 999 in a thousand, seconds.
    pub p999_s: f64,
    /// Longest delay beyond the due time, seconds.
    pub max_s: f64,
}

impl DirectionCounters {
    pub(crate) fn of(shared: &SharedReport) -> Self {
        let report = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let late = &report.lateness;
        let at = |percentile| late.percentile_s(percentile).unwrap_or(0.0);
        Self {
            packets: report.counters,
            overflow_frames_count: report.overflow_frames_count,
            refused_frames_count: report.refused_frames_count,
            queue_bytes: report.queue_bytes,
            held_frames_count: report.held_frames_count,
            lateness: late.max_s().map(|max_s| Lateness {
                frames_count: late.count(),
                p50_s: at(50.0),
                p90_s: at(90.0),
                p99_s: at(99.0),
                p999_s: at(99.9),
                max_s,
            }),
        }
    }
}
