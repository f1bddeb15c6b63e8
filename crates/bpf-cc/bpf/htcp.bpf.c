/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * H-TCP: a congestion control for fast and long paths.
 *
 * D. Leith, R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004, and
 * draft-leith-tcp-htcp-06. Without a loss for a second it behaves as Reno does; after that the
 * window grows the faster the longer no packet is lost, and a loss gives up no more of the window
 * than the path's queue held.
 *
 *   alpha = 2 (1 - beta) f(t),  f(t) = 1 + 10 (t - 1) + ((t - 1) / 2)^2 beyond t = 1 second,
 *           f scaled by the round-trip time over 100 ms, from 0.1 to 2 fold, and never below 1
 *   beta  = 1/2 where the throughput before this loss differs from that before the last one by
 *           more than a fifth, else lowest over highest round-trip time, 0.5 to 0.8
 *
 * Each acknowledged segment adds alpha / window to the window; a congestion event multiplies the
 * window by beta. `src/law.rs` has the same as formulas, and the tests run this program against it.
 */
#include "kernel.h"

/* alpha and beta are counted in 1/128. */
#define ONE 128
#define BETA_LOW (ONE / 2)
#define BETA_HIGH (ONE * 8 / 10)

#define SECOND_US 1000000ULL
#define NS_IN_US 1000

/* Below this age of the last loss alpha is Reno's. */
#define LOW_SPEED_US SECOND_US
/* f is held beyond: an hour without a loss says no more than this. */
#define AGE_MAX_MS (1 << 20)
/* The round-trip time for which alpha is not scaled, and how far it may be. */
#define RTT_REFERENCE_US 100000
#define RTT_SCALE_LOW_US (RTT_REFERENCE_US / 10)
#define RTT_SCALE_HIGH_US (RTT_REFERENCE_US * 2)
/* A round trip longer than the longest by more than this is a stray one. */
#define RTT_STRAY_US 20000
/* Round trips after a loss in which throughput is not smoothed yet. */
#define SETTLING_ROUND_TRIPS 3

/* One connection's state, in the room the kernel leaves for it. */
struct htcp {
	u64 congestion_us;	/* when the last congestion event ended */
	u64 undo_congestion_us; /* the same before the event that may prove false; 0: none */
	u64 window_began_us;	/* when the present throughput sample began */
	u32 window_segments;	/* acknowledged in it */
	u32 rtt_min_us;		/* lowest round-trip time; 0: none seen */
	u32 rtt_max_us;		/* highest, fading */
	u32 undo_rtt_max_us;
	u32 rate;		/* throughput, smoothed, segments/s */
	u32 rate_max;		/* its highest since the last congestion event */
	u32 rate_max_before;	/* and that of the epoch before */
	u32 undo_rate_max_before;
	u32 credit;		/* growth not yet worth a segment, 1/128 segments squared */
	u32 beta;
	u8 state;		/* enum tcp_ca_state */
};

_Static_assert(sizeof(struct htcp) <= PRIVATE_BYTES, "fits into a socket");

INLINE struct htcp *own(struct tcp_sock *tp)
{
	return (struct htcp *)tp->inet_conn.icsk_ca_priv;
}

INLINE u64 now_us(void)
{
	return ktime_get_ns() / NS_IN_US;
}

INLINE u64 since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

/* alpha, in 1/128. */
INLINE u64 alpha(const struct htcp *ca, u64 now)
{
	u64 age_us = since(now, ca->congestion_us);
	u64 factor = ONE;

	if (age_us > LOW_SPEED_US) {
		u64 ms = clamp_u64((age_us - LOW_SPEED_US) / 1000, 0, AGE_MAX_MS);

		/* 128 (10 s + s^2 / 4) with s in ms. */
		factor += ms * 1280 / 1000 + ms * ms * 32 / 1000000;
	}
	if (ca->rtt_min_us) {
		factor *= clamp_u64(ca->rtt_min_us, RTT_SCALE_LOW_US, RTT_SCALE_HIGH_US);
		factor = clamp_u64(factor / RTT_REFERENCE_US, ONE, ~0ULL);
	}
	return 2 * factor * (ONE - ca->beta) / ONE;
}

/* Whether throughput before this loss is within a fifth of that before the last one. */
INLINE bool throughput_holds(u64 rate, u64 before)
{
	return before && 5 * rate >= 4 * before && 5 * rate <= 6 * before;
}

INLINE u32 backoff(struct htcp *ca)
{
	u64 beta = BETA_LOW;

	if (throughput_holds(ca->rate_max, ca->rate_max_before) && ca->rtt_min_us && ca->rtt_max_us)
		beta = clamp_u64((u64)ca->rtt_min_us * ONE / ca->rtt_max_us, BETA_LOW, BETA_HIGH);
	return beta;
}

SECTION("struct_ops/init")
int htcp_init(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = own(tp);
	u64 now = now_us();

	/* Another congestion control may have left its own state here. */
	ca->congestion_us = now;
	ca->undo_congestion_us = 0;
	ca->window_began_us = now;
	ca->window_segments = 0;
	ca->rtt_min_us = 0;
	ca->rtt_max_us = 0;
	ca->undo_rtt_max_us = 0;
	ca->rate = 0;
	ca->rate_max = 0;
	ca->rate_max_before = 0;
	ca->undo_rate_max_before = 0;
	ca->credit = 0;
	ca->beta = BETA_LOW;
	ca->state = STATE_OPEN;
	return 0;
}

