// SPDX-License-Identifier: GPL-2.0
/*
 * Network driver of a guest whose device is a port of the ClearStream packet
 * switch: QEMU's ivshmem-doorbell, whose memory is the port's.
 *
 * The driver is the user of one or more pairs of rings, as any other client of
 * the switch is: of each it holds the slots from its own cursor (head) up to
 * the switch's (hwtail), fills or empties them and moves its cursor. Frames are
 * copied between socket buffers and the port's buffers; the switch copies them
 * once more, to the buffers of their destination. Between guests that share one
 * memory (a trust group) it exchanges buffers instead: a slot may come back with
 * another. Each pair of rings is a queue with interrupts and NAPI of its own.
 * The switch puts all packets of a flow into the same receive ring.
 *
 * Either side sleeps after it has said so in its half of the CSB, executed a
 * full barrier and looked at the other's cursor once more. Either side that
 * has moved its cursor executes a full barrier and then looks whether the
 * other one sleeps. Without both barriers a wake-up could be lost.
 *
 * The host makes the rings anew at the driver's wish (reset): the driver
 * writes a new number and rings, and the rings are its own once the host has
 * answered with the same number (generation). A switch that is started anew
 * finds the rings as they are; meanwhile there is no carrier.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/random.h>
#include <linux/skbuff.h>
#include <linux/virtio_net.h>
#include <linux/workqueue.h>

#include "port.h"
#include "netmap.h"

#define PTNET_NAME	"ptnet"
#define IVSHMEM_DEVICE	0x1110

/* Received frames up to this length are copied into the linear part. */
#define PTNET_COPY_BYTES	1600
/* Of longer ones so much: the protocol headers. */
#define PTNET_PULL_BYTES	128
/* How often a host that has not answered is asked again. */
#define PTNET_ASK_AGAIN		HZ

/* Of each queue as tx_queue_0_packets, and the sum of all queues as tx_packets. */
static const char * const ptnet_counter_names[] = {
	"tx_packets", "tx_bytes", "tx_kicks", "tx_stops", "tx_irqs", "rx_packets", "rx_bytes",
	"rx_kicks", "rx_irqs", "rx_no_memory", "rx_bad_frames",
};

#define PTNET_COUNTERS	ARRAY_SIZE(ptnet_counter_names)

static_assert(sizeof(struct ptnet_queue_counters) == PTNET_COUNTERS * sizeof(u64));
static_assert(offsetof(struct ptnet_guest, reset) == 64);
static_assert(sizeof(struct ptnet_guest) <= PTNET_GUEST_BYTES);
static_assert(sizeof(struct ptnet_layout) <= PTNET_GUEST_OFFSET);

/* Transmission. */

static bool ptnet_tx_room(struct ptnet_queue *queue)
{
	return ptnet_available(&queue->tx) >= queue->pt->tx_slots_most;
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
		if (unlikely(skb_copy_bits(skb, offset, to + before, bytes)))
			return 0;
		WRITE_ONCE(slot->length, cpu_to_le16(before + bytes));
		WRITE_ONCE(slot->flags, cpu_to_le16(more ? PTNET_MORE_FRAGMENTS : 0));
		offset += bytes;
		before = 0;
		slots++;
	}
	return slots;
}

