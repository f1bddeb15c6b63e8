//! The sender's socket buffer.

use results::{Limit, SettingChange};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::other_windows;
use super::windows::{Autotuned, sysctl};
use crate::advice::Advice;
use crate::buffers::Buffer;
use crate::ceiling::{is_disproved, window_ceiling};
use crate::change::Change;
use crate::experiment::{Experiment, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct SendBuffer;

impl Mechanism for SendBuffer {
    fn limit(&self) -> Limit {
        Limit::SendBuffer
    }

    fn page(&self) -> Page {
        Page {
            title: "the send buffer",
            ceiling: "the largest send buffer that the kernel allows, divided by the round-trip time",
            mechanism: "Data stays in the send buffer until it is acknowledged, one round trip later: \
                T = usable buffer / RTT. Linux doubles the requested size and charges its own overhead \
                to it; the kernel tunes it up to `net.ipv4.tcp_wmem`.",
            evidence: "TCP_INFO `tcpi_sndbuf_limited` over `tcpi_busy_time` near 1, or, under a congestion control that \
                paces (BBR), throughput equal to the queued bytes over the round trip; the send queue is as \
                long as the buffer allows and all of it is in flight; queue / RTT equals the throughput. Samples that \
                catch the sender with nothing left to send though both windows have room, while its application does \
                not pause (`drained-share` of `explain --symptoms`).",
            against: "The receiver's window or a standing queue on the path holds the data back; the \
                receiving thread never sleeps.",
            experiment: "A larger buffer: throughput follows the buffer that the kernel really granted; a \
                gain below a quarter of that decides nothing. If it grants no larger buffer, half the buffer: half the throughput.",
            advice: "Raise `net.ipv4.tcp_wmem` at the sender so that it holds twice the bandwidth-delay \
                product (about 0.6 of a buffer is payload), or ask for no buffer size and let the kernel \
                tune it.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let share = seen.send_buffer_share();
        let starved = seen.starved(&seen.receiver).unwrap_or(0.0);
        let weighed = Weighing::most(1.0)
            .by(share, "the buffer holds the sender back only part of the time")
            .unless(starved, path::STARVED_READER, "the reading thread hardly sleeps")
            .unless(seen.queue(), 1.0, weighing::QUEUE);
        let law = law(seen);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(seen.sender.end),
            evidence: evidence(seen, share, law),
            against: match counted(seen) {
                None if share < signs::PERHAPS => {
                    "the time that the sender waited for it was not recorded".to_owned()
                }
                _ if share > signs::PERHAPS => {
                    format!(
                        "send-buffer-limited {} of the time, but what drains it is slower",
                        percent(share)
                    )
                }
                _ => format!("send-buffer-limited {} of the time", percent(share)),
            },
            ceiling_bits_per_s: if share > signs::LIKELY {
                law
            } else {
                tuned_ceiling(seen).or(law)
            },
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let window = (usable_bytes(seen), seen.sender.send_buffer_bytes);
        let mut experiments =
            other_windows(self.limit(), Rule::FollowsSendBuffer, seen, window, headroom);
        // Where the option sets the receiver's window as well, that must not become the tighter limit.
        let window_bytes = seen.shown().sender(names::PEER_WINDOW).unwrap_or(0.0);
        let receiver = saturating_u64(window_bytes / seen.streams());
        for experiment in &mut experiments {
            if let Change::Window { side: None, from_bytes, to_bytes, ask_bytes } =
                &mut experiment.change
                && *to_bytes > *from_bytes
            {
                *ask_bytes = receiver.max(*ask_bytes);
                *to_bytes = (*ask_bytes).max(*to_bytes);
            }
        }
        experiments
    }

    fn changes(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<SettingChange> {
        let Some(asked) = seen.spec.window_bytes else {
            return buffers(seen).larger(seen).into_iter().collect();
        };
        // A buffer of the requested size binds by the test's own choice.
        let given = seen
            .sender
            .send_buffer_bytes
            .map_or(f64::MAX, |given| given / predictions::WINDOW_OF_ASKED_MOST);
        let why = format!(
            "asked {}, given {}",
            show_byte_size(asked),
            show_byte_size(saturating_u64(given))
        );
        let end = seen.sender.end;
        (given < asked as f64 * path::GRANTED_OF_ASKED)
            .then(|| sysctl(seen, end, "net.core.wmem_max", &asked.to_string(), why))
            .flatten()
            .into_iter()
            .collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Vec::new();
        let end = end_name(seen.sender.end);
        if seen.spec.window_bytes.is_some() {
            lines.push(
                "ask for no buffer size (leave out --window): the kernel then tunes it".to_owned(),
            );
        }
        lines.extend(buffers(seen).unknown_bound(seen));
        if let Some(bytes) = buffers(seen).needed_bytes(seen) {
            let window_bytes = buffers(seen).window_of(seen, bytes);
            lines.push(format!(
                "at the {end} end let the buffer grow until it holds {}: {}",
                show_byte_size(window_bytes),
                buffers(seen).command(seen, "4096 16384", bytes)
            ));
            if seen.spec.window_bytes.is_some() {
                lines.push(format!(
                    "or let applications there ask for that much: sysctl -w net.core.wmem_max={window_bytes}"
                ));
            }
        }
        Advice::all(lines)
    }
}

/// The autotuning bound of the sender's buffer.
fn buffers(seen: &Observed<'_>) -> Autotuned {
    let full = usable_bytes(seen).filter(|_| seen.send_buffer_share() > signs::LIKELY);
    let window_bytes = full.map(|bytes| bytes / seen.streams());
    Autotuned { end: seen.sender.end, buffer: Buffer::Send, window_bytes }
}

/// Bytes of payload the buffer holds: as queued when it was full, else its usual share.
fn usable_bytes(seen: &Observed<'_>) -> Option<f64> {
    let full = seen.send_buffer_share() > signs::LIKELY;
    let queued = seen.sender.send_queue_bytes.filter(|queued| full && *queued > 0.0);
    let share = Buffer::Send.window_share(seen.host(seen.sender.end));
    queued.or_else(|| seen.sender.send_buffer_bytes.map(|given| given * share))
}

/// Share of the time, 0 to 1, that the kernel counts as limited by the buffer.
fn counted(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().sender(names::BUFFER_LIMITED)
}

fn law(seen: &Observed<'_>) -> Option<f64> {
    window_ceiling(usable_bytes(seen)?, seen.window_rtt_s()?)
}

fn tuned_ceiling(seen: &Observed<'_>) -> Option<f64> {
    if seen.spec.window_bytes.is_some() {
        return None;
    }
    buffers(seen).ceiling(seen)
}

fn evidence(seen: &Observed<'_>, share: f64, law: Option<f64>) -> Vec<String> {
    let counted = counted(seen).filter(|counted| *counted < share - path::TOLD_APART);
    let drained = seen.shown().sender(names::DRAINED).unwrap_or(0.0);
    let mut first = match counted {
        // Small and frequent acknowledgements, or the sender's own pacing, hide the wait from the kernel's account.
        Some(counted) if signs::DRAINED_MOST * drained >= share - path::TOLD_APART => format!(
            "{} of the samples catch the sender with nothing left to send though both windows have room (the kernel \
             counts {} of the time as limited by the buffer)",
            percent(drained),
            percent(counted)
        ),
        Some(counted) => format!(
            "all that the send buffer holds is in flight (the kernel counts {} of the time as limited by it)",
            percent(counted)
        ),
        None => format!("send-buffer-limited {} of the time", percent(share)),
    };
    // A buffer that held more than its usual share has no law.
    let law = law.filter(|law| !is_disproved(*law, seen.rate()));
    if let (Some(usable), Some(rtt_s), Some(law)) = (usable_bytes(seen), seen.window_rtt_s(), law) {
        first += &format!(
            "; {} of payload in it / {} = {}; measured {}",
            show_byte_size(saturating_u64(usable)),
            show_seconds(rtt_s),
            show_bit_rate(law),
            show_bit_rate(seen.rate())
        );
    }
    let mut lines = vec![first];
    if let Some(given) = seen.sender.send_buffer_bytes {
        let asked =
            seen.spec.window_bytes.map(|asked| format!(", asked {}", show_byte_size(asked)));
        if seen.spec.window_bytes.is_some() {
            lines.push(
                "configured: the test asks for that size as send and receive buffer at both ends"
                    .to_owned(),
            );
        }
        lines.push(format!(
            "SO_SNDBUF {} (the kernel's doubled figure{})",
            show_byte_size(saturating_u64(given)),
            asked.unwrap_or_default()
        ));
    }
    let idle_window = seen.receive_window_share();
    if path::OTHER_WINDOW_TOLD.of(idle_window) < 1.0 {
        lines.push(format!(
            "the receiver's window holds it back only {} of the time",
            percent(idle_window)
        ));
    }
    lines
}
