//! The chain of places a byte passes, with what each can carry where the results say so.

use results::{
    CoreUse, Direction, End, EndReport, HostFacts, InterfaceFacts, Limit, Protocol, StreamEnd,
    TestOutcome, WindowUse,
};

use super::{Digest, ends_of, streams_of};
use crate::show;

/// Share of a send buffer that is payload; the rest is the kernel's overhead. The share that `explain` and `tune plan`
/// reckon with.
const SEND_WINDOW_SHARE: f64 = 0.6;

/// Bytes a full frame has beside its IP packet: header 14, FCS 4, preamble 8, gap 12 (IEEE 802.3).
const FRAME_OVERHEAD_BYTES: f64 = 38.0;

/// TCP header with timestamps, as Linux sends it (RFC 9293, RFC 7323).
const TCP_HEADER_BYTES: f64 = 32.0;

/// What a link of the chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Application,
    SendBuffer,
    ReceiveWindow,
    /// Of UDP, which has no window.
    ReceiveBuffer,
    Interrupts,
    Nic,
    Path,
}

impl Place {
    /// Its name above the figure.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Application => "application core",
            Self::SendBuffer => "send buffer",
            Self::ReceiveWindow => "receive window",
            Self::ReceiveBuffer => "receive buffer",
            Self::Interrupts => "interrupt core",
            Self::Nic => "NIC",
            Self::Path => "path",
        }
    }
}

/// One link.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) place: Place,
    /// Whose; `None` for the path.
    pub(crate) end: Option<End>,
    /// The figure to see first: `core 1`, `32.0 MiB`.
    pub(crate) figure: String,
    /// What else is known, a short line each.
    pub(crate) notes: Vec<String>,
    /// Share of it in use, 0 to 1.
    pub(crate) used: Option<f64>,
    /// What it can carry, bit/s.
    pub(crate) ceiling_bits_per_s: Option<f64>,
    /// Whether the verdict names it.
    pub(crate) binding: bool,
    /// Why nothing is known of it.
    pub(crate) unseen: Option<String>,
}

/// The whole chain in the way the bytes of one test went.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    pub(crate) direction: Direction,
    /// What was measured over it, bit/s.
    pub(crate) measured_bits_per_s: Option<f64>,
}

impl Chain {
    pub(crate) fn of(digest: &Digest<'_>) -> Self {
        let group = digest.main_group();
        let outcome = group.and_then(super::Group::typical);
        let direction = group.and_then(|group| group.directions().first().copied());
        let direction = direction.unwrap_or(Direction::Forward);
        let rate = group.and_then(|group| group.rate(direction)).map(|estimate| estimate.median);
        let repeats = group.map_or(&[][..], |group| &group.outcomes);
        let survey = Survey { digest, outcome, repeats, direction, rate };
        let sender = if direction == Direction::Reverse { End::Far } else { End::Near };
        let receiver = other(sender);
        let mut links = survey.host_links(sender, true);
        links.push(survey.path());
        let mut arriving = survey.host_links(receiver, false);
        arriving.reverse();
        links.append(&mut arriving);
        let mut chain = Self { links, direction, measured_bits_per_s: rate };
        chain.mark_binding(digest, sender);
        chain
    }

    fn mark_binding(&mut self, digest: &Digest<'_>, sender: End) {
        let Some(verdict) = &digest.results.verdict else { return };
        let Some(wanted) = self.place_of(verdict.limit, verdict.end, sender) else { return };
        let found = self.links.iter_mut().find(|link| (link.place, link.end) == wanted);
        if let Some(link) = found {
            link.binding = true;
            if link.place == Place::SendBuffer && link.used.is_none() {
                link.ceiling_bits_per_s = self.measured_bits_per_s;
                link.used = self.measured_bits_per_s.map(|_| 1.0);
            }
        }
    }