static netdev_tx_t ptnet_xmit(struct sk_buff *skb, struct net_device *netdev)
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
	ptnet_advance(&queue->tx, slots);
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
	/* Also for packets before one that was dropped. */
	if ((!more || netif_tx_queue_stopped(txq)) && pt->has_rings &&
	    ptnet_must_kick(&queue->tx)) {
		queue->counters.tx_kicks++;
		ptnet_kick(pt, queue->tx.vector);
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

static struct sk_buff *ptnet_rx_copy(struct ptnet_queue *queue, u32 slots, u32 bytes)
{
	u32 pull = bytes <= PTNET_COPY_BYTES ? bytes : PTNET_PULL_BYTES;
	struct virtio_net_hdr header = {};
	struct ptnet *pt = queue->pt;
	u32 skip = pt->header_bytes;
	struct sk_buff *skb;
	u32 i;

	skb = napi_alloc_skb(&queue->napi, pull);
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
	skb_record_rx_queue(skb, queue->number);
	skb->protocol = eth_type_trans(skb, pt->netdev);
	return skb;

bad:
	queue->counters.rx_bad_frames++;
	dev_kfree_skb_any(skb);
	return NULL;
}

static int ptnet_rx(struct ptnet_queue *queue, int budget)
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
		skb = ptnet_rx_copy(queue, slots, bytes);
		available -= slots;
		queue->rx.position = ptnet_index(&queue->rx, slots);
		done++;
		if (skb) {
			dev_sw_netstats_rx_add(netdev, skb->len);
			queue->counters.rx_packets++;
			queue->counters.rx_bytes += skb->len;
			napi_gro_receive(&queue->napi, skb);
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

static int ptnet_poll(struct napi_struct *napi, int budget)
{
	struct ptnet_queue *queue = container_of(napi, struct ptnet_queue, napi);
	int done;

	ptnet_disarm(&queue->rx);
	if (netif_tx_queue_stopped(ptnet_txq(queue)))
		ptnet_tx_wake(queue);
	done = ptnet_rx(queue, budget);
	if (done < budget && napi_complete_done(napi, done) &&
	    !ptnet_arm(&queue->rx, 1)) {
		ptnet_disarm(&queue->rx);
		napi_schedule(napi);
	}
	return done;
}

static irqreturn_t ptnet_tx_irq(int irq, void *data)
{
	struct ptnet_queue *queue = data;

	queue->counters.tx_irqs++;
	if (!ptnet_netmap_wake(queue->pt))
		napi_schedule_irqoff(&queue->napi);
	return IRQ_HANDLED;
}

static irqreturn_t ptnet_rx_irq(int irq, void *data)
{
	struct ptnet_queue *queue = data;

	queue->counters.rx_irqs++;
	if (!ptnet_netmap_wake(queue->pt))
		napi_schedule_irqoff(&queue->napi);
	return IRQ_HANDLED;
}

/* Rings and carrier. */

static irqreturn_t ptnet_control_irq(int irq, void *data)
{
	struct ptnet *pt = data;

	schedule_work(&pt->link_work);
	return IRQ_HANDLED;
}

/* Begins at the beginning of rings that the host has just made. */
static void ptnet_take_rings(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++) {
		queue->tx.position = 0;
		queue->rx.position = 0;
	}
	ptnet_forget_answers(pt);
	pt->has_rings = true;
}

static void ptnet_start(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++)
		napi_enable(&queue->napi);
	netif_carrier_on(pt->netdev);
	netif_tx_wake_all_queues(pt->netdev);
	/* Events before this moment are lost: looks at the rings, and arms. */
	local_bh_disable();
	for (queue = pt->queues; queue < pt->end; queue++)
		napi_schedule(&queue->napi);
	local_bh_enable();
}

void ptnet_quiesce(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	if (!netif_carrier_ok(pt->netdev))
		return;
	netif_carrier_off(pt->netdev);
	netif_tx_disable(pt->netdev);
	for (queue = pt->queues; queue < pt->end; queue++)
		napi_disable(&queue->napi);
}

static void ptnet_ask_reset(struct ptnet *pt)
{
	ptnet_store(&pt->guest->reset, pt->reset);
	ptnet_kick(pt, PTNET_VECTOR_CONTROL(pt->queues_count));
}

void ptnet_new_reset(struct ptnet *pt)
{
	u32 before = pt->reset;

	do {
		pt->reset = get_random_u32();
	} while (!pt->reset || pt->reset == before ||
		 pt->reset == ptnet_load(&pt->guest->generation));
	pt->has_rings = false;
}

