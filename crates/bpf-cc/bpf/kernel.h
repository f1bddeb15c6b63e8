/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * What the program needs to know of the kernel: a few fields by name. Where they lie is found out
 * when the program is loaded, from the running kernel's own type information (CO-RE), so the order
 * and sizes written here mean nothing.
 */
#ifndef CLEARSTREAM_KERNEL_H
#define CLEARSTREAM_KERNEL_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef _Bool bool;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define KERNEL_TYPE __attribute__((preserve_access_index))

/* Room for a congestion control's own state in every connection: ICSK_CA_PRIV_SIZE, Linux 5.4. */
#define PRIVATE_BYTES 104

/* enum tcp_ca_state */
enum { STATE_OPEN = 0, STATE_DISORDER = 1, STATE_CWR = 2, STATE_RECOVERY = 3, STATE_LOSS = 4 };

struct inet_connection_sock {
	u64 icsk_ca_priv[PRIVATE_BYTES / sizeof(u64)];
} KERNEL_TYPE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_ssthresh;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 prior_cwnd;
	u32 max_packets_out;
	u8 is_cwnd_limited : 1;
} KERNEL_TYPE;

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
} KERNEL_TYPE;

static u64 (*const ktime_get_ns)(void) = (void *)5;

/* A bit field, wherever in a byte, a word or a double word this kernel has put it. */
enum { FIELD_BYTE_OFFSET = 0, FIELD_BYTE_SIZE = 1, FIELD_LSHIFT_U64 = 4, FIELD_RSHIFT_U64 = 5 };

#define READ_BITS(object, field)                                                                  \
	({                                                                                         \
		const void *at = (const void *)(object) +                                          \
				 __builtin_preserve_field_info((object)->field, FIELD_BYTE_OFFSET); \
		u64 bits = 0;                                                                      \
		switch (__builtin_preserve_field_info((object)->field, FIELD_BYTE_SIZE)) {         \
		case 1: bits = *(const u8 *)at; break;                                             \
		case 2: bits = *(const unsigned short *)at; break;                                 \
		case 4: bits = *(const u32 *)at; break;                                            \
		case 8: bits = *(const u64 *)at; break;                                            \
		}                                                                                  \
		bits <<= __builtin_preserve_field_info((object)->field, FIELD_LSHIFT_U64);         \
		bits >> __builtin_preserve_field_info((object)->field, FIELD_RSHIFT_U64);          \
	})

INLINE u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

INLINE u32 max_u32(u32 a, u32 b)
{
	return a > b ? a : b;
}

INLINE u64 clamp_u64(u64 value, u64 low, u64 high)
{
	return value < low ? low : value > high ? high : value;
}

#endif
