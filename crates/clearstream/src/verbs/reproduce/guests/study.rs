//! The experiments: what is varied, what is counted, and what was expected before anything was measured.

use results::{FramesWork, Protocol, TestLimit, TestSpec, UdpSpec, Work, figure};
use sweep::Setting;
use units::show_bit_rate;

use super::contender::Contender;

/// Name of a varied quantity: size of a message, bytes.
pub(super) const MESSAGE: &str = "message_bytes";
/// Name of a varied quantity: packets that the driver gets at once.
pub(super) const BATCH: &str = "batch_pkts";

/// One experiment.
#[derive(Debug)]
pub(super) struct Study {
    pub(super) id: &'static str,
    /// The loads, as netperf names them.
    pub(super) loads: &'static [Load],
    /// Name of the varied quantity.
    pub(super) varied: &'static str,
    pub(super) values: &'static [u32],
    /// Name of the figure that counts.
    pub(super) rate: &'static str,
    /// Name of the same figure per second of processor time.
    pub(super) per_cpu: &'static str,
    pub(super) show: fn(f64) -> String,
    /// Guests of each contender.
    pub(super) guests_count: usize,
    /// What the paper says of ptnet beside virtio-net (over a bridge, with vhost-net under KVM).
    pub(super) paper: &'static str,
    /// What was expected of ptnet.
    pub(super) predictions: &'static [Prediction],
}

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    TcpRequests,
    UdpRequests,
    TcpStream,
    UdpStream,
    /// The kernel's packet generator.
    Pktgen,
    /// The ring API where the guest has it, elsewhere the kernel's packet generator; from guest to guest.
    Rings,
}

/// The least ratio of ptnet's rate per second of processor time to a contender's that was expected, with the varied
/// quantity in a range.
#[derive(Debug)]
pub(super) struct Prediction {
    pub(super) against: Contender,
    pub(super) ratio: f64,
    pub(super) from: u32,
    pub(super) to: u32,
}

const fn predict(against: Contender, ratio: f64, from: u32, to: u32) -> Prediction {
    Prediction { against, ratio, from, to }
}

static STUDIES: [Study; 5] = [
    Study {
        id: "P-fig3",
        loads: &[Load::TcpRequests, Load::UdpRequests],
        varied: MESSAGE,
        values: &[1, 256, 1024, 16_384],
        rate: figure::TRANSACTIONS_PER_S,
        per_cpu: "transactions_per_cpu_s",
        show: show_transactions,
        guests_count: 2,
        paper: "ahead, equal when large",
        predictions: &[
            predict(Contender::Bridge, 1.5, 1, 1024),
            predict(Contender::VhostUser, 1.25, 1, 1024),
        ],
    },
    Study {
        id: "P-stream",
        loads: &[Load::TcpStream],
        varied: MESSAGE,
        values: &[65_536],
        rate: figure::FORWARD_RECEIVED_BITS_PER_S,
        per_cpu: "received_bits_per_cpu_s",
        show: show_bit_rate,
        guests_count: 2,
        paper: "0.77 x (20 to 26 Gbit/s)",
        predictions: &[
            predict(Contender::Bridge, 1.0, 0, u32::MAX),
            predict(Contender::VhostUser, 1.2, 0, u32::MAX),
        ],
    },
    Study {
        id: "P-fig4",
        loads: &[Load::UdpStream],
        varied: MESSAGE,
        values: &[64, 1024, 4096, 16_384, 32_768, 60_000],
        rate: "forward_sent_bits_per_s",
        per_cpu: "sent_bits_per_cpu_s",
        show: show_bit_rate,
        guests_count: 2,
        paper: "ahead at every size",
        predictions: &[predict(Contender::Bridge, 1.0, 0, u32::MAX)],
    },
    Study {
        id: "P-fig5",
        loads: &[Load::Pktgen],
        varied: BATCH,
        values: &[1, 8, 64, 256],
        rate: figure::RECEIVED_PKTS_PER_S,
        per_cpu: "received_pkts_per_cpu_s",
        show: show_pkts,
        guests_count: 1,
        paper: "best near batch 50",
        predictions: &[predict(Contender::Bridge, 8.0, 64, 64)],
    },
    Study {
        id: "P-netmap",
        loads: &[Load::Rings],
        varied: BATCH,
        values: &[1, 64, 512],
        rate: figure::RECEIVED_PKTS_PER_S,
        per_cpu: "received_pkts_per_cpu_s",
        show: show_pkts,
        guests_count: 2,
        paper: "- (ptnet: 19.5 Mpkt/s)",
        predictions: &[predict(Contender::Bridge, 15.0, 64, 64)],
    },
];