/* While a program has the rings (netmap.c), the interface has no carrier. */
void ptnet_follow(struct ptnet *pt)
{
	bool is_mine = ptnet_load(&pt->guest->generation) == pt->reset;
	bool had = netif_carrier_ok(pt->netdev);
	bool has;

	ptnet_netmap_hold(pt);
	/* The rings were made before the number was written. */
	virt_rmb();
	if (pt->has_rings && !is_mine) {
		netdev_warn(pt->netdev, "the host has ended the rings; asking for new ones\n");
		ptnet_quiesce(pt);
		had = false;
		ptnet_new_reset(pt);
	}
	if (!pt->has_rings && is_mine) {
		pt->resets++;
		ptnet_take_rings(pt);
	}
	if (!pt->has_rings) {
		ptnet_ask_reset(pt);
		schedule_delayed_work(&pt->ask_work, PTNET_ASK_AGAIN);
	}
	has = pt->has_rings && pt->is_open && ptnet_load(&pt->guest->link) &&
	      !ptnet_netmap_has(pt);
	if (has && !had) {
		ptnet_forget_answers(pt);
		ptnet_start(pt);
	} else if (!has) {
		ptnet_quiesce(pt);
	}
	ptnet_netmap_resume(pt);
}

static void ptnet_follow_if_registered(struct ptnet *pt)
{
	rtnl_lock();
	/* One that is being removed asks for nothing. */
	if (pt->netdev->reg_state == NETREG_REGISTERED)
		ptnet_follow(pt);
	rtnl_unlock();
}

static void ptnet_link_work(struct work_struct *work)
{
	ptnet_follow_if_registered(container_of(work, struct ptnet, link_work));
}

static void ptnet_ask_work(struct work_struct *work)
{
	ptnet_follow_if_registered(container_of(work, struct ptnet, ask_work.work));
}

static int ptnet_open(struct net_device *netdev)
{
	struct ptnet *pt = netdev_priv(netdev);

	pt->is_open = true;
	ptnet_follow(pt);
	return 0;
}

static int ptnet_stop(struct net_device *netdev)
{
	struct ptnet *pt = netdev_priv(netdev);

	pt->is_open = false;
	ptnet_quiesce(pt);
	return 0;
}

static const struct net_device_ops ptnet_netdev_ops = {
	.ndo_open = ptnet_open,
	.ndo_stop = ptnet_stop,
	.ndo_start_xmit = ptnet_xmit,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_get_stats64 = dev_get_tstats64,
};

struct ptnet *ptnet_of(struct net_device *netdev)
{
	return netdev->netdev_ops == &ptnet_netdev_ops ? netdev_priv(netdev) : NULL;
}

static void ptnet_get_drvinfo(struct net_device *netdev, struct ethtool_drvinfo *info)
{
	struct ptnet *pt = netdev_priv(netdev);

	strscpy(info->driver, PTNET_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(pt->pdev), sizeof(info->bus_info));
}

static void ptnet_get_ringparam(struct net_device *netdev, struct ethtool_ringparam *param,
				struct kernel_ethtool_ringparam *kernel_param,
				struct netlink_ext_ack *extack)
{
	struct ptnet *pt = netdev_priv(netdev);

	param->tx_pending = pt->queues[0].tx.count;
	param->tx_max_pending = pt->queues[0].tx.count;
	param->rx_pending = pt->queues[0].rx.count;
	param->rx_max_pending = pt->queues[0].rx.count;
}

static void ptnet_get_channels(struct net_device *netdev, struct ethtool_channels *channels)
{
	struct ptnet *pt = netdev_priv(netdev);

	channels->combined_count = pt->queues_count;
	channels->max_combined = pt->queues_count;
}

static int ptnet_get_sset_count(struct net_device *netdev, int set)
{
	struct ptnet *pt = netdev_priv(netdev);

	return set == ETH_SS_STATS ? 1 + (1 + pt->queues_count) * PTNET_COUNTERS : -EOPNOTSUPP;
}

