//! What a second candidate predicts for the experiment on the first: throughput over that before the change.

use super::{Factors, thresholds};

thresholds! {
    SAME: Factors = Factors::new(0.9, 1.1), Chosen, "no effect: what two medians of a quiet path differ by";
    NEARLY_SAME: Factors = Factors::new(0.85, 1.15), Chosen, "no effect, where the change costs or saves a little besides";
    LIFTED: Factors = Factors::new(1.05, 100.0), Chosen, "a limit that is lifted: beyond noise, up to a next ceiling that is not known";
    WINDOW_FOLLOWED: Factors = Factors::new(0.75, 1.25), Chosen, "over the window's own gain: how much of a buffer is payload varies, and the round trip with it";
    MOVED_CORES: Factors = Factors::new(0.8, 10.0), Chosen, "threads on other cores: somewhat slower memory, or all the time that they waited for their core";
    ANOTHER_SOCKET_PATH: Factors = Factors::new(0.6, 2.0), Chosen, "another send or receive path: a byte may cost up to twice as much or half";
    DEARER_BYTES: Factors = Factors::new(0.1, 0.9), Nature, "smaller blocks cost a full thread more per byte, so it carries less";
    DEARER_BYTES_BESIDE: Factors = Factors::new(0.1, 1.0), Nature, "smaller blocks, on a core that packets fill and a thread shares: each byte costs more, so it carries less";
    TWICE_THE_PACKETS: Factors = Factors::new(0.4, 0.95), Nature, "segments of half the size: up to twice the work, in so far as the work is per packet";
    HALF_THE_SEGMENTS: Factors = Factors::new(0.3, 0.8), Nature, "segments of half the size where segments are counted, by congestion windows or acknowledgements: half, and the spread of few losses";
    MORE_HEADERS: Factors = Factors::new(0.85, 1.05), Nature, "segments of half the size elsewhere: headers take up to that much of a rate";
    LARGER_SEGMENTS: Factors = Factors::new(1.0, 20.0), Chosen, "the largest segments instead of the test's own: up to the ratio of an MTU of 9000 to one of 576, and some";
    PACED: Factors = Factors::new(0.9, 1.05), Chosen, "over the rate of pacing: below it, or what left before it began";
    STREAMS_OF_OTHERS: f64 = 1.1, Chosen, "several streams beside other traffic: least gain, as each takes a share of its own";
    STREAMS_OF_HOSTS: f64 = 0.8, Chosen, "several streams on full cores, queues that drop, policers: least gain, as they share and disturb each other";
    STREAMS_OF_EACH: Factors = Factors::new(1.25, 1.1), Chosen, "several streams where each has its own limit: least gain, and the largest gain over the number of streams";
    UDP_OF_POLICER: Factors = Factors::new(0.8, 1.15), Chosen, "UDP above a policer's rate, over TCP's throughput: a bucket's burst is counted, and TCP stays below the rate";
    UDP_OF_RATE: Factors = Factors::new(0.8, 1.12), Chosen, "UDP above a shared rate: its headers are smaller, its bursts are lost";
    UDP_OF_OTHERS: Factors = Factors::new(0.5, 1.2), Chosen, "UDP beside other traffic: its share depends on its rate, so the outcome varies";
    UDP_OF_RETURN: f64 = 0.9, Chosen, "UDP needs no acknowledgements, so nearly all that is offered arrives";
    UDP_OF_HOSTS: f64 = 0.2, Chosen, "UDP on full cores: least over TCP's throughput, as each datagram costs more than a segment's share";
    UDP_OF_LOSSES: f64 = 0.7, Chosen, "UDP over a path that loses: least part of the offer that arrives";
    UDP_OF_WINDOWS: Factors = Factors::new(0.9, 1.02), Nature, "UDP knows no windows: what is offered arrives";
}
