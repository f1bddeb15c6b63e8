// SPDX-License-Identifier: GPL-2.0
/*
 * A pair of rings as a queue of the network interface: packets to transmit are
 * copied into slots, received ones out of them, by NAPI.
 */
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/skbuff.h>
#include <linux/virtio_net.h>

#include "port.h"
#include "program.h"

/* Received frames up to this length are copied into the linear part. */
#define PTNET_COPY_BYTES	1600
/* Of longer ones so much: the protocol headers. */
#define PTNET_PULL_BYTES	128

/* Transmission. */

static bool ptnet_tx_room(struct ptnet_queue *queue)
{
	u32 most = queue->pt->tx_slots_most;

	/* The switch's cursor is in a cache line that the switch writes. */
	if (queue->tx.room < most)
		queue->tx.room = ptnet_available(&queue->tx);
	return queue->tx.room >= most;
}

static struct netdev_queue *ptnet_txq(struct ptnet_queue *queue)
{
	return netdev_get_tx_queue(queue->pt->netdev, queue->number);
}

static void ptnet_tx_wake(struct ptnet_queue *queue)
{
	struct netdev_queue *txq = ptnet_txq(queue);
	struct ptnet *pt = queue->pt;

	__netif_tx_lock(txq, smp_processor_id());
	if (pt->has_rings && netif_tx_queue_stopped(txq) &&
	    netif_carrier_ok(pt->netdev)) {
		if (ptnet_tx_room(queue) ||
		    !ptnet_arm(&queue->tx, pt->tx_slots_most)) {
			ptnet_disarm(&queue->tx);
			netif_tx_wake_queue(txq);
		}
	}
	__netif_tx_unlock(txq);
}

/* Stops the queue until there is room; false when there is after all. */
static bool ptnet_tx_stop(struct ptnet_queue *queue, struct netdev_queue *txq)
{
	/* The switch makes room only by what it has been handed. */
	ptnet_publish(&queue->tx);
	netif_tx_stop_queue(txq);
	if (ptnet_arm(&queue->tx, queue->pt->tx_slots_most)) {
		queue->counters.tx_stops++;
		return true;
	}
	ptnet_disarm(&queue->tx);
	netif_tx_start_queue(txq);
	return false;
}

/* Copies the packet and the header before it into slots; how many that takes.
 * The caller knows that there are enough.
 */
static u32 ptnet_tx_copy(struct ptnet_queue *queue, struct sk_buff *skb, const void *header)
{
	struct ptnet_ring *ring = &queue->tx;
	struct ptnet *pt = queue->pt;
	u32 before = pt->header_bytes;
	u32 linear = skb_headlen(skb);
	u32 offset = 0;
	u32 slots = 0;

	while (offset < skb->len) {
		struct ptnet_slot *slot = &ring->slots[ptnet_index(ring, slots)];
		u8 *to = ptnet_buffer(pt, le32_to_cpu(READ_ONCE(slot->buffer)));
		u32 bytes = min(skb->len - offset, pt->buffer_bytes - before);
		bool more = offset + bytes < skb->len;

		if (unlikely(!to))
			return 0;
		if (before)
			memcpy(to, header, before);
		if (offset + bytes <= linear)
			memcpy(to + before, skb->data + offset, bytes);
		else if (unlikely(skb_copy_bits(skb, offset, to + before, bytes)))
			return 0;
		WRITE_ONCE(slot->length, cpu_to_le16(before + bytes));
		WRITE_ONCE(slot->flags, cpu_to_le16(more ? PTNET_MORE_FRAGMENTS : 0));
		offset += bytes;
		before = 0;
		slots++;
	}
	return slots;
}