static void ptnet_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	struct ptnet *pt = netdev_priv(netdev);
	u32 i, queue;

	if (set != ETH_SS_STATS)
		return;
	ethtool_sprintf(&data, "resets");
	for (i = 0; i < PTNET_COUNTERS; i++)
		ethtool_sprintf(&data, "%s", ptnet_counter_names[i]);
	for (queue = 0; queue < pt->queues_count; queue++)
		for (i = 0; i < PTNET_COUNTERS; i++)
			ethtool_sprintf(&data, "%.2s_queue_%u_%s", ptnet_counter_names[i], queue,
					ptnet_counter_names[i] + 3);
}

static void ptnet_get_ethtool_stats(struct net_device *netdev, struct ethtool_stats *stats,
				    u64 *data)
{
	struct ptnet *pt = netdev_priv(netdev);
	u64 *each = data + 1 + PTNET_COUNTERS;
	struct ptnet_queue *queue;
	u32 i;

	*data++ = pt->resets;
	memset(data, 0, PTNET_COUNTERS * sizeof(u64));
	for (queue = pt->queues; queue < pt->end; queue++) {
		memcpy(each, &queue->counters, sizeof(queue->counters));
		for (i = 0; i < PTNET_COUNTERS; i++)
			data[i] += each[i];
		each += PTNET_COUNTERS;
	}
}

static const struct ethtool_ops ptnet_ethtool_ops = {
	.get_drvinfo = ptnet_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_ringparam = ptnet_get_ringparam,
	.get_channels = ptnet_get_channels,
	.get_sset_count = ptnet_get_sset_count,
	.get_strings = ptnet_get_strings,
	.get_ethtool_stats = ptnet_get_ethtool_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};

/* The device. */

/* What is wrong with the memory; NULL if nothing is. */
static const char *ptnet_find_ring(struct ptnet *pt, struct ptnet_ring *ring, u32 number,
				   size_t length)
{
	const struct ptnet_layout *layout = pt->memory;
	u32 offset = le32_to_cpu(layout->ring[number].offset);

	ring->count = le32_to_cpu(layout->ring[number].slots);
	if (le32_to_cpu(layout->ring[number].direction) != ring->direction)
		return "its rings are not pairs of one to transmit and one to receive";
	if (ring->count < 2 || ring->count > 4096 || offset % 64 ||
	    offset + PTNET_RING_HEADER_BYTES + (u64)ring->count * sizeof(*ring->slots) > length)
		return "a ring does not lie inside its memory";
	ring->user = pt->memory + PTNET_USER_CSB_OFFSET + number * sizeof(*ring->user);
	ring->owner = pt->memory + PTNET_OWNER_CSB_OFFSET + number * sizeof(*ring->owner);
	ring->slots = pt->memory + offset + PTNET_RING_HEADER_BYTES;
	return NULL;
}

/* The rings of a device that has all of them, or of the guest at a seat. */
static const char *ptnet_find_rings(struct ptnet *pt, u32 rings, u32 seat, size_t length)
{
	struct ptnet_queue *queue;
	const char *why = NULL;
	u32 number = 0;

	pt->end = pt->queues + pt->queues_count;
	for (queue = pt->queues; queue < pt->end; queue++) {
		queue->pt = pt;
		queue->number = number++;
		queue->tx.direction = PTNET_TX;
		queue->tx.vector = PTNET_VECTOR(queue->number, PTNET_TX);
		queue->tx.asked = get_random_u32();
		queue->rx.direction = PTNET_RX;
		queue->rx.vector = PTNET_VECTOR(queue->number, PTNET_RX);
		queue->rx.asked = get_random_u32();
		why = ptnet_find_ring(pt, &queue->tx, seat + queue->number, length);
		if (!why)
			why = ptnet_find_ring(pt, &queue->rx, rings / 2 + seat + queue->number,
					      length);
		if (why)
			break;
	}
	return why;
}