INLINE void see_round_trip(struct htcp *ca, u32 rtt_us)
{
	if (!ca->rtt_min_us || rtt_us < ca->rtt_min_us)
		ca->rtt_min_us = rtt_us;
	if (ca->state != STATE_OPEN)
		return;
	if (ca->rtt_max_us < ca->rtt_min_us)
		ca->rtt_max_us = ca->rtt_min_us;
	if (rtt_us > ca->rtt_max_us && rtt_us <= ca->rtt_max_us + RTT_STRAY_US)
		ca->rtt_max_us = rtt_us;
}

INLINE void see_throughput(struct htcp *ca, u32 acked, u32 cwnd, u64 now)
{
	u64 elapsed = since(now, ca->window_began_us);
	u64 rate;

	if (ca->state > STATE_DISORDER) {
		ca->window_segments = 0;
		ca->window_began_us = now;
		return;
	}
	ca->window_segments += acked;
	/* A whole window, and at least a round trip: anything shorter counts bursts. */
	if (!ca->rtt_min_us || elapsed < ca->rtt_min_us || ca->window_segments + 1 < cwnd)
		return;
	rate = ca->window_segments * SECOND_US / elapsed;
	if (since(now, ca->congestion_us) <= SETTLING_ROUND_TRIPS * (u64)ca->rtt_min_us) {
		ca->rate = rate;
		ca->rate_max = rate;
	} else {
		ca->rate = (3 * (u64)ca->rate + rate) / 4;
		ca->rate_max = max_u32(ca->rate_max, ca->rate);
	}
	ca->window_segments = 0;
	ca->window_began_us = now;
}

SECTION("struct_ops/pkts_acked")
int htcp_pkts_acked(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	const struct ack_sample *sample = (const struct ack_sample *)arguments[1];
	struct htcp *ca = own(tp);
	s32 rtt_us = sample->rtt_us;

	if (rtt_us > 0)
		see_round_trip(ca, rtt_us);
	see_throughput(ca, sample->pkts_acked, tp->snd_cwnd, now_us());
	return 0;
}

/* Whether the window is what holds the sender back: only then may it grow. */
INLINE bool window_binds(struct tcp_sock *tp, u32 cwnd)
{
	if (READ_BITS(tp, is_cwnd_limited))
		return 1;
	return cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out;
}

SECTION("struct_ops/cong_avoid")
int htcp_cong_avoid(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	u32 acked = arguments[2];
	struct htcp *ca = own(tp);
	u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;
	u64 credit, price, grown;

	if (!window_binds(tp, cwnd))
		return 0;
	if (cwnd < ssthresh) {
		u32 step = min_u32(acked, ssthresh - cwnd);

		cwnd += step;
		acked -= step;
	}
	if (acked && cwnd) {
		price = (u64)cwnd * ONE;
		credit = ca->credit + alpha(ca, now_us()) * acked;
		grown = credit / price;
		/* However old the last loss: never faster than slow start. */
		if (grown > acked) {
			grown = acked;
			credit = grown * price;
		}
		ca->credit = credit - grown * price;
		cwnd += grown;
	}
	tp->snd_cwnd = min_u32(cwnd, tp->snd_cwnd_clamp);
	return 0;
}

SECTION("struct_ops/ssthresh")
int htcp_ssthresh(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = own(tp);

	ca->undo_rtt_max_us = ca->rtt_max_us;
	ca->undo_rate_max_before = ca->rate_max_before;
	ca->undo_congestion_us = ca->congestion_us;
	ca->beta = backoff(ca);
	ca->rate_max_before = ca->rate_max;
	/* The highest round-trip time fades, so that a change of route is forgotten. */
	if (ca->rtt_min_us && ca->rtt_max_us > ca->rtt_min_us)
		ca->rtt_max_us = ca->rtt_min_us +
				 (u64)(ca->rtt_max_us - ca->rtt_min_us) * 95 / 100;
	return max_u32((u64)tp->snd_cwnd * ca->beta / ONE, 2);
}

SECTION("struct_ops/set_state")
int htcp_set_state(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	u8 state = arguments[1];
	struct htcp *ca = own(tp);

	/* A congestion event lasts until its losses are repaired, and nothing grows meanwhile. */
	if (state > STATE_DISORDER) {
		ca->congestion_us = now_us();
		ca->credit = 0;
	} else if (state == STATE_OPEN && ca->undo_congestion_us) {
		ca->congestion_us = now_us();
		ca->undo_congestion_us = 0;
	}
	ca->state = state;
	return 0;
}

SECTION("struct_ops/undo_cwnd")
int htcp_undo_cwnd(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = own(tp);

	/* Nothing was lost, so nothing has happened. */
	if (ca->undo_congestion_us) {
		ca->congestion_us = ca->undo_congestion_us;
		ca->rtt_max_us = ca->undo_rtt_max_us;
		ca->rate_max_before = ca->undo_rate_max_before;
		ca->undo_congestion_us = 0;
	}
	return max_u32(tp->snd_cwnd, tp->prior_cwnd);
}

const char terms[] SECTION("license") = "Dual MIT/GPL";
