/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device as its network interface (netdev.c, queue.c) and its netmap device
 * (program.h) share it: the rings, and how either of them moves a
 * cursor, rings and sleeps.
 */
#ifndef PTNET_PORT_H
#define PTNET_PORT_H

#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "ptnet.h"

#define PTNET_NAME	"ptnet"

struct ptnet_netmap;
struct ptnet_view;

struct ptnet_ring {
	struct ptnet_user *user;
	struct ptnet_owner *owner;
	struct ptnet_slot *slots;
	u32 count;
	/* The slot that comes next, this side's cursor. */
	u32 position;
	/* Slots from the position on that are known to be this side's; there may be more. */
	u32 room;
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
	/* The program that has the rings instead of the interface; changed with the RTNL held. */
	struct ptnet_netmap __rcu *netmap;
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
	/* What its programs map; NULL without one. Changed with the RTNL held. */
	struct ptnet_view *view;
	u64 resets;
	u32 queues_count;
	/* Queues that transmit, and NAPI contexts that receive from all rings: as many or fewer.
	 * Changed with the device quiet.
	 */
	u32 channels;
	struct ptnet_queue queues[PTNET_QUEUES_MAX];
	/* Behind the last queue that there is. */
	struct ptnet_queue *end;
};

/* The queue whose NAPI serves these rings. */
static inline struct ptnet_queue *ptnet_channel(struct ptnet_queue *queue)
{
	return &queue->pt->queues[queue->number % queue->pt->channels];
}

/* A switch that came back knows nothing of earlier rings of the bell. */
static inline void ptnet_forget_answers(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++) {
		queue->tx.answered = 0;
		queue->rx.answered = 0;
	}
}

/* In queue.c. */

netdev_tx_t ptnet_xmit(struct sk_buff *skb, struct net_device *netdev);
int ptnet_poll(struct napi_struct *napi, int budget);
irqreturn_t ptnet_tx_irq(int irq, void *data);
irqreturn_t ptnet_rx_irq(int irq, void *data);

/* In netdev.c. */

irqreturn_t ptnet_control_irq(int irq, void *data);
void ptnet_link_work(struct work_struct *work);
void ptnet_ask_work(struct work_struct *work);
/* What the interface can do. */
void ptnet_describe(struct ptnet *pt);
/* Processors for the queues; none any more. */
void ptnet_spread(struct ptnet *pt);
void ptnet_gather(struct ptnet *pt);
/* The interface stops using the rings; with the RTNL held, as what follows. */
void ptnet_quiesce(struct ptnet *pt);
/* Gives up the rings; ptnet_follow() asks for new ones. */
void ptnet_new_reset(struct ptnet *pt);
/* Brings rings and carrier to what the host says. */
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

/* Hands over the slots before the position. */
static inline void ptnet_publish(struct ptnet_ring *ring)
{
	ptnet_store(&ring->user->cur, ring->position);
	/* The slots before it are written before it: the switch's acquire. */
	virt_store_release(&ring->user->head, cpu_to_le32(ring->position));
}

/* Hands over the next slots. */
static inline void ptnet_advance(struct ptnet_ring *ring, u32 slots)
{
	ring->position = ptnet_index(ring, slots);
	ptnet_publish(ring);
}

/* Whether the switch sleeps and has not been rung for that yet; to be asked
 * after ptnet_publish().
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