/* How many pairs of rings the device has; 0 if that cannot be. */
static u32 ptnet_count_queues(const struct ptnet *pt, u32 rings)
{
	u32 queues;

	if (le32_to_cpu(pt->guest->version) == PTNET_GUEST_VERSION)
		return 1;
	queues = le32_to_cpu(pt->guest->queues);
	return queues <= PTNET_QUEUES_MAX && queues == rings / 2 ? queues : 0;
}

static const char *ptnet_check(struct ptnet *pt, size_t length)
{
	const struct ptnet_layout *layout = pt->memory;
	u32 rings, seat, version;
	const char *why;
	u64 end;

	if (length < 4 * 4096)
		return "its memory is too short";
	rings = le32_to_cpu(READ_ONCE(layout->rings));
	seat = readl(pt->registers + IVSHMEM_POSITION) - 1;
	if (!rings || rings % 2 || rings > PTNET_RINGS_MAX || seat >= rings / 2 ||
	    seat >= (4096 - PTNET_GUEST_OFFSET) / PTNET_GUEST_BYTES)
		return "it has no two rings for this guest";
	pt->guest = pt->memory + PTNET_GUEST_OFFSET + seat * PTNET_GUEST_BYTES;
	if (le64_to_cpu(pt->guest->magic) != PTNET_GUEST_MAGIC ||
	    le64_to_cpu(layout->magic) != PTNET_RINGS_MAGIC)
		return "it is no port of a ClearStream switch";
	version = le32_to_cpu(pt->guest->version);
	if ((version != PTNET_GUEST_VERSION && version != PTNET_GUEST_VERSION_QUEUES) ||
	    le32_to_cpu(layout->version) != PTNET_RINGS_VERSION)
		return "it is of another version";
	pt->queues_count = ptnet_count_queues(pt, rings);
	if (!pt->queues_count || (pt->queues_count > 1 && seat))
		return "it has an impossible number of queues";
	why = ptnet_find_rings(pt, rings, seat, length);
	if (why)
		return why;
	pt->buffer_bytes = le32_to_cpu(layout->buffer_bytes);
	pt->buffers_count = le32_to_cpu(layout->buffers);
	end = le32_to_cpu(layout->buffers_offset) + (u64)pt->buffer_bytes * pt->buffers_count;
	if (pt->buffer_bytes < 1024 || end > length)
		return "its buffers do not lie inside its memory";
	pt->buffers = pt->memory + le32_to_cpu(layout->buffers_offset);
	pt->header_bytes = le32_to_cpu(pt->guest->header_bytes);
	if (pt->header_bytes && pt->header_bytes != sizeof(struct virtio_net_hdr))
		return "its frames have a header of an unknown length";
	if (!is_valid_ether_addr(pt->guest->mac))
		return "it has no hardware address";
	return NULL;
}

static void ptnet_describe(struct ptnet *pt)
{
	struct net_device *netdev = pt->netdev;
	u32 longest = GSO_MAX_SIZE;

	netdev->netdev_ops = &ptnet_netdev_ops;
	netdev->ethtool_ops = &ptnet_ethtool_ops;
	netdev->min_mtu = ETH_MIN_MTU;
	netdev->max_mtu = clamp(le32_to_cpu(pt->guest->mtu_max), (u32)ETH_DATA_LEN, 65000U);
	eth_hw_addr_set(netdev, pt->guest->mac);
	netdev->hw_features = NETIF_F_SG;
	if (pt->header_bytes)
		netdev->hw_features |= NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO_ECN |
				       NETIF_F_TSO6;
	else
		longest = netdev->max_mtu + VLAN_ETH_HLEN;
	netdev->features = netdev->hw_features | NETIF_F_HIGHDMA;
	netdev->vlan_features = netdev->features;
	pt->tx_slots_most = DIV_ROUND_UP(longest + pt->header_bytes + VLAN_ETH_HLEN,
					 pt->buffer_bytes);
}

