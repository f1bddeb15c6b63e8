//! What has become of each setting since it was published.

use serde::Serialize;

/// What to make of a published setting today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// Nothing against it where the path asks for it.
    Sound,
    /// Depends on the path or the memory: the plan sizes it.
    Sized,
    /// No longer in the kernel.
    #[serde(rename = "gone")]
    Removed,
    /// There, without effect.
    Idle,
    /// Costs more than it gives on today's kernels.
    Harmful,
}

/// What is known of a setting.
struct Known {
    name: &'static str,
    /// Only this value is judged so; absent: any.
    value: Option<&'static str>,
    advice: Advice,
    text: &'static str,
}

const fn any(name: &'static str, advice: Advice, text: &'static str) -> Known {
    Known { name, value: None, advice, text }
}

const fn at(name: &'static str, value: &'static str, advice: Advice, text: &'static str) -> Known {
    Known { name, value: Some(value), advice, text }
}

/// Sources: kernel `Documentation/networking/ip-sysctl.rst` and the commits and RFCs named.
const KNOWN: &[Known] = &[
    at(
        "net.ipv4.tcp_timestamps",
        "0",
        Advice::Harmful,
        "without timestamps there is no PAWS (RFC 7323: at 40 Gbit/s sequence numbers wrap in 0.9 s) and no round-trip sample per segment, which BBR and RACK need; timestamps cost 12 bytes per segment. Leave it at 1",
    ),
    at(
        "net.ipv4.tcp_sack",
        "0",
        Advice::Harmful,
        "without SACK, only one lost segment is repaired per round trip, and RACK-TLP (RFC 8985, the kernel's loss detection since 4.18) needs SACK; the rewrite of SACK removed the processor time that it cost in 2010. Leave it at 1",
    ),
    at("net.ipv4.tcp_sack", "1", Advice::Sound, "the default"),
    any(
        "net.ipv4.tcp_tw_recycle",
        Advice::Removed,
        "removed in Linux 4.12, because it broke clients behind address translation. tcp_tw_reuse, by default on for loopback, serves the same purpose",
    ),
    any(
        "net.ipv4.tcp_low_latency",
        Advice::Idle,
        "without effect since Linux 4.14, when the prequeue it switched off was removed; it can still be set. Busy polling (net.core.busy_read) lowers latency",
    ),
    any(
        "net.ipv4.tcp_fack",
        Advice::Idle,
        "without effect since Linux 4.15: RACK (RFC 8985) replaced it",
    ),
    any(
        "net.ipv4.tcp_adv_win_scale",
        Advice::Idle,
        "without effect since Linux 6.6, which measures each connection's overhead instead (scaling_ratio); before that, 1 was the default",
    ),
    any(
        "net.ipv4.tcp_mem",
        Advice::Harmful,
        "in pages, not bytes: the published values either exceed the machine's memory or are so small that TCP is always under memory pressure. The kernel sizes it at boot: leave it",
    ),
    any(
        "net.core.rmem_default",
        Advice::Harmful,
        "initial buffer of every socket other than TCP, including UDP: a large one costs memory and delay for all of them; TCP uses the middle value of tcp_rmem. Leave it",
    ),
    any(
        "net.core.wmem_default",
        Advice::Harmful,
        "as rmem_default, for sending; a large value lets UDP queue seconds of data on the host. Leave it",
    ),
    any(
        "net.core.rmem_max",
        Advice::Sized,
        "bounds the buffers that applications request (SO_RCVBUF); TCP without such a request is bounded only by tcp_rmem. Raise it only for applications that request buffers",
    ),
    any(
        "net.core.wmem_max",
        Advice::Sized,
        "as rmem_max, for sending: SO_SNDBUF instead of SO_RCVBUF, tcp_wmem instead of tcp_rmem",
    ),
    any(
        "net.core.optmem_max",
        Advice::Sized,
        "bounds ancillary data and MSG_ZEROCOPY notifications; the default (128 KiB since Linux 6.7) suffices; ESnet's zero-copy tests use 1 MiB, never half a gigabyte",
    ),
    any(
        "net.ipv4.tcp_rmem",
        Advice::Sized,
        "the last value should be about four times the bandwidth-delay product (the window is half of it); a large middle value gives every connection that much at once and defeats autotuning",
    ),
    any(
        "net.ipv4.tcp_wmem",
        Advice::Sized,
        "the last value should be three to four times the bandwidth-delay product; the middle one is where autotuning begins and should stay small",
    ),
    any(
        "net.core.netdev_max_backlog",
        Advice::Sized,
        "matters only where softnet_stat counts drops: with NAPI drivers, those are RPS, tunnels and veth. A longer backlog adds delay",
    ),
    at(
        "net.core.default_qdisc",
        "fq",
        Advice::Sound,
        "spaces packets for pacing and BBR; since Linux 4.13 TCP paces by itself without it. Takes effect only for interfaces that are brought up later",
    ),
    any(
        "net.ipv4.tcp_congestion_control",
        Advice::Sized,
        "CUBIC (the default since 2.6.19, RFC 9438) fills long paths as well as H-TCP did; use BBR where losses do not mean congestion. H-TCP: `clearstream tune cc htcp`",
    ),
    at(
        "net.ipv4.tcp_no_metrics_save",
        "1",
        Advice::Sound,
        "after a loss, the next connection over the path does not start with a small slow-start threshold; useful on measurement hosts",
    ),
    at(
        "net.ipv4.tcp_mtu_probing",
        "1",
        Advice::Sound,
        "finds the path MTU where ICMP is filtered (RFC 4821); needed for jumbo frames over networks of others",
    ),
    any(
        "net.ipv4.tcp_fin_timeout",
        Advice::Idle,
        "time for which an orphaned connection stays in FIN-WAIT-2; does not affect throughput. The default is 60 s",
    ),
    any(
        "net.ipv4.tcp_tw_reuse",
        Advice::Sized,
        "lets a client reuse a connection in TIME-WAIT; since Linux 4.19 the default is 2 (loopback only). Useful for hosts that open thousands of connections per second",
    ),
    at(
        "net.ipv4.tcp_window_scaling",
        "1",
        Advice::Sound,
        "the default; without it no window exceeds 64 KiB",
    ),
];

/// What to make of a published setting: the judgement and a line that says why and what to do now.
#[must_use]
pub fn judge(name: &str, value: &str) -> (Advice, &'static str) {
    let known = KNOWN
        .iter()
        .find(|known| known.name == name && known.value.is_none_or(|judged| judged == value));
    known.map_or((Advice::Sized, "not among the settings that are judged here"), |known| {
        (known.advice, known.text)
    })
}
