//! The hosts: cores, threads, their queues and buses.

use super::{Ramp, thresholds};

thresholds! {
    OTHER_REASON: f64 = 0.75, Chosen, "how much a reason for a full core (quota, clock, place, packets) speaks against the core's own work";
    CORE_WITHOUT_THREAD: f64 = 0.6, Chosen, "a full core whose thread is not seen: somebody else's work may fill it";
    HELD_BACK_SENDER: f64 = 0.8, Chosen, "how much a window or buffer speaks against the core that feeds it";
    SLOWER_END: f64 = 0.6, Chosen, "how much a slower thread at the other end speaks against this one";
    FULLNESS_UNKNOWN: f64 = 0.3, Chosen, "fullness of the socket assumed where the receiver does not report it";
    QUEUE_BUSY: Ramp = Ramp::new(0.5, 0.9), Chosen, "time a reader runs or waits, from which a full socket is its core's";
    THREAD_SCALES: f64 = 0.5, Chosen, "time a thread is busy from which its cost grows with throughput; below, wake-ups do";
    STEAL: Ramp = Ramp::new(0.08, 0.25), Instrument, "part of a core that the hypervisor took: ticks of 4 ms leave 3% of error in a second, and a tenth is within the repeats' spread";
    STEAL_IDLE: Ramp = Ramp::new(0.05, 0.2), Chosen, "idle part of that core: one that still idles was not needed";
    STEAL_NEEDED: Ramp = Ramp::new(0.5, 0.8), Chosen, "what the thread and its packets used of the time that the hypervisor left";
    STEAL_MOST: f64 = 0.95, Chosen, "part taken beyond which what is left says nothing of a ceiling";
    STEAL_TOLD: f64 = 0.02, Instrument, "time the hypervisor took from which the text mentions it";
    EXHAUSTION_BUSY: f64 = 0.3, Chosen, "time a thread is busy up to which full cores are not its limit";
    EXHAUSTION_WAITS: Ramp = Ramp::new(0.2, 0.35), Chosen, "time a thread waits for one of the full cores";
    EXHAUSTION: f64 = 0.5, Chosen, "highest confidence of full cores for which this end's thread does not wait";
    EXHAUSTION_WAITED: f64 = 0.2, Chosen, "what a thread that waits for them adds";
    CORE_IDLE: Ramp = Ramp::new(0.02, 0.08), Instrument, "idle share of a full core: ticks of 4 ms leave 3% of error in a second";
    OWN_PAUSES: Ramp = Ramp::new(0.05, 0.3), Chosen, "time an application pauses by choice: its core then has time";
    WORK_TOLD: f64 = 0.15, Chosen, "part of a core that other work takes, from which the text mentions it";
    WAIT_TOLD: f64 = 0.1, Chosen, "time waited for a core from which the text says that others use it";

    QUOTA_QUEUE: f64 = 0.5, Chosen, "how much a queue on the path speaks against a quota: bursts of a throttled group make one too";
    LOW_PRIORITY_WAITS: Ramp = Ramp::new(0.2, 0.45), Chosen, "time a thread of low priority waits, which by itself is the sign";
    LEFT_WAITING: f64 = 0.92, Chosen, "highest confidence of a thread that waits though other cores idle: the load balancer may be about to move it";
    LEFT_WAITS: Ramp = Ramp::new(0.2, 0.4), Chosen, "time a thread waits for its core though it may move";
    LEFT_IDLE_CORES: Ramp = Ramp::new(0.9, 1.5), Chosen, "idle cores meanwhile: one whole core at least";
    WAIT_MOST: f64 = 0.95, Chosen, "share of waiting beyond which the time that is left says nothing of a ceiling";

    PACKET_SENDER: f64 = 0.85, Chosen, "weight of a sender that never sleeps as evidence against the core that takes the packets";
    PACKET_READER: f64 = 0.8, Chosen, "weight of a reader that never sleeps, with a full socket, as evidence against the core that takes the packets";
    SOFTIRQ_BUSY: Ramp = Ramp::new(0.55, 0.85), Chosen, "softirq share of the core that does little else";
    SHARED_THREAD: f64 = 0.8, Chosen, "highest confidence of a kernel thread that serves both ends, on one machine";
    PINNED_PACKETS: f64 = 0.93, Chosen, "highest confidence of packets that a setting confines to a full core";
    PACKET_QUEUE: f64 = 0.5, Chosen, "weight of a queue on the path as evidence against softirq time, which does not locate a limit";
    PACKET_OWN_READER: f64 = 0.6, Chosen, "weight of a reader on the same core that never sleeps as evidence against softirq time";
    PACKET_CORE_IDLE: Ramp = Ramp::new(0.02, 0.1), Instrument, "idle share of the core that packets are confined to";
    ELSEWHERE_IDLE: Ramp = Ramp::new(0.05, 0.2), Chosen, "idle share of the idlest other core: packets could go there";
    ELSEWHERE_FULL: f64 = 0.8, Chosen, "highest confidence of confined packets where no other core has time";
    ELSEWHERE_SHARED: f64 = 0.9, Chosen, "highest confidence of confined packets on one machine whose cores serve both ends";
    HUNGRY_THREAD: f64 = 0.85, Chosen, "time a kernel thread runs or waits from which it never sleeps";
    SOFTIRQ_TOLD: f64 = 0.3, Chosen, "softirq share from which a ceiling is computed from it";

    DROPS_AT_ONCE: Ramp = Ramp::new(0.7, 1.4), Chosen, "ln of throughput over the loss law of drops that TCP learns of immediately";
    DROPS_AT_ONCE_COUNT: Ramp = Ramp::new(0.0, 2.0), Chosen, "drops that TCP learns of immediately, from which they limit: each shrinks the window";
    KEEPS_ITS_RATE: f64 = 0.75, Chosen, "throughput over a queueing discipline's rate, from which its rate and not its queue length causes the drops";
    DROPS_STARVED: f64 = 0.7, Chosen, "how much a thread that never sleeps speaks against an overflowing queue";

    WAKING: Ramp = Ramp::new(0.08, 0.3), Chosen, "time spent on leaving idle states: less is within the repeats' spread";
    IDLE_STATES_MOST: f64 = 0.8, Chosen, "highest confidence of idle states, which no experiment confirms";
    IDLE_STATES_PLATEAU: f64 = 0.7, Chosen, "how much a rate that nothing lifts speaks against idle states";
    MEMORY_EXCESS: Ramp = Ramp::new(10.0, 20.0), Chosen, "memory traffic over payload: three crossings at each end, twice that with cache misses";
    BUS_REACHED: Ramp = Ramp::new(0.88, 0.95), Chosen, "throughput over the bus's payload rate";
    BUS_EXCEEDED: Ramp = Ramp::new(1.05, 1.12), Instrument, "more than the bus carries: the width that it reports is not real";
    SEGMENTS_NOT_ASKED: f64 = 0.98, Chosen, "confidence for small segments that the test did not request: just below those that it did";
    CUT_AT_SENDER: f64 = 0.5, Chosen, "confidence from which a veth sender that cuts segments makes both ends pay";
}