/* Interrupts of a queue go to one processor, which also transmits on it. */
static void ptnet_spread(struct ptnet *pt, bool spreads)
{
	u32 vectors = PTNET_VECTOR_CONTROL(pt->queues_count);
	u32 i, cpu;

	for (i = 0; i < vectors; i++) {
		cpu = cpumask_local_spread(i / 2, NUMA_NO_NODE);
		irq_set_affinity_and_hint(pci_irq_vector(pt->pdev, i),
					  spreads ? cpumask_of(cpu) : NULL);
	}
}

static void ptnet_free_vectors(struct ptnet *pt, u32 count)
{
	u32 control = PTNET_VECTOR_CONTROL(pt->queues_count);

	while (count--)
		free_irq(pci_irq_vector(pt->pdev, count),
			 count == control ? (void *)pt : (void *)&pt->queues[count / 2]);
	pci_free_irq_vectors(pt->pdev);
}

static int ptnet_request_irqs(struct ptnet *pt)
{
	static const irq_handler_t handlers[] = { ptnet_tx_irq, ptnet_rx_irq };
	u32 control = PTNET_VECTOR_CONTROL(pt->queues_count);
	u32 vectors = PTNET_VECTORS(pt->queues_count);
	u32 i;
	int err;

	err = pci_alloc_irq_vectors(pt->pdev, vectors, vectors, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	for (i = 0; i < control; i++) {
		struct ptnet_queue *queue = &pt->queues[i / 2];
		char *name = queue->irq_names[i % 2];

		snprintf(name, sizeof(queue->irq_names[0]), "ptnet-%s-%u", i % 2 ? "rx" : "tx",
			 queue->number);
		err = request_irq(pci_irq_vector(pt->pdev, i), handlers[i % 2], 0, name, queue);
		if (err)
			goto free;
	}
	err = request_irq(pci_irq_vector(pt->pdev, control), ptnet_control_irq, 0,
			  "ptnet-control", pt);
	if (err)
		goto free;
	if (pt->queues_count > 1)
		ptnet_spread(pt, true);
	return 0;

free:
	ptnet_free_vectors(pt, i);
	return err;
}

static void ptnet_free_irqs(struct ptnet *pt)
{
	ptnet_spread(pt, false);
	ptnet_free_vectors(pt, PTNET_VECTORS(pt->queues_count));
}

static void ptnet_del_napi(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++)
		netif_napi_del(&queue->napi);
}

/* A processor transmits on the queue whose interrupts it has. */
static void ptnet_set_xps(struct ptnet *pt)
{
	struct ptnet_queue *queue;
	cpumask_var_t cpus;
	u32 i;

	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL))
		return;
	for (queue = pt->queues; queue < pt->end; queue++) {
		cpumask_clear(cpus);
		for (i = queue->number; i < num_online_cpus(); i += pt->queues_count)
			cpumask_set_cpu(cpumask_local_spread(i, NUMA_NO_NODE), cpus);
		if (!cpumask_empty(cpus))
			netif_set_xps_queue(pt->netdev, cpus, queue->number);
	}
	free_cpumask_var(cpus);
}

static int ptnet_map(struct ptnet *pt)
{
	struct pci_dev *pdev = pt->pdev;
	const char *why;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pci_request_regions(pdev, PTNET_NAME);
	if (err)
		return err;
	pt->registers = pcim_iomap(pdev, 0, 0);
	pt->memory = devm_memremap(&pdev->dev, pci_resource_start(pdev, 2),
				   pci_resource_len(pdev, 2), MEMREMAP_WB);
	if (!pt->registers || IS_ERR_OR_NULL(pt->memory)) {
		err = -ENOMEM;
		goto release;
	}
	why = ptnet_check(pt, pci_resource_len(pdev, 2));
	if (why) {
		dev_err(&pdev->dev, "refused: %s\n", why);
		err = -ENODEV;
		goto release;
	}
	/* Below 4 GiB firmware makes such memory uncacheable. */
	if (pci_resource_start(pdev, 2) < SZ_4G)
		dev_warn(&pdev->dev, "its memory lies below 4 GiB and may be slow\n");
	return 0;

release:
	pci_release_regions(pdev);
	return err;
}