impl Study {
    /// That of a catalogue entry.
    pub(super) fn find(id: &str) -> Option<&'static Self> {
        STUDIES.iter().find(|study| study.id == id)
    }

    /// Every load with every value, for every contender; `duration_s` is the time that each measures.
    pub(super) fn settings(&self, duration_s: f64) -> Vec<Setting> {
        let mut settings = Vec::new();
        for load in self.loads {
            for value in self.values {
                settings.extend(Contender::ALL.map(|contender| {
                    Setting::new(self.experiment(*load, contender), load.work(*value, duration_s))
                        .varying(self.varied, f64::from(*value))
                }));
            }
        }
        settings
    }

    /// Whether a program in the guest drives the rings itself, where the guest lets it.
    pub(super) fn is_of_rings(&self) -> bool {
        self.loads.contains(&Load::Rings)
    }

    /// Name of the points of a load and a contender.
    pub(super) fn experiment(&self, load: Load, contender: Contender) -> String {
        format!("{} {}, {contender}", self.id, load.name())
    }

    /// The ratio that was expected, if one was.
    pub(super) fn predicted(&self, against: Contender, value: u32) -> Option<f64> {
        let is_it =
            |one: &&Prediction| one.against == against && (one.from..=one.to).contains(&value);
        self.predictions.iter().find(is_it).map(|one| one.ratio)
    }

    /// The varied quantity as text.
    pub(super) fn shown(&self, value: u32) -> String {
        if self.varied == BATCH { format!("batch {value}") } else { format!("{value} B") }
    }
}

impl Load {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TcpRequests => "TCP_RR",
            Self::UdpRequests => "UDP_RR",
            Self::TcpStream => "TCP_STREAM",
            Self::UdpStream => "UDP_STREAM",
            Self::Pktgen => "pktgen",
            Self::Rings => "generator",
        }
    }

    fn work(self, value: u32, duration_s: f64) -> Work {
        let spec = match self {
            Self::TcpRequests => TestSpec::request_response(Protocol::Tcp, value, value),
            Self::UdpRequests => TestSpec::request_response(Protocol::Udp, value, value),
            Self::TcpStream => TestSpec { block_bytes: Some(u64::from(value)), ..TestSpec::tcp() },
            Self::UdpStream => {
                // One message a call, as netperf.
                let udp = UdpSpec { datagram_bytes: value, gso: false, gro: false, batch_count: 1 };
                TestSpec { udp: Some(udp), ..TestSpec::udp(value) }
            }
            Self::Pktgen | Self::Rings => {
                return Work::Frames(FramesWork {
                    frame_bytes: FRAME_BYTES,
                    slots_only: false,
                    through: "guest".to_owned(),
                    duration_s,
                });
            }
        };
        let limit = TestLimit::DurationS(duration_s);
        // The reports of the intervals delimit the window of time in which processor time is counted.
        Work::from(TestSpec { limit, interval_s: (duration_s / 8.0).max(0.05), ..spec })
    }
}

/// Length of the generator's frames, bytes.
const FRAME_BYTES: u32 = 60;

fn show_transactions(value: f64) -> String {
    format!("{value:.0}/s")
}

fn show_pkts(value: f64) -> String {
    format!("{:.3} Mpkt/s", value / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_all_contenders_with_the_same_work() {
        for study in &STUDIES {
            let settings = study.settings(1.0);
            let each = study.loads.len() * study.values.len();
            assert_eq!(settings.len(), 3 * each, "{}", study.id);
            for group in settings.chunks(3) {
                let found: Vec<_> =
                    group.iter().filter_map(|one| Contender::of(&one.experiment)).collect();
                assert_eq!(found, Contender::ALL, "{}", study.id);
                assert!(
                    group
                        .iter()
                        .all(|one| one.work == group[0].work && one.varied == group[0].varied)
                );
            }
        }
    }

    #[test]
    fn predictions_are_for_the_sizes_they_name() {
        let study = Study::find("P-fig3").unwrap();
        assert_eq!(study.predicted(Contender::Bridge, 1024), Some(1.5));
        assert_eq!(study.predicted(Contender::Bridge, 16_384), None);
        assert_eq!(study.predicted(Contender::Ptnet, 1), None);
    }
}
