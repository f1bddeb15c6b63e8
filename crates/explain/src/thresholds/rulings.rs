//! How an experiment's outcome is held against its prediction.

use super::thresholds;

thresholds! {
    NOISE_LEAST: f64 = 0.04, Instrument, "repeats of one test differ by as much on a quiet path, even if a few happen to agree";
    NOISE_OF_ONE: f64 = 0.05, Instrument, "half the spread taken of a test with a single repeat";
    NOISE_OF_SPREAD: f64 = 0.5, Nature, "of the repeats' range: how far they lie on either side of their middle";
    NOISE_MOST: f64 = 0.3, Chosen, "noise beyond which a gain that is not seen refutes nothing";
    COST_RISES_LEAST: f64 = 1.2, Chosen, "least factor by which a byte's cost must rise for its effect to show";
    FOLLOWS: f64 = 0.25, Chosen, "tolerance of throughput that follows a window or a cost: both are averages over the test";
    WINDOW_MADE: f64 = 0.15, Chosen, "least change of a window that counts as made: what kernels grant varies by a tenth";
    GAINED_LEAST: f64 = 0.25, Chosen, "least part of the gain that a wider window promises: recorded windows that bind gain half of it at least";
    HAD_ROOM: f64 = 0.8, Chosen, "data in flight over a window, up to which that window was not the limit";
    LOST_MORE: f64 = 2.0, Chosen, "losses over those before, from which faster traffic lost a larger share: recorded random losses that stopped at no ceiling stay below";
    WAITED: f64 = 1.25, Chosen, "round trip over that before, from which packets wait in a queue; a full queue also drops the excess";
    PACKETS_PART: f64 = 0.4, Chosen, "part of a byte's cost that is per packet, from which the number of packets is said to limit";
    SEGMENTS_MADE: f64 = 0.7, Chosen, "segments over the former ones, up to which they count as made smaller";
    CALMED: f64 = 0.35, Chosen, "losses over those before, up to which spacing took them away: bursts at the start remain";
    CALMED_ERRORS: f64 = 2.0, Nature, "losses that spacing took away, in standard errors of those expected without it: fewer are chance in one of 40";
    NOT_CALMED: f64 = 0.8, Chosen, "losses over those before, from which spacing changed nothing: few dozen losses vary by a fifth";
    PUSHED: f64 = 1.1, Chosen, "datagrams sent over the throughput before, from which they tried to exceed it";
    LOST_EXPECTED_LEAST: f64 = 5.0, Nature, "losses or late datagrams expected of a test, below which none refutes nothing: none of 5 is chance in one of 150";
    SATURATED_MOST: f64 = 0.75, Chosen, "sent over what was asked for, and arrived over sent, from which it counts as most of it";
    MISSING_AT_READER: f64 = 0.5, Chosen, "datagrams that the receiving host dropped, of those missing, from which its reader and not a rate was exceeded";
    ARRIVED: f64 = 0.75, Chosen, "throughput over that before, from which datagrams or streams met the same rate limit and not a limit of their own: recorded rates that stay keep 0.84";
    LOST_STILL: f64 = 0.35, Chosen, "losses over those before that random ones keep at least, whatever sends: recorded ones keep 0.7";
}
