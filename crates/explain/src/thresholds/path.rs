//! The connection and the path: windows, losses, rates.

use super::{Ramp, thresholds};

thresholds! {
    READER_BUSY: Ramp = Ramp::new(0.05, 0.3), Chosen, "time a reader runs or waits for its core, from which a reader that never sleeps is the slower one";
    READER_UNKNOWN: f64 = 0.5, Chosen, "fullness assumed where the receiver does not report it: neither side is favoured";
    STARVED_READER: f64 = 0.7, Chosen, "weight of a reader that never sleeps as evidence against the window or buffer that it empties";
    UNSTEADY_WINDOW: f64 = 0.5, Chosen, "how much a window that varies speaks against it, where the receiver's queue is not known";
    STEADY_WINDOW: Ramp = Ramp::new(0.2, 0.7), Chosen, "smallest over largest advertised window: a slow reader lets it vary several fold";
    WINDOW_LAW_UNKNOWN: f64 = 0.8, Chosen, "agreement assumed where the window or the round trip is not known";
    WINDOW_WITHOUT_LAW: f64 = 0.7, Chosen, "factor for the account of limited time where the window law disagrees";
    BOUND_OF_BUFFER: f64 = 0.2, Chosen, "window over the kernel's upper bound, from which that bound is the likely reason";
    GRANTED_OF_ASKED: f64 = 0.95, Instrument, "the kernel rounds what it grants; less was clamped";
    TOLD_APART: f64 = 0.01, Instrument, "shares closer than 1% look equal in print";
    OTHER_WINDOW_TOLD: Ramp = Ramp::new(0.0, 0.3), Chosen, "time limited by the other window, up to which the text mentions it";

    LAW_ABOVE: Ramp = Ramp::new(1.8, 2.7), Chosen, "ln of throughput over the loss law: a test of 1 to 2 s has not answered each loss, recorded up to e^1.8";
    LAW_BELOW: Ramp = Ramp::new(1.1, 2.0), Chosen, "ln of the loss law over throughput: timeouts cost up to e^1.1; beyond, another limit is tighter";
    LOSS_UNANSWERED: Ramp = Ramp::new(0.05, 0.2), Nature, "share lost under BBR, which answers none of it below about 20%";
    LOSS_WITHOUT_SACK: f64 = 0.5, Chosen, "without SACK most retransmissions are needless, so their share counts for half";
    LOSS_FULL_HOSTS: f64 = 0.8, Chosen, "how much full hosts speak against a loss on the path: late cores drop packets";
    LOSS_ELSEWHERE: f64 = 0.9, Chosen, "how much drops that a host counts speak against a loss on the path";
    LOSS_BELOW_RATE: f64 = 0.9, Chosen, "how much a rate that all streams meet speaks against random losses";
    LOSS_BESIDE_OTHERS: f64 = 0.8, Chosen, "how much other traffic that fills an interface speaks against random losses: a full queue drops from all";
    LOSS_SPARES_UDP: f64 = 0.9, Chosen, "how much datagrams that pass unharmed speak against random losses";
    UDP_LOSS_EXPECTED: Ramp = Ramp::new(3.0, 6.0), Nature, "losses expected of a UDP test, of which none is chance in one of 20 tests, and in one of 400";
    LOSS_NOWHERE_ELSE: f64 = 0.1, Chosen, "confidence up to which the text says that neither host's counters moved";
    HELD_TOLD: f64 = 0.05, Chosen, "time limited by other limits from which the text mentions it";
    BURSTS_TOLD: f64 = 1.2, Chosen, "law for bursts over law for single losses, from which the text gives both";
    MATHIS: f64 = 1.22, Nature, "Mathis et al. 1997: throughput is 1.22 MSS / (RTT sqrt(p)) under Reno";
    CUBIC: f64 = 1.054, Nature, "RFC 9438 section 5.1: (C (3 + beta) / (4 (1 - beta)))^0.25 with C 0.4 and beta 0.7";
    CUBIC_POWER: f64 = 0.75, Nature, "RFC 9438 section 5.1: the window grows with (RTT / p)^0.75";

    REPAIR_ABOVE: Ramp = Ramp::new(0.7, 1.5), Chosen, "ln of throughput over one repair per round trip: beyond, the losses came together";
    REPAIR_BELOW: Ramp = Ramp::new(1.2, 2.0), Chosen, "ln of that law over throughput: timeouts cost up to e^1.2; beyond, another limit is tighter";
    REPAIR_BY_RETRANSMITS: f64 = 0.75, Chosen, "retransmissions are an upper bound of the losses, so their law is a weaker witness";
    REPAIR_TIME: Ramp = Ramp::new(0.4, 0.7), Nature, "time that repairs took at one per round trip: where it is most of the test, repairs lag behind the losses";
    REPAIR_STARVED: f64 = 0.8, Chosen, "how much a thread that never sleeps speaks against slow repairs";

    RISING: Ramp = Ramp::new(1.15, 1.5), Chosen, "last third over first third of a test: a steady one differs by a tenth";
    UNSETTLED_ROUND_TRIPS: Ramp = Ramp::new(10.0, 25.0), Nature, "round trips that a test lasted: slow start, its overshoot and the repair of it take about ten";
    UNSETTLED: Ramp = Ramp::new(0.4, 0.7), Chosen, "throughput's swing through the test over its mean: a steady one swings by a tenth";
    OVERSHOOTS: Ramp = Ramp::new(3.0, 6.0), Nature, "loss events of a repeat: slow start overshoots once, and the repair of it may lose again";
    STALLED_FLIGHT: Ramp = Ramp::new(0.4, 0.6), Chosen, "throughput times round trip over the data in flight: where less than half moves, holes in it are waited for";
    CWND_UNTRIED: f64 = 0.5, Chosen, "confidence in the congestion window where several streams were not tried";
    CWND_USED_LEAST: f64 = 0.3, Chosen, "what a window that is not used up still counts for: snapshots miss its peaks";
    CWND_USED_UNKNOWN: f64 = 0.6, Chosen, "use assumed where the data in flight is not known";
    CWND_LOST: Ramp = Ramp::new(2e-6, 2e-5), Chosen, "share lost from which losses, not the algorithm, explain the window";
    CWND_RECOVERING: Ramp = Ramp::new(2e-4, 1e-3), Chosen, "share lost from which rising throughput is recovery, not a ramp";
    CWND_OTHER_CAUSE: f64 = 0.7, Chosen, "how much losses, marks, drops or a full packet core speak against the algorithm's own choice";
    PACED_FROM: f64 = 0.9, Nature, "pacing rate over throughput: BBR cycles from 0.75 to 1.25 of it";
    PACED_TO: f64 = 1.3, Nature, "pacing rate over throughput: the top of BBR's cycle";
    STREAMS_NO_MORE: f64 = 1.2, Chosen, "gain of several streams below which the text names it as evidence against the congestion window";
    STREAMS_TOLD: f64 = 1.15, Chosen, "gain of several streams from which the text names it as evidence against a rate limit";
    CWND_UNUSED_TOLD: f64 = 0.6, Chosen, "use of the congestion window below which the text names it as evidence against that window";

    LINE_REACHED: Ramp = Ramp::new(0.90, 0.96), Chosen, "throughput over line rate less headers: acknowledgements and the start cost a few percent";
    LINE_NEARLY: Ramp = Ramp::new(0.82, 0.9), Chosen, "throughput of one stream over line rate less headers, where several streams reach the line";
    LINE_BY_SEVERAL: Ramp = Ramp::new(0.95, 0.98), Chosen, "several streams over line rate less headers: they fill what one leaves";
    LINE_EXCEEDED: Ramp = Ramp::new(1.12, 1.30), Instrument, "more than the line carries: the reported speed is not real (veth reports 10 Gbit/s); data queued when the measurement began, up to a round trip's worth, is added";
    LIFTED_LINE: f64 = 0.9, Chosen, "how much a gain of several streams speaks against a line or a bus";
    MTU_USUAL_BYTES: f64 = 1500.0, Nature, "MTU up to which a larger one leaves headers less of the line";

    PLATEAU_BY_ONE: f64 = 0.85, Chosen, "a plateau that only streams or only UDP showed";
    PLATEAU_UNTRIED: f64 = 0.3, Chosen, "a plateau that nothing tried";
    PLATEAU_BY_QUEUE: f64 = 0.4, Chosen, "what a standing queue adds where nothing else was tried";
    BURST_GAIN: Ramp = Ramp::new(1.2, 1.4), Chosen, "gain of several streams that a rate's burst may make in a second: beyond, it is not a rate";
    STREAMS_UNSHARED: f64 = 0.85, Chosen, "gain of several streams over their number, from which nothing they share held them back";
    UDP_LATE_SHOWN: f64 = 0.03, Chosen, "share of UDP that neither arrived nor was lost, from which the evidence says so";
    UDP_PUSHED: f64 = 1.05, Chosen, "UDP offered over TCP's best, from which it tried to exceed it";
    UDP_LOST: Ramp = Ramp::new(0.002, 0.02), Chosen, "share of UDP lost: the excess over a rate is lost, 17% at 1.2 times";
    UDP_ALIKE: Ramp = Ramp::new(0.6, 0.85), Chosen, "UDP delivered over TCP's best: much less is a limit of UDP's own";
    UDP_UNLOST: f64 = 0.5, Chosen, "confidence in a common rate that UDP met without a loss seen";
    UDP_UNLIKE: f64 = 0.6, Chosen, "confidence in a common rate though UDP delivered much less";
    SHAPER_OTHER_CAUSE: f64 = 0.8, Chosen, "how much a policer or other traffic speaks against a shaper";
    SHAPER_PACKET_CORE: f64 = 0.7, Chosen, "how much a full packet core speaks against a shaper";
    SHAPED_REACHED: Ramp = Ramp::new(0.82, 0.92), Chosen, "throughput over a shaper's rate less headers: acknowledgements and its burst cost a few percent";
    SHAPED_BY_SEVERAL: Ramp = Ramp::new(0.9, 0.95), Chosen, "throughput of several streams over a shaper's rate less headers: they fill what one leaves";
    SHAPED_BY_ONE: Ramp = Ramp::new(0.5, 0.7), Chosen, "throughput of one stream over a shaper's rate less headers, where the shaper's short queue drops its bursts";
    SHAPED_EXCEEDED: Ramp = Ramp::new(1.06, 1.15), Chosen, "more than the shaper's rate: it does not shape this traffic";

    DROPS_UNQUEUED: Ramp = Ramp::new(4e-4, 1.5e-3), Chosen, "share lost at a rate where nothing waits: a shaper loses less, its queue holds the start's burst";
    WAITS_S: Ramp = Ramp::new(0.2e-3, 0.6e-3), Instrument, "longer round trips that hosts alone make, see queue-delay-s";
    WAITS_OF_RTT: Ramp = Ramp::new(0.04, 0.15), Instrument, "additional round-trip time as a part of the round trip: the kernel's mean is over 8 samples";
    UDP_WAITS_OF_RTT: Ramp = Ramp::new(5e-3, 15e-3), Chosen, "time that datagrams wait as a part of the round trip: a long path's own times vary by parts in a thousand";
    CLOCKS_APART: f64 = 5e-5, Nature, "by how much the mean of two hosts' clocks differs over a test, seconds each second: quartz is off by up to 50 in a million each";
    RECEIVER_RTT_LEAST_S: f64 = 5e-3, Instrument, "round trip of a receiver that counts milliseconds, from which a step is a fifth of it at most";
    POLICED_UDP_LOST: Ramp = Ramp::new(0.03, 0.08), Chosen, "share of UDP lost beyond which a rate was exceeded";
    POLICED_UDP_OF_TCP: Ramp = Ramp::new(3.0, 6.0), Chosen, "share of UDP lost over TCP's share: random losses take as large a share of both";
    BELOW_THE_LINE: Ramp = Ramp::new(0.8, 0.9), Chosen, "several streams over the line, below which the rate is another one";
    ENDS_APART: Ramp = Ramp::new(0.1, 0.25), Chosen, "ln of UDP's delivery over several streams' throughput: one rate ends both alike";
    POLICED_DROPS: Ramp = Ramp::new(0.0, 10.0), Chosen, "drops that a policer counts, from which it limits";
    POLICED_NEAR: Ramp = Ramp::new(0.02, 0.1), Chosen, "throughput over a policer's rate: its drops keep TCP far below it";
    POLICED_EXCEEDED: Ramp = Ramp::new(1.15, 1.4), Chosen, "more than the policer's rate and burst: it does not police this traffic";
    POLICED_RATE_UNKNOWN: f64 = 0.9, Chosen, "agreement assumed where the filter reports no rate";
    LONG_BURSTS: Ramp = Ramp::new(100.0, 300.0), Chosen, "segments lost in each loss event: random losses, also those in bursts, take tens";
    POLICED_BURSTS: f64 = 0.6, Chosen, "confidence in a policer where bursts are dropped, and nothing that was tried exceeded its rate";
    POLICED_EACH: Ramp = Ramp::new(1.0, 1.5), Nature, "gain of several streams over their number: streams that share a policer get no more than one alone";
    SPARED_SINGLY: f64 = 0.7, Chosen, "what datagrams that pass unharmed say where losses may have come in bursts, of which few were expected";
    POLICED_HELD: f64 = 0.8, Chosen, "how much windows, buffers and applications speak against a policer with drops";
    COMMON_CEILING_TOLD: f64 = 0.1, Chosen, "confidence from which the text says that the rate of several streams is the policer's";

    OTHERS_SHARE: Ramp = Ramp::new(0.08, 0.2), Chosen, "other bytes over all: acknowledgements and probes make a few percent";
    OTHERS_FILL_LINE: Ramp = Ramp::new(0.85, 0.93), Chosen, "test and other traffic over the line";
    OTHERS_AT_RATE: f64 = 0.9, Chosen, "a rate that nothing lifts is a weaker sign than a full line";
    OTHERS_QUEUE: f64 = 0.8, Chosen, "other traffic fills queues too: longer round trips count nearly as much as a plateau";
    OWN_BYTES_MOST: f64 = 1.01, Instrument, "own bytes with all headers, and 1% for control packets";

    MARKED_SHARE: Ramp = Ramp::new(5e-5, 5e-4), Chosen, "segments marked: one mark a round trip halves nothing at 5 in 100 000";
    REGAINED: Ramp = Ramp::new(1.15, 1.4), Nature, "congestion window over the slow-start threshold: the cut left 0.7 (CUBIC) of it, so at 1.43 it has grown back";
    REGAINED_HALF: Ramp = Ramp::new(1.9, 2.3), Nature, "congestion window over the slow-start threshold under Reno, whose cut leaves half: at 2 it has grown back, and the next cut is due";
    MARKED_COUNT: Ramp = Ramp::new(2.0, 10.0), Chosen, "marks from which they are more than one queue's moment";
    REORDER_NOTICED: Ramp = Ramp::new(2.0, 10.0), Chosen, "times that the sender noticed a late segment";
    REORDER_UDP: Ramp = Ramp::new(1e-3, 5e-3), Chosen, "share of datagrams that came late";
    REORDER_UNTOLD: f64 = 0.45, Chosen, "confidence in late packets where the receiver does not report them: a policer of bursts looks alike, and its experiment comes first";
    REORDER_NEEDLESS: Ramp = Ramp::new(5.0, 30.0), Chosen, "needless retransmissions from which they shrink the window";
    SIGNALS_FULL_HOSTS: f64 = 0.8, Chosen, "how much full hosts speak against marks or late packets as the limit";
    LOST_OF_AGAIN: Ramp = Ramp::new(0.1, 0.3), Chosen, "UDP lost over TCP retransmitted: fewer were lost than retransmitted";
    LATE_OF_AGAIN: Ramp = Ramp::new(0.2, 0.6), Chosen, "UDP late over TCP retransmitted: as many are late as were retransmitted";

    LATE_GROWTH: Ramp = Ramp::new(1.3, 2.0), Chosen, "round trip under load over idle, where acknowledgements wait";
    ACKS_LOST: Ramp = Ramp::new(0.02, 0.2), Instrument, "acknowledgements lost: those under way when the counters are read make up to 2%";
    ACKS_UNLOST: f64 = 0.7, Chosen, "confidence in a slow return path that loses no acknowledgements";
    WAY_OUT_MORE: Ramp = Ramp::new(1.05, 1.12), Chosen, "UDP delivered over TCP's best: the forward path has room";
    WAY_OUT_LOST: Ramp = Ramp::new(0.01, 0.05), Chosen, "share of that UDP lost: the forward path is full";
    ACKS_LOST_TOLD: f64 = 0.02, Instrument, "share of acknowledgements lost from which the text mentions it";

    PACING_REACHED: Ramp = Ramp::new(0.85, 0.93), Chosen, "throughput over the pacing rate: 1 where it binds";
    PACING_EXCEEDED: Ramp = Ramp::new(1.08, 1.2), Chosen, "more than the pacing rate: it does not pace this traffic";
    OFFERED_REACHED: Ramp = Ramp::new(0.9, 0.97), Chosen, "throughput over the rate the application offers: 1 where it binds";
    PAUSED: Ramp = Ramp::new(0.05, 0.5), Chosen, "time a sender chose not to write";
    OUTSTANDING_TOLD: f64 = 0.95, Chosen, "time with data outstanding below which the text mentions it";
    READ_REACHED: Ramp = Ramp::new(0.85, 0.93), Chosen, "throughput over the rate the application reads at: 1 where it binds";
    READ_EXCEEDED: Ramp = Ramp::new(1.15, 1.3), Chosen, "more than that: the socket's buffer holds a second of it at most";
    HELD_BY_READER: Ramp = Ramp::new(0.1, 0.5), Chosen, "time the window limited the sender, from which a slow reader can be the reason";
    READER_PAUSED: Ramp = Ramp::new(0.05, 0.3), Chosen, "time a reader chose not to read";
    READER_AT_WORK: Ramp = Ramp::new(0.7, 0.95), Chosen, "time a reader's thread runs or waits for its core, from which the core is the reason";
    READER_UNSEEN: f64 = 0.4, Chosen, "highest confidence of a slow reader of which only the window's changes are visible";
    READER_UNTIMED: f64 = 0.5, Chosen, "highest confidence of a full socket whose reader's time is not known";
}
