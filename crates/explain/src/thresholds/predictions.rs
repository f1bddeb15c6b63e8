//! What experiments predict, and what changes recommend, as factors of the measured throughput.

use super::thresholds;

thresholds! {
    STILL_FULL: f64 = 0.95, Nature, "a window that limits is full except for a segment or two; below this, something else limits the sender";
    NEXT_REACHED: f64 = 0.8, Chosen, "throughput over the next ceiling, up to which a lifted limit stopped short of it";
    STILL_LOST: f64 = 0.001, Chosen, "retransmissions that a smaller window may show beyond those of the judged test: a few of a second";
    STILL_BUSY: f64 = 0.8, Chosen, "time that a full core's threads run or wait at a higher cost per byte, over that before";
    RIVAL: f64 = 0.5, Chosen, "score of the second candidate over the first's, from which an experiment must distinguish the two";
    FAINT_RIVAL: f64 = 0.33, Chosen, "score of the second candidate over the first's where no limit is suspected: the experiment alone decides, so it must exclude more";
    STATED_MET: f64 = 0.9, Chosen, "throughput over a rate that a setting or a device states, from which it meets it";

    SCALE_LEAST: f64 = 1.25, Chosen, "least gain of a change that lifts several limits: beyond the noise of two medians";
    SCALE_EXPECTED: f64 = 1.3, Chosen, "least gain expected of several streams, and what their sum may exceed their number by";
    SCALE_HALF: f64 = 0.5, Chosen, "half of what is expected still confirms it: the streams share cores";
    LIFT_LEAST: f64 = 1.05, Chosen, "least gain of lifting one limit: just beyond the noise of a quiet path";
    LIFT_MOST: f64 = 1.1, Chosen, "least upper end of that prediction";
    WINDOW_WANTED: f64 = 1.2, Chosen, "window asked for, over what the next ceiling needs";
    WINDOW_GAIN_LEAST: f64 = 2.0, Chosen, "least factor of a wider window: its effect must exceed the noise";
    WINDOW_GAIN_MOST: f64 = 4.0, Chosen, "most: a kernel grants no more at once";
    WINDOW_HALF: f64 = 0.5, Nature, "half the window carries half, where it binds";
    WINDOW_LOW: f64 = 0.8, Chosen, "low end of a window's prediction: the round trip is smoothed";
    WINDOW_HIGH: f64 = 1.2, Chosen, "high end of a window's prediction";
    WINDOW_OF_ASKED_MOST: f64 = 2.0, Nature, "the kernel doubles the size asked for, so the window is at most twice that";
    WINDOW_STEP_BYTES: f64 = 4096.0, Nature, "a page, to which sizes are rounded";
    WINDOW_DIGITS: f64 = 3.0, Chosen, "significant binary digits of a size that is asked for";

    UDP_HALF_RATE: f64 = 0.5, Chosen, "UDP offered over TCP's throughput: well below any rate that the path carries";
    UDP_HALF_ARRIVES: f64 = 0.5, Chosen, "least part of it that arrives";
    SINGLES_MOST: f64 = 50_000.0, Chosen, "datagrams that a thread sends one by one in a second, with time to spare; faster ones are sent in batches";
    UDP_LOST_LEAST: f64 = 0.2, Chosen, "share that UDP must lose, over TCP's: random losses take as large a share of both, in few packets";
    UDP_LATE_LEAST: f64 = 1e-4, Chosen, "share of datagrams that must come late";
    UDP_LATE_OF_FIRST: f64 = 0.2, Chosen, "share of datagrams that must come late, over the share that came late before: whatever lets packets overtake takes about as many at another rate";
    DATAGRAM_USUAL_BYTES: f64 = 1400.0, Nature, "payload that fits the usual MTU, where that is not known";
    DATAGRAM_HEADER_BYTES: f64 = 48.0, Nature, "IPv6 and UDP headers, the larger ones";
    DATAGRAM_LEAST_BYTES: f64 = 512.0, Chosen, "smaller datagrams meet the core's limit first";
    DATAGRAM_MOST_BYTES: f64 = 65_000.0, Nature, "what one datagram holds";
    BBR_EXPECTED: f64 = 4.0, Chosen, "gain expected of BBR where no ceiling is known";
    BBR_LEAST: f64 = 1.5, Chosen, "least gain expected of BBR";
    BBR_MOST: f64 = 10.0, Chosen, "high end of the prediction for BBR";

    OMIT_GROWTH_UNKNOWN: f64 = 1.2, Chosen, "growth assumed where it is not known";
    OMIT_GROWTH_MOST: f64 = 4.0, Chosen, "growth beyond which a prediction says nothing";
    OMIT_MOST: f64 = 2.0, Chosen, "high end of a test without its ramp, over its growth";
    ANOTHER_CONTROL: f64 = 2.0, Chosen, "gain expected of another congestion control where no ceiling is known";
    ANOTHER_CONTROL_LEAST: f64 = 1.15, Chosen, "least gain that confirms it";
    ANOTHER_CONTROL_EXPECTED: f64 = 1.3, Chosen, "least gain expected of another congestion control";
    ANOTHER_CONTROL_MOST: f64 = 4.0, Chosen, "high end of the prediction for another congestion control";

    STAYS_LOW: f64 = 0.85, Chosen, "low end of a rate that stays: a policer's excess costs goodput";
    STAYS_HIGH: f64 = 1.12, Chosen, "high end of a rate that stays: UDP's headers are smaller and its burst is counted";
    UDP_FASTER: f64 = 1.33, Chosen, "UDP offered over the rate: a third more, which a shared rate drops";
    SPACED_NEAR: f64 = 0.9, Chosen, "pacing just below the measured rate";
    SPACED_HALF: f64 = 0.5, Chosen, "pacing at half, in case bursts pass even the first";
    SPACED_LOW: f64 = 0.75, Chosen, "low end of what a paced test carries";
    SPACED_LOST: f64 = 0.1, Chosen, "part of the losses that the expected throughput is lowered by";
    SPACED_HIGH: f64 = 1.05, Chosen, "high end of what a paced test carries";
    PACE_ADVISED: f64 = 0.98, Chosen, "pacing advised, over the throughput: just below a policer's rate";

    DEARER_LOW: f64 = 0.2, Chosen, "low end where each byte costs more: about five times the cost";
    DEARER_EXPECTED: f64 = 0.6, Chosen, "expected where each byte costs more";
    DEARER_HIGH: f64 = 0.9, Chosen, "high end where each byte costs more: a decrease of a tenth must be visible";
    PACKETS_LOW: f64 = 0.4, Chosen, "low end with twice the packets: somewhat below half";
    PACKETS_EXPECTED: f64 = 0.6, Chosen, "expected with twice the packets: the cost of copying stays";
    PACKETS_HIGH: f64 = 0.85, Chosen, "high end with twice the packets";
    SEGMENTS_HALF: f64 = 0.5, Chosen, "segments of an experiment with smaller ones, over the present ones";
    SEGMENTS_LOW: f64 = 0.3, Chosen, "low end with segments of half the size: the spread of a few dozen random losses";
    SEGMENTS_EXPECTED: f64 = 0.5, Nature, "one repair brings half as many bytes";
    SEGMENTS_HIGH: f64 = 0.8, Chosen, "high end with segments of half the size";
    MSS_LEAST_BYTES: f64 = 180.0, Nature, "smaller segments are mostly options and headers";
    MSS_MOST_BYTES: f64 = 16_000.0, Chosen, "largest segment of an experiment with smaller ones";
    CHEAPER_MOST: f64 = 2.0, Chosen, "largest gain of a cheaper way to or from the socket";
    PLACEMENT_MOST: f64 = 2.0, Chosen, "largest gain of a better place: the papers saw up to 1.7";
    OWN_RATE_MOST: f64 = 20.0, Chosen, "largest gain of lifting a rate that the test or its application set itself";
    MOVED_MOST: f64 = 1.1, Chosen, "gain of another core, over the time that was waited";
    WAITED_MOST: f64 = 0.8, Chosen, "waiting beyond which that gain is not predicted";
    IDLE_CORE: f64 = 0.5, Chosen, "idle cores from which a thread can move or streams can spread";
    WAITED_LEAST: f64 = 0.1, Chosen, "waiting below which another core is no better";
    STOPPED_MOST: f64 = 0.9, Chosen, "time stopped or waited beyond which the gain of its end is not predicted";

    CHANGE_TWICE: f64 = 2.0, Chosen, "gain predicted of a change to a host where no ceiling is known";
    CHANGE_HALF_MORE: f64 = 1.5, Chosen, "gain predicted of a change to a host where no ceiling is known and the limit's effect is smaller";
    SHAPER_ADVISED: f64 = 2.0, Chosen, "rate advised for a shaper, over its present one";
    ACKS_OFFERED: f64 = 4.0, Chosen, "datagrams offered over the rate of acknowledgements: a return path with room for that was not the limit";
    ACKS_HEADER_BYTES: f64 = 28.0, Nature, "IPv4 and UDP headers";
    ACKS_ARRIVE_MOST: f64 = 1.65, Chosen, "highest over expected arrival: acknowledgements with SACK blocks are larger than those without";
}
