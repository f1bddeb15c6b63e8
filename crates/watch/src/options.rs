use std::net::{IpAddr, SocketAddr};

use liveness::bfd::{Hops, SessionConfig};
use liveness::probe::Ports;
use liveness::siphash::Key;
use liveness::states::WatchConfig;

/// A gateway to be watched.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Its name in the plan.
    pub name: String,
    /// Its address on this host's side.
    pub address: IpAddr,
    /// Probes are sent through it.
    pub is_probed: bool,
    /// Whom BFD is spoken with about it.
    pub bfd: Option<BfdPeer>,
}

impl GatewayOptions {
    /// Whether packets are sent to its Ethernet address.
    pub(crate) fn is_sent_through(&self) -> bool {
        let is_far = |peer: &BfdPeer| matches!(peer.hops, Hops::Several { .. });
        self.is_probed || self.bfd.as_ref().is_some_and(is_far)
    }
}

/// A BFD peer whose session stands for a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BfdPeer {
    /// Its address: the gateway's own over one hop; over several that of a system behind the gateway, the peer of no other
    /// gateway.
    pub address: IpAddr,
    /// How far it is. Packets over several hops are sent to the gateway's Ethernet address, whatever the routes are.
    pub hops: Hops,
}

/// What a host watches.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Name of the plan, for events.
    pub plan: String,
    /// The plan's number.
    pub plan_id: u64,
    /// The plan's key.
    pub key: Key,
    /// The plan's ports.
    pub ports: Ports,
    /// The interface to the gateways.
    pub interface: String,
    /// This host's address on it.
    pub near: IpAddr,
    /// Far hosts that reflect, at least one; a round counts as answered if one of them answers.
    pub far: Vec<IpAddr>,
    /// The gateways, in the plan's order.
    pub gateways: Vec<GatewayOptions>,
    /// Probes' timing, and how states follow.
    pub timing: WatchConfig,
    /// BFD's timing.
    pub bfd: SessionConfig,
    /// Names of gateways that were down when the watcher ended last
    /// ([`StateFile`](crate::StateFile)).
    pub were_down: Vec<String>,
    /// Sentinels that are listened to.
    pub sentinels: Option<SentinelOptions>,
    /// This host is a sentinel.
    pub announce: Option<AnnounceOptions>,
    /// The host has packet filters of the plan's; their changes call for [`restore`](crate::Steering::restore), and so do
    /// new hardware addresses of gateways.
    pub has_filters: bool,
}

/// Which sentinels a host listens to.
#[derive(Debug, Clone)]
pub struct SentinelOptions {
    /// UDP port that their summaries come to.
    pub port: u16,
    /// Numbers of the sentinels.
    pub numbers: Vec<u32>,
    /// Interval of this host's own probes while sentinels are heard, nanoseconds.
    pub relaxed_ns: u64,
}

/// What a sentinel sends.
#[derive(Debug, Clone)]
pub struct AnnounceOptions {
    /// Number of this sentinel.
    pub number: u32,
    /// Interval between summaries, milliseconds, 10 to 10000; a changed state is sent at once.
    pub interval_ms: u32,
    /// Addresses of the hosts that receive summaries.
    pub hosts: Vec<SocketAddr>,
}

/// What a reflector is opened with.
#[derive(Debug, Clone)]
pub struct ReflectOptions {
    /// The plan's number.
    pub plan_id: u64,
    /// The plan's key.
    pub key: Key,
    /// The plan's ports.
    pub ports: Ports,
    /// The interface to the gateways.
    pub interface: String,
    /// This host's address on it, which probes are for.
    pub address: IpAddr,
    /// Addresses that are answered.
    pub sources: Vec<IpAddr>,
    /// Questions a second that each of them may ask.
    pub rate_per_s: u32,
    /// Questions that each of them may ask at once.
    pub burst_count: u32,
}