static int ptnet_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *netdev;
	struct ptnet_queue *queue;
	struct ptnet *pt;
	int err;

	netdev = alloc_etherdev_mq(sizeof(*pt), PTNET_QUEUES_MAX);
	if (!netdev)
		return -ENOMEM;
	SET_NETDEV_DEV(netdev, &pdev->dev);
	pci_set_drvdata(pdev, netdev);
	pt = netdev_priv(netdev);
	pt->netdev = netdev;
	pt->pdev = pdev;
	INIT_WORK(&pt->link_work, ptnet_link_work);
	INIT_DELAYED_WORK(&pt->ask_work, ptnet_ask_work);
	err = ptnet_map(pt);
	if (err)
		goto free;
	ptnet_describe(pt);
	netdev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!netdev->tstats) {
		err = -ENOMEM;
		goto release;
	}
	netif_set_real_num_tx_queues(netdev, pt->queues_count);
	netif_set_real_num_rx_queues(netdev, pt->queues_count);
	for (queue = pt->queues; queue < pt->end; queue++)
		netif_napi_add(netdev, &queue->napi, ptnet_poll);
	ptnet_new_reset(pt);
	pci_set_master(pdev);
	err = ptnet_request_irqs(pt);
	if (err)
		goto stats;
	netif_carrier_off(netdev);
	err = register_netdev(netdev);
	if (err)
		goto irqs;
	if (pt->queues_count > 1)
		ptnet_set_xps(pt);
	schedule_work(&pt->link_work);
	return 0;

irqs:
	ptnet_free_irqs(pt);
	cancel_work_sync(&pt->link_work);
	cancel_delayed_work_sync(&pt->ask_work);
stats:
	ptnet_del_napi(pt);
	free_percpu(netdev->tstats);
release:
	pci_release_regions(pdev);
free:
	free_netdev(netdev);
	return err;
}

static void ptnet_remove(struct pci_dev *pdev)
{
	struct net_device *netdev = pci_get_drvdata(pdev);
	struct ptnet *pt = netdev_priv(netdev);

	unregister_netdev(netdev);
	ptnet_netmap_detach(pt);
	ptnet_free_irqs(pt);
	cancel_work_sync(&pt->link_work);
	cancel_delayed_work_sync(&pt->ask_work);
	/* Nobody uses the rings any more. */
	ptnet_store(&pt->guest->reset, 0);
	ptnet_kick(pt, PTNET_VECTOR_CONTROL(pt->queues_count));
	ptnet_del_napi(pt);
	free_percpu(netdev->tstats);
	pci_release_regions(pdev);
	free_netdev(netdev);
}

static const struct pci_device_id ptnet_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, IVSHMEM_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ptnet_ids);

static struct pci_driver ptnet_driver = {
	.name = PTNET_NAME,
	.id_table = ptnet_ids,
	.probe = ptnet_probe,
	.remove = ptnet_remove,
	.shutdown = ptnet_remove,
};

static int __init ptnet_init(void)
{
	int err;

	ptnet_netmap_init();
	err = pci_register_driver(&ptnet_driver);
	if (err)
		ptnet_netmap_exit();
	return err;
}
module_init(ptnet_init);

static void __exit ptnet_exit(void)
{
	pci_unregister_driver(&ptnet_driver);
	ptnet_netmap_exit();
}
module_exit(ptnet_exit);

MODULE_DESCRIPTION("Port of the ClearStream packet switch as a network device");
MODULE_LICENSE("GPL");