    /// The link that a limit lies at; `at` is the end that the verdict names.
    fn place_of(&self, limit: Limit, at: Option<End>, sender: End) -> Option<(Place, Option<End>)> {
        let (sending, receiving) = (at.unwrap_or(sender), at.unwrap_or(other(sender)));
        Some(match limit {
            Limit::ReceiveWindow => (Place::ReceiveWindow, Some(receiving)),
            Limit::SendBuffer => (Place::SendBuffer, Some(sending)),
            Limit::SenderCore
            | Limit::Steal
            | Limit::IdleStates
            | Limit::CpuFrequency
            | Limit::MemoryBandwidth => self.busier_core(sending),
            Limit::ReceiverCore => self.busier_core(receiving),
            Limit::SendingApplication
            | Limit::Scheduler
            | Limit::CpuQuota
            | Limit::Placement
            | Limit::Pacing => (Place::Application, Some(sending)),
            Limit::ReceivingApplication => (Place::Application, Some(receiving)),
            Limit::InterruptCore | Limit::SoftnetBacklog => self.interrupt_core(receiving),
            Limit::Qdisc | Limit::Offloads | Limit::Pcie => (Place::Nic, Some(sending)),
            Limit::RingOverrun | Limit::InterruptModeration => (Place::Nic, Some(receiving)),
            Limit::LinkRate | Limit::Shaper | Limit::CrossTraffic | Limit::Queue
                if at.is_some() =>
            {
                (Place::Nic, at)
            }
            Limit::LinkRate
            | Limit::Shaper
            | Limit::CrossTraffic
            | Limit::Queue
            | Limit::Loss
            | Limit::LossRecovery
            | Limit::CongestionControl
            | Limit::Policer
            | Limit::PathMtu
            | Limit::MtuBlackHole
            | Limit::EcnMarks
            | Limit::Reordering
            | Limit::ReturnPath => (Place::Path, None),
            // Limits of file-system load, and what nothing explains.
            _ => return None,
        })
    }

    /// Of this end; its application's core where no other one serves the interface.
    fn interrupt_core(&self, end: End) -> (Place, Option<End>) {
        let has_own = |link: &Link| link.place == Place::Interrupts && link.end == Some(end);
        let place =
            if self.links.iter().any(has_own) { Place::Interrupts } else { Place::Application };
        (place, Some(end))
    }

    fn busier_core(&self, end: End) -> (Place, Option<End>) {
        let used = |place| {
            let of_end = |link: &&Link| link.end == Some(end) && link.place == place;
            self.links.iter().find(of_end).and_then(|link| link.used).unwrap_or(0.0)
        };
        let busier = used(Place::Interrupts) > used(Place::Application);
        (if busier { Place::Interrupts } else { Place::Application }, Some(end))
    }
}

/// No connection moves more, bit/s.
const BITS_PER_S_MAX: f64 = 1e12;

/// What the links are read from.
struct Survey<'a> {
    digest: &'a Digest<'a>,
    outcome: Option<&'a TestOutcome>,
    /// All runs of that test.
    repeats: &'a [&'a TestOutcome],
    direction: Direction,
    rate: Option<f64>,
}

