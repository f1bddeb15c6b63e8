/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device as its network interface (main.c) and its netmap device (netmap.c)
 * share it: the rings, and how either of them moves a cursor, rings and sleeps.
 */
#ifndef PTNET_PORT_H
#define PTNET_PORT_H

#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "ptnet.h"

struct ptnet_netmap;

struct ptnet_ring {
	struct ptnet_user *user;
	struct ptnet_owner *owner;
	struct ptnet_slot *slots;
	u32 count;
	/* The slot that comes next, this side's cursor. */
	u32 position;
	/* What the sleep flag was set to last: a new number each time. */
	u32 asked;
	/* The switch's number that was answered last. */
	u32 answered;
	u32 vector;
	u32 direction;
};

struct ptnet_queue_counters {
	u64 tx_packets;
	u64 tx_bytes;
	u64 tx_kicks;
	u64 tx_stops;
	u64 tx_irqs;
	u64 rx_packets;
	u64 rx_bytes;
	u64 rx_kicks;
	u64 rx_irqs;
	u64 rx_no_memory;
	u64 rx_bad_frames;
};

/* A pair of rings. The switch decides by a packet's flow in which of them it
 * is received.
 */
struct ptnet_queue {
	struct ptnet *pt;
	u32 number;
	struct ptnet_ring tx;
	struct ptnet_ring rx;
	struct napi_struct napi;
	struct ptnet_queue_counters counters;
	char irq_names[2][16];
} ____cacheline_aligned_in_smp;

struct ptnet {
	struct net_device *netdev;
	struct pci_dev *pdev;
	void __iomem *registers;
	void *memory;
	struct ptnet_guest *guest;
	u8 *buffers;
	u32 buffer_bytes;
	u32 buffers_count;
	u32 header_bytes;
	u32 tx_slots_most;
	struct work_struct link_work;
	struct delayed_work ask_work;
	/* The reset that this driver asked for last. */
	u32 reset;
	/* Whether the rings are of that reset; changed with the device quiet. */
	bool has_rings;
	/* Between open and stop. */
	bool is_open;
	/* The program that has the rings instead of the interface; changed with the RTNL held. */
	struct ptnet_netmap __rcu *netmap;
	u64 resets;
	u32 queues_count;
	struct ptnet_queue queues[PTNET_QUEUES_MAX];
	/* Behind the last queue that there is. */
	struct ptnet_queue *end;
};

/* A switch that came back knows nothing of earlier rings of the bell. */
static inline void ptnet_forget_answers(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++) {
		queue->tx.answered = 0;
		queue->rx.answered = 0;
	}
}

/* The interface stops using the rings; with the RTNL held. In main.c, as what follows. */
void ptnet_quiesce(struct ptnet *pt);
/* Gives up the rings; ptnet_follow() asks for new ones. */
void ptnet_new_reset(struct ptnet *pt);
/* Brings rings and carrier to what the host says; with the RTNL held. */
void ptnet_follow(struct ptnet *pt);
/* The device of an interface; NULL if it is another driver's. */
struct ptnet *ptnet_of(struct net_device *netdev);

static inline u32 ptnet_load(const __le32 *word)
{
	return le32_to_cpu(READ_ONCE(*word));
}

static inline void ptnet_store(__le32 *word, u32 value)
{
	WRITE_ONCE(*word, cpu_to_le32(value));
}

static inline void ptnet_kick(struct ptnet *pt, u32 vector)
{
	/* Orders the memory before it: see writel(). */
	writel(vector, pt->registers + IVSHMEM_DOORBELL);
}

/* Slots from the position on that are the driver's. */
static inline u32 ptnet_available(struct ptnet_ring *ring)
{
	/* The slots before it are read after it: the switch's release. */
	u32 tail = le32_to_cpu(virt_load_acquire(&ring->owner->hwtail));

	if (unlikely(tail >= ring->count))
		return 0;
	return tail >= ring->position ? tail - ring->position :
					tail + ring->count - ring->position;
}

static inline u32 ptnet_index(struct ptnet_ring *ring, u32 offset)
{
	u32 index = ring->position + offset;

	return index >= ring->count ? index - ring->count : index;
}

/* Hands over the next slots. */
static inline void ptnet_advance(struct ptnet_ring *ring, u32 slots)
{
	ring->position = ptnet_index(ring, slots);
	ptnet_store(&ring->user->cur, ring->position);
	/* The slots before it are written before it: the switch's acquire. */
	virt_store_release(&ring->user->head, cpu_to_le32(ring->position));
}

/* Whether the switch sleeps and has not been rung for that yet; to be asked
 * after ptnet_advance().
 */
static inline bool ptnet_must_kick(struct ptnet_ring *ring)
{
	u32 asked;

	/* The cursor must be seen before the flag is looked at. */
	virt_mb();
	asked = ptnet_load(&ring->owner->sleeps);
	if (!asked || (asked == ring->answered && asked != 1))
		return false;
	ring->answered = asked;
	return true;
}

/* Asks for an interrupt; false when there is something to do already. */
static inline bool ptnet_arm(struct ptnet_ring *ring, u32 enough)
{
	ring->asked = max(ring->asked + 1, 2U);
	ptnet_store(&ring->user->sleeps, ring->asked);
	/* The flag must be seen before the other's cursor is looked at. */
	virt_mb();
	return ptnet_available(ring) < enough;
}

static inline void ptnet_disarm(struct ptnet_ring *ring)
{
	ptnet_store(&ring->user->sleeps, 0);
}

static inline u8 *ptnet_buffer(struct ptnet *pt, u32 buffer)
{
	if (unlikely(buffer < PTNET_FIRST_BUFFER || buffer >= pt->buffers_count))
		return NULL;
	return pt->buffers + (size_t)buffer * pt->buffer_bytes;
}

#endif