netdev_tx_t ptnet_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct ptnet *pt = netdev_priv(netdev);
	struct ptnet_queue *queue = &pt->queues[skb_get_queue_mapping(skb)];
	struct netdev_queue *txq = ptnet_txq(queue);
	struct virtio_net_hdr header = {};
	bool more = netdev_xmit_more();
	u32 bytes = skb->len;
	u32 slots;

	if (unlikely(!pt->has_rings))
		goto drop;
	if (pt->header_bytes &&
	    virtio_net_hdr_from_skb(skb, &header, true, false, 0))
		goto drop;
	/* It is stopped in time below, but may be full when the link comes. */
	if (unlikely(!ptnet_tx_room(queue)) && ptnet_tx_stop(queue, txq))
		return NETDEV_TX_BUSY;
	slots = ptnet_tx_copy(queue, skb, &header);
	if (unlikely(!slots))
		goto drop;
	queue->tx.position = ptnet_index(&queue->tx, slots);
	queue->tx.room -= slots;
	skb_tx_timestamp(skb);
	dev_consume_skb_any(skb);
	dev_sw_netstats_tx_add(netdev, 1, bytes);
	queue->counters.tx_packets++;
	queue->counters.tx_bytes += bytes;

	if (!ptnet_tx_room(queue))
		ptnet_tx_stop(queue, txq);
	goto kick;

drop:
	dev_core_stats_tx_dropped_inc(netdev);
	dev_kfree_skb_any(skb);
kick:
	/* Packets of one batch are handed over together, also those before one that was dropped. */
	if ((!more || netif_xmit_stopped(txq)) && pt->has_rings) {
		ptnet_publish(&queue->tx);
		if (ptnet_must_kick(&queue->tx)) {
			queue->counters.tx_kicks++;
			ptnet_kick(pt, queue->tx.vector);
		}
	}
	return NETDEV_TX_OK;
}

/* Reception. */

/* The slots of the next packet, as far as they have come; 0 when it is not
 * whole.
 */
static u32 ptnet_rx_packet(struct ptnet_ring *ring, u32 available, u32 *bytes)
{
	u32 slots;

	*bytes = 0;
	for (slots = 0; slots < available;) {
		struct ptnet_slot *slot = &ring->slots[ptnet_index(ring, slots)];

		*bytes += le16_to_cpu(READ_ONCE(slot->length));
		slots++;
		if (!(le16_to_cpu(READ_ONCE(slot->flags)) & PTNET_MORE_FRAGMENTS))
			return slots;
	}
	return 0;
}

/* Appends a part of a frame, in pages that are filled one after the other. */
static bool ptnet_rx_append(struct sk_buff *skb, const u8 *from, u32 bytes)
{
	struct skb_shared_info *shared = skb_shinfo(skb);

	while (bytes) {
		u32 last = shared->nr_frags - 1;
		u32 used = PAGE_SIZE;
		u32 part;

		if (shared->nr_frags)
			used = skb_frag_size(&shared->frags[last]);
		if (used == PAGE_SIZE) {
			struct page *page;

			if (shared->nr_frags >= MAX_SKB_FRAGS)
				return false;
			page = dev_alloc_page();
			if (unlikely(!page))
				return false;
			skb_add_rx_frag(skb, ++last, page, 0, 0, PAGE_SIZE);
			used = 0;
		}
		part = min_t(u32, bytes, PAGE_SIZE - used);
		memcpy(skb_frag_address(&shared->frags[last]) + used, from, part);
		skb_coalesce_rx_frag(skb, last, part, 0);
		from += part;
		bytes -= part;
	}
	return true;
}

static struct sk_buff *ptnet_rx_copy(struct ptnet_queue *queue, struct napi_struct *napi,
				     u32 slots, u32 bytes)
{
	u32 pull = bytes <= PTNET_COPY_BYTES ? bytes : PTNET_PULL_BYTES;
	struct virtio_net_hdr header = {};
	struct ptnet *pt = queue->pt;
	u32 skip = pt->header_bytes;
	struct sk_buff *skb;
	u32 i;

	skb = napi_alloc_skb(napi, pull);
	if (unlikely(!skb)) {
		queue->counters.rx_no_memory++;
		return NULL;
	}
	for (i = 0; i < slots; i++) {
		struct ptnet_slot *slot = &queue->rx.slots[ptnet_index(&queue->rx, i)];
		const u8 *from = ptnet_buffer(pt, le32_to_cpu(READ_ONCE(slot->buffer)));
		u32 length = le16_to_cpu(READ_ONCE(slot->length));
		u32 linear;

		if (unlikely(!from || length > pt->buffer_bytes || length < skip))
			goto bad;
		if (skip)
			memcpy(&header, from, skip);
		from += skip;
		length -= skip;
		skip = 0;
		linear = min(length, pull);
		/* Pages follow when the linear part is full; from then on nothing
		 * may be put there.
		 */
		if (linear)
			skb_put_data(skb, from, linear);
		pull -= linear;
		if (!ptnet_rx_append(skb, from + linear, length - linear))
			goto bad;
	}
	if (unlikely(skb->len < ETH_HLEN || !pskb_may_pull(skb, ETH_HLEN)))
		goto bad;
	if (pt->header_bytes) {
		if (header.flags & VIRTIO_NET_HDR_F_DATA_VALID)
			skb->ip_summed = CHECKSUM_UNNECESSARY;
		if (virtio_net_hdr_to_skb(skb, &header, true))
			goto bad;
	}
	skb_record_rx_queue(skb, ptnet_channel(queue)->number);
	skb->protocol = eth_type_trans(skb, pt->netdev);
	return skb;

bad:
	queue->counters.rx_bad_frames++;
	dev_kfree_skb_any(skb);
	return NULL;
}