impl Survey<'_> {
    /// Application, socket, interrupts, NIC: outwards from the application.
    fn host_links(&self, end: End, sending: bool) -> Vec<Link> {
        let report = self.outcome.and_then(|outcome| match end {
            End::Near => Some(outcome.near()),
            End::Far => outcome.far(),
        });
        let facts = match end {
            End::Near => Some(self.digest.results.near()),
            End::Far => self.digest.results.far(),
        };
        let stream = streams_of(report, sending).into_iter().max_by_key(|stream| stream.bytes);
        let unseen = report.is_none().then(|| self.why_unseen(end));
        let own_core = stream.and_then(|stream| stream.cores.first().copied());
        let mut links = vec![
            self.application(end, report, stream, unseen.as_deref()),
            self.socket(end, stream, sending, unseen.as_deref()),
        ];
        match report.and_then(|report| interrupt_core(report, own_core)) {
            Some(core) => links.push(self.interrupts(end, core)),
            None if unseen.is_some() => {
                links.push(blank(Place::Interrupts, Some(end), unseen.clone()));
            }
            None => {}
        }
        links.push(self.nic(end, facts, unseen));
        links
    }

    /// The application's core: what its thread took of it, and what the core did altogether.
    fn application(
        &self,
        end: End,
        report: Option<&EndReport>,
        stream: Option<&StreamEnd>,
        unseen: Option<&str>,
    ) -> Link {
        let mut link = blank(Place::Application, Some(end), unseen.map(str::to_owned));
        let Some(stream) = stream else { return link };
        let core = stream.cores.first().copied();
        link.figure = core.map_or_else(String::new, |core| format!("core {core}"));
        let usage = report.zip(core).and_then(|(report, core)| core_use(report, core));
        let thread = thread_share(stream);
        if let Some(share) = thread {
            link.notes.push(format!("thread {}", show::share(share)));
        }
        if let Some(usage) = usage {
            link.notes.push(format!("core {} busy", show::share(busy_share(usage))));
        }
        let waited = stream.thread_wait_s.map(|wait_s| wait_s / stream.duration_s);
        if let Some(waited) = waited.filter(|waited| waited.is_finite() && *waited > 0.01) {
            link.notes.push(format!("waited {}", show::share(waited)));
        }
        // The thread's own time tells what a core of its own could do, whoever else uses this one.
        self.fill_share(&mut link, thread.or_else(|| usage.map(busy_share)));
        link
    }

    fn interrupts(&self, end: End, usage: &CoreUse) -> Link {
        let mut link = blank(Place::Interrupts, Some(end), None);
        link.figure = format!("core {}", usage.core);
        link.notes.push(format!("softirq {}", show::share(usage.softirq)));
        link.notes.push(format!("core {} busy", show::share(busy_share(usage))));
        // The rest of the core may be anybody's: only its softirq time is certainly the stack's.
        self.fill_share(&mut link, Some(show::finite(usage.softirq).clamp(0.0, 1.0)));
        link
    }

    fn fill_share(&self, link: &mut Link, share: Option<f64>) {
        link.used = share;
        // A core that hardly worked says little about how much it could carry.
        let telling = share.filter(|share| *share > 0.2);
        link.ceiling_bits_per_s = self.rate.zip(telling).map(|(rate, share)| rate / share);
    }

    fn socket(
        &self,
        end: End,
        stream: Option<&StreamEnd>,
        sending: bool,
        unseen: Option<&str>,
    ) -> Link {
        let spec = self.digest.main_group().map(|group| group.spec);
        let is_udp = spec.is_some_and(|spec| spec.protocol == Protocol::Udp);
        let place = match (sending, is_udp) {
            (true, _) => Place::SendBuffer,
            (false, true) => Place::ReceiveBuffer,
            (false, false) => Place::ReceiveWindow,
        };
        let mut link = blank(place, Some(end), None);
        let told = self.window();
        // Of a receive buffer half is promised (socket(7), SO_RCVBUF).
        let buffer = stream.and_then(|stream| {
            if sending {
                stream.send_buffer_bytes.map(|booked| booked as f64)
            } else {
                stream.receive_buffer_bytes.map(|booked| booked as f64 / 2.0)
            }
        });
        let received = told.and_then(|window| window.receive_bytes());
        let window = if sending { buffer } else { received.or(buffer) };
        let Some(window) = window.filter(|window| *window > 0.0) else {
            link.unseen = unseen.map(str::to_owned);
            return link;
        };
        link.figure = show::size(window);
        let window = if sending { window * SEND_WINDOW_SHARE } else { window };
        // The window is spread over the round trip that its own load makes.
        let rtt_s = told.and_then(|window| window.rtt_s).or(self.digest.idle_rtt_s());
        // Datagrams wait for no acknowledgement: their buffers limit no rate.
        let rtt_s = rtt_s.filter(|_| !is_udp);
        if let Some(rtt_s) = rtt_s {
            let ceiling = window * 8.0 / rtt_s;
            // A send buffer's is an estimate by the usual share of payload, and below what was carried it is wrong.
            let is_refuted = sending && self.rate.is_some_and(|carried| carried > ceiling);
            // Over a path without delay a window is no ceiling that anything could reach.
            if !is_refuted && ceiling <= BITS_PER_S_MAX {
                link.ceiling_bits_per_s = Some(ceiling);
            }
            link.used = self.rate.map(|rate| rate / ceiling).filter(|_| !is_refuted);
        }
        let limited = stream.and_then(|stream| stream.tcp.as_ref()).and_then(|tcp| {
            let busy = tcp.last.busy_s? - tcp.first.busy_s.unwrap_or(0.0);
            let held =
                tcp.last.send_buffer_limited_s? - tcp.first.send_buffer_limited_s.unwrap_or(0.0);
            (busy > 0.0).then_some(held / busy)
        });
        if let Some(held) = limited.filter(|held| sending && *held > 0.005) {
            link.notes.push(format!("held {}", show::share(held)));
        }
        link
    }

    /// The windows of the main test.
    fn window(&self) -> Option<WindowUse> {
        let spec = self.digest.main_group()?.spec;
        self.outcome?.window_use(spec, self.direction)
    }

    fn nic(&self, end: End, facts: Option<&HostFacts>, unseen: Option<String>) -> Link {
        let mut link = blank(Place::Nic, Some(end), None);
        let Some(interface) = facts.and_then(|facts| facts.interface.as_ref()) else {
            link.unseen = unseen;
            return link;
        };
        link.figure = show::clip(&interface.name, 16);
        if let Some(driver) = &interface.driver {
            link.notes.push(show::clip(driver, 16));
        }
        let shaped = interface.qdisc_rate_bits_per_s.filter(|rate| *rate > 0.0);
        let speed = interface.speed_bits_per_s.filter(|speed| *speed > 0.0);
        if let Some(rate) = shaped {
            link.notes.push(format!("shaped {}", show::rate(rate)));
        }
        if let Some(speed) = speed {
            link.notes.push(show::rate(speed));
        }
        let lowest = match (shaped, speed) {
            (Some(shaped), Some(speed)) => Some(shaped.min(speed)),
            (shaped, speed) => shaped.or(speed),
        };
        if let Some(lowest) = lowest {
            let ceiling = lowest * self.payload_share(interface);
            link.ceiling_bits_per_s = Some(ceiling);
            link.used = self.rate.map(|rate| rate / ceiling);
        } else {
            link.notes.push("no rate of its own".to_owned());
        }
        link
    }

    /// Share of the line that TCP payload can have at this MTU.
    fn payload_share(&self, interface: &InterfaceFacts) -> f64 {
        let is_v6 = self.digest.results.path.is_ipv6();
        let ip_header_bytes = if is_v6 { 40.0 } else { 20.0 };
        let mtu = f64::from(interface.mtu_bytes.clamp(576, 65_535));
        (mtu - ip_header_bytes - TCP_HEADER_BYTES) / (mtu + FRAME_OVERHEAD_BYTES)
    }

    fn path(&self) -> Link {
        let facts = &self.digest.results.path;
        let mut link = blank(Place::Path, None, None);
        link.figure = self.digest.idle_rtt_s().map_or_else(String::new, show::seconds);
        if let Some(rtt) = &facts.idle_rtt {
            let p99 = rtt.percentile_s(99.0).map(|p99| format!("p99 {}", show::seconds(p99)));
            link.notes.extend(p99);
        }
        if let Some(mtu) = facts.path_mtu_bytes {
            link.notes.push(format!("MTU {mtu}"));
        }
        if let Some(lost) = self.retransmitted_share() {
            link.notes.push(format!("retransmitted {}", show::share(lost)));
        }
        if let Some(lab) = &facts.lab {
            link.notes.push(format!("emulated: {}", show::clip(lab, 20)));
        }
        link
    }

    /// Segments retransmitted, of those sent, in all repeats together.
    fn retransmitted_share(&self) -> Option<f64> {
        let senders = self
            .repeats
            .iter()
            .flat_map(|outcome| streams_of(ends_of(outcome, self.direction).0, true));
        let counts = senders.filter_map(|stream| {
            let tcp = stream.tcp.as_ref()?;
            let mss_bytes = f64::from(tcp.mss_bytes).max(1.0);
            let again =
                tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count) as f64;
            Some((again, stream.bytes as f64 / mss_bytes + again))
        });
        let (again, sent) = counts.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (sent > 0.0).then(|| again / sent)
    }

    fn why_unseen(&self, end: End) -> String {
        let peer = self.digest.results.path.peer.as_deref().unwrap_or("the peer");
        let absent =
            self.digest.results.absent.iter().find(|absent| absent.what.contains(show::end(end)));
        match absent {
            Some(absent) => absent.why.clone(),
            None => format!("{peer} does not report it"),
        }
    }
}

