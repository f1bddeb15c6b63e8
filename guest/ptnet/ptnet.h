/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the memory of a port of the ClearStream packet switch looks like to a
 * guest; docs/attachment.md has the same with explanations. Everything is
 * little-endian.
 */
#ifndef PTNET_H
#define PTNET_H

#include <linux/types.h>

/* "CSRINGS1" and "CSPTNET1". */
#define PTNET_RINGS_MAGIC	0x3153474e49525343ULL
#define PTNET_RINGS_VERSION	1
#define PTNET_GUEST_MAGIC	0x3154454e54505343ULL
/* Version 1 has one pair of rings, version 2 says how many. */
#define PTNET_GUEST_VERSION	1
#define PTNET_GUEST_VERSION_QUEUES 2
#define PTNET_QUEUES_MAX	8

#define PTNET_GUEST_OFFSET	2048
#define PTNET_GUEST_BYTES	128
#define PTNET_RINGS_MAX		64
#define PTNET_USER_CSB_OFFSET	4096
#define PTNET_OWNER_CSB_OFFSET	8192
#define PTNET_RING_HEADER_BYTES	256
#define PTNET_FIRST_BUFFER	2

/* Page 0: what lies where. */
struct ptnet_layout {
	__le64 magic;
	__le32 version;
	__le32 rings;
	__le32 buffers_offset;
	__le32 buffer_bytes;
	__le32 buffers;
	__le32 reserved;
	struct {
		__le32 direction;
		__le32 slots;
		__le32 offset;
		__le32 reserved;
	} ring[PTNET_RINGS_MAX];
};

/* In page 0 too, for each seat: what the host says to the guest, and in a line
 * of its own what the guest says. A memory that several guests share has seats,
 * each with a ring to transmit and one to receive: first all of one kind, then
 * all of the other.
 */
struct ptnet_guest {
	__le64 magic;
	__le32 version;
	__le32 header_bytes;
	__le32 mtu_max;
	u8 mac[6];
	u8 reserved[2];
	/* The reset that the rings have been made anew for; 0: none. */
	__le32 generation;
	/* Whether a switch serves the port. */
	__le32 link;
	/* Pairs of rings, in version 2: first all to transmit, then all to receive. */
	__le32 queues;
	u8 pad[24];
	/* The reset that the driver asks for; 0: no driver is there. */
	__le32 reset;
};

/* One ring's entries: of the user, which is this driver, and of the owner,
 * which is the switch.
 */
struct ptnet_user {
	__le32 head;
	__le32 cur;
	__le32 sleeps;
	u8 pad[52];
};

struct ptnet_owner {
	__le32 hwcur;
	__le32 hwtail;
	__le32 sleeps;
	u8 pad[52];
};

struct ptnet_slot {
	__le32 buffer;
	__le16 length;
	__le16 flags;
	__le64 unused;
};

#define PTNET_MORE_FRAGMENTS	0x20

/* Directions of rings. */
enum {
	PTNET_TX,
	PTNET_RX,
};

/* Interrupts of the device, and doorbells to the host: the same numbers. Each
 * pair of rings has two, one for each direction; the control's comes last.
 */
#define PTNET_VECTOR(queue, direction)	(2 * (queue) + (direction))
#define PTNET_VECTOR_CONTROL(queues)	(2 * (queues))
#define PTNET_VECTORS(queues)		(2 * (queues) + 1)

/* Registers of QEMU's ivshmem-doorbell, in BAR 0. The host is peer 0, the guest
 * at the first seat peer 1.
 */
#define IVSHMEM_POSITION	8
#define IVSHMEM_DOORBELL	12

#endif