static int ptnet_rx(struct ptnet_queue *queue, struct napi_struct *napi, int budget)
{
	struct net_device *netdev = queue->pt->netdev;
	u32 available = ptnet_available(&queue->rx);
	int done = 0;
	u32 slots, bytes;

	while (done < budget && available) {
		struct sk_buff *skb;

		slots = ptnet_rx_packet(&queue->rx, available, &bytes);
		if (!slots)
			break;
		skb = ptnet_rx_copy(queue, napi, slots, bytes);
		available -= slots;
		queue->rx.position = ptnet_index(&queue->rx, slots);
		done++;
		if (skb) {
			dev_sw_netstats_rx_add(netdev, skb->len);
			queue->counters.rx_packets++;
			queue->counters.rx_bytes += skb->len;
			napi_gro_receive(napi, skb);
		} else {
			dev_core_stats_rx_dropped_inc(netdev);
		}
	}
	if (done) {
		ptnet_advance(&queue->rx, 0);
		if (ptnet_must_kick(&queue->rx)) {
			queue->counters.rx_kicks++;
			ptnet_kick(queue->pt, queue->rx.vector);
		}
	}
	return done;
}

/* Asks for interrupts of all receive rings of a channel; false when there is something in one of
 * them already.
 */
static bool ptnet_rx_arm(struct ptnet_queue *queue)
{
	struct ptnet *pt = queue->pt;
	bool is_empty = true;

	for (; queue < pt->end; queue += pt->channels)
		is_empty &= ptnet_arm(&queue->rx, 1);
	return is_empty;
}

static void ptnet_rx_disarm(struct ptnet_queue *queue)
{
	struct ptnet *pt = queue->pt;

	for (; queue < pt->end; queue += pt->channels)
		ptnet_disarm(&queue->rx);
}

int ptnet_poll(struct napi_struct *napi, int budget)
{
	struct ptnet_queue *channel = container_of(napi, struct ptnet_queue, napi);
	struct ptnet *pt = channel->pt;
	/* Each of the channel's rings has its turn. */
	int share = DIV_ROUND_UP(budget, (int)DIV_ROUND_UP(pt->queues_count, pt->channels));
	struct ptnet_queue *queue;
	int done = 0;
	int before;

	ptnet_rx_disarm(channel);
	if (netif_tx_queue_stopped(ptnet_txq(channel)))
		ptnet_tx_wake(channel);
	do {
		before = done;
		for (queue = channel; queue < pt->end; queue += pt->channels)
			done += ptnet_rx(queue, napi, min(share, budget - done));
	} while (share < budget && done < budget && done > before);
	if (done < budget && napi_complete_done(napi, done) && !ptnet_rx_arm(channel)) {
		ptnet_rx_disarm(channel);
		napi_schedule(napi);
	}
	return done;
}

irqreturn_t ptnet_tx_irq(int irq, void *data)
{
	struct ptnet_queue *queue = data;

	queue->counters.tx_irqs++;
	if (!ptnet_netmap_wake(queue))
		napi_schedule_irqoff(&ptnet_channel(queue)->napi);
	return IRQ_HANDLED;
}

irqreturn_t ptnet_rx_irq(int irq, void *data)
{
	struct ptnet_queue *queue = data;

	queue->counters.rx_irqs++;
	if (!ptnet_netmap_wake(queue))
		napi_schedule_irqoff(&ptnet_channel(queue)->napi);
	return IRQ_HANDLED;
}