fn blank(place: Place, end: Option<End>, unseen: Option<String>) -> Link {
    Link {
        place,
        end,
        figure: String::new(),
        notes: Vec::new(),
        used: None,
        ceiling_bits_per_s: None,
        binding: false,
        unseen,
    }
}

fn other(end: End) -> End {
    match end {
        End::Near => End::Far,
        End::Far => End::Near,
    }
}

/// Share of the time a core was not idle.
pub(crate) fn busy_share(usage: &CoreUse) -> f64 {
    let busy = usage.user + usage.system + usage.softirq + usage.irq + usage.steal;
    show::finite(busy).clamp(0.0, 1.0)
}

/// Share of one core that a stream's thread took, in user mode and in the kernel.
fn thread_share(stream: &StreamEnd) -> Option<f64> {
    let took_s = stream.thread_user_s? + stream.thread_system_s?;
    let share = took_s / stream.duration_s;
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

fn core_use(report: &EndReport, core: u32) -> Option<&CoreUse> {
    report.cores.iter().find(|usage| usage.core == core)
}

/// The core that did most of the network stack's work, where it is not the application's own.
fn interrupt_core(report: &EndReport, own: Option<u32>) -> Option<&CoreUse> {
    let most = report.cores.iter().max_by(|one, other| one.softirq.total_cmp(&other.softirq))?;
    (Some(most.core) != own && most.softirq > 0.01).then_some(most)
}
