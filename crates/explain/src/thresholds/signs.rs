//! What counts as a sign, whichever limit reads it.

use super::{Ramp, thresholds};

thresholds! {
    PERHAPS: f64 = 0.3, Chosen, "confidence from which a sign is mentioned in the text";
    LIKELY: f64 = 0.5, Chosen, "confidence from which a sign counts as present: more likely than not";

    STATED: f64 = 0.97, Chosen, "highest confidence of a limit whose rate the test or a host states: above all limits that are derived";
    LOCATED: f64 = 0.96, Chosen, "highest confidence of a limit that a host's own counter locates";
    SEEN: f64 = 0.95, Chosen, "highest confidence of a limit that the connection's and the path's figures show";
    INDIRECT: f64 = 0.9, Chosen, "highest confidence of a limit that is inferred because other figures explain nothing";

    MORE_STREAMS_AND_LOSS: Ramp = Ramp::new(1.1, 1.4), Chosen, "throughput of several streams over one where packets are lost: the gain of flows that lose packets varies more";
    STREAMS_IN_VAIN: Ramp = Ramp::new(1.05, 1.2), Chosen, "throughput of several streams over one, where full cores may keep streams from gaining";
    GAIN_MIN: f64 = 0.04, Instrument, "repeats of one test differ by as much on a quiet path";

    QUEUE_GROWTH: Ramp = Ramp::new(1.3, 2.0), Chosen, "round trip under load over idle: windows and buffers leave it below 1.1, a queue in front of a rate at least doubles a short one";
    QUEUE_DELAY_S: Ramp = Ramp::new(0.2e-3, 0.6e-3), Instrument, "wake-ups and batches of the hosts add 0.1 to 0.5 ms without any queue";

    HELD_COUNTED: Ramp = Ramp::new(0.02, 0.1), Instrument, "the kernel counts in jiffies of 1 to 10 ms and stops at each send: less than 2% is none";
    HELD_UNCOUNTED: f64 = 0.9, Chosen, "confidence in a full window where the kernel's account is absent";
    FILLED_CWND: Ramp = Ramp::new(0.85, 0.95), Chosen, "data in flight over the congestion window, from which the congestion window, not the receiver's window, counts as full";
    FILLED_MOST: f64 = 0.95, Chosen, "highest confidence of a window that is seen full and that the kernel does not count";
    ASKED_WINDOW_LAW: Ramp = Ramp::new(0.7, 0.8), Chosen, "throughput over window / RTT: within a fifth of the law, as the round trip is smoothed";
    ASKED_WINDOW_EACH: Ramp = Ramp::new(0.6, 0.85), Chosen, "what each further stream adds, over the first: windows of their own add as much again";
    WINDOW_FULL: f64 = 0.95, Chosen, "data in flight over a window or buffer from which it counts as full: segments of 64 KiB do not fill it exactly";
    SENT_OF_QUEUE: Ramp = Ramp::new(0.6, 0.8), Chosen, "data in flight over the send queue: near 1 where all data in the buffer has been sent";
    QUEUE_OF_BUFFER: Ramp = Ramp::new(0.5, 0.75), Nature, "the kernel charges its overhead to the buffer: a full one holds 0.5 to 0.8 of its size in payload";
    PEER_OPEN: Ramp = Ramp::new(0.8, 0.9), Chosen, "data in flight over the receiver's window, below which that window has room";
    DRAINED_MOST: f64 = 0.9, Chosen, "highest confidence of a send buffer that is seen drained and that the kernel does not count";
    PACED_OF_BUFFER: Ramp = Ramp::new(0.3, 0.5), Chosen, "send queue over the buffer, under BBR: its pacing leaves a part unused";

    EXHAUSTED_IDLE: Ramp = Ramp::new(0.03, 0.10), Instrument, "mean idle share of all cores: ticks of 4 ms leave 3% of error in a second";
    EXHAUSTED_BY_SEVERAL: Ramp = Ramp::new(0.02, 0.06), Instrument, "mean idle share of all cores with several streams, which leave no pauses between two writes";
    NEARLY_EXHAUSTED: Ramp = Ramp::new(0.2, 0.35), Chosen, "idle share that one stream may leave where several streams use it up without a gain";
    HOSTS_FULL_BY_CORES: f64 = 0.8, Chosen, "cores without idle time say less than a thread that never sleeps: others' work may fill them";
    FULL_WAIT: Ramp = Ramp::new(0.2, 0.4), Chosen, "time the flow's own thread waits for one of the full cores: then the flow's work is part of what fills them";

    THROTTLED_PERIODS: Ramp = Ramp::new(0.05, 0.3), Chosen, "periods that the quota ended, of all: one in twenty costs less than the repeats differ";
    THROTTLED_TIME: Ramp = Ramp::new(0.02, 0.1), Chosen, "time throttled over the test: 2% is less than the repeats differ";
    HELD_BEHIND: Ramp = Ramp::new(0.1, 0.35), Chosen, "time a thread of low priority waits for its core: a tenth on a host with time to spare";
    STARVED: Ramp = Ramp::new(0.75, 0.95), Chosen, "time a thread runs or waits for its core: one that never sleeps reaches 0.95, as the account includes its start";
    FELT_RUN: Ramp = Ramp::new(0.15, 0.4), Chosen, "time the thread runs, from which full cores can slow it";
    FELT_WAIT: Ramp = Ramp::new(0.1, 0.25), Chosen, "time the thread waits for a core, from which full cores slow it: less is late wake-ups of a thread that sleeps";
    FELT_SOFTIRQ: Ramp = Ramp::new(0.05, 0.2), Chosen, "time a core spends on packets, from which full cores slow them";
    SOFTIRQ_CORE: f64 = 0.5, Chosen, "softirq share from which a core counts as one that does little else";
    SOFTIRQ_CORE_IDLE: f64 = 0.05, Instrument, "idle share up to which it has no time left: ticks of 4 ms leave 3% of error in a second";

    MOSTLY_KERNEL: f64 = 0.6, Chosen, "share of a thread's time in the kernel from which the text says \"mostly in the kernel\"";
    MOSTLY_USER: f64 = 0.4, Chosen, "share of a thread's time in the kernel below which the text says \"mostly in user mode\"";
    MOVED_BY_DEVICE: f64 = 0.5, Chosen, "bytes of the device over the test's payload: less is the opposite direction's acknowledgements";
    WINDOW_OF_BUFFER: f64 = 0.5, Nature, "a connection begins with half of its receive buffer as window";
    MSS_USUAL_BYTES: f64 = 1448.0, Nature, "payload of a segment at MTU 1500 with timestamps, used where the segment size is not known";

    RETRANSMITS_MIN: f64 = 3.0, Chosen, "fewer retransmissions give no usable rate: their number is off by 1 / sqrt(count)";
    DROPS_OF_RETRANSMITS: Ramp = Ramp::new(0.01, 0.1), Nature, "drops over retransmissions: one dropped super-segment is up to 45 retransmitted segments";
    DROPS_COUNT: Ramp = Ramp::new(1.0, 5.0), Chosen, "drops from which they can be the cause: one may be the start's";
    SMALL_PACKET_BYTES: Ramp = Ramp::new(3200.0, 6400.0), Nature, "two standard Ethernet frames: more than four are joined ones";
    SMALL_SEGMENT_BYTES: Ramp = Ramp::new(1000.0, 1400.0), Nature, "payload of a segment: 1448 fits the usual MTU, 1000 wastes a third of it";
    SLOW_CLOCK: Ramp = Ramp::new(0.2, 0.4), Chosen, "part of the highest clock that is missing: one core of many never has the highest";
    MISPLACED_ON_NODE: f64 = 0.7, Chosen, "confidence for another cache on the same node, which costs less than another node";
    MISPLACED_AS_REASON: f64 = 0.9, Chosen, "confidence for a bad placement, which explains most of a full core, not all";
}
