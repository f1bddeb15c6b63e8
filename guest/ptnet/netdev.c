// SPDX-License-Identifier: GPL-2.0
/*
 * The network interface: which rings it has, when it has a carrier, and what
 * ethtool says of it.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/interrupt.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>

#include "port.h"
#include "program.h"

/* How often a host that has not answered is asked again. */
#define PTNET_ASK_AGAIN		HZ

/* Of each queue as tx_queue_0_packets, and the sum of all queues as tx_packets. */
static const char * const ptnet_counter_names[] = {
	"tx_packets", "tx_bytes", "tx_kicks", "tx_stops", "tx_irqs", "rx_packets", "rx_bytes",
	"rx_kicks", "rx_irqs", "rx_no_memory", "rx_bad_frames",
};

#define PTNET_COUNTERS	ARRAY_SIZE(ptnet_counter_names)

static_assert(sizeof(struct ptnet_queue_counters) == PTNET_COUNTERS * sizeof(u64));

/* Rings and carrier. */

irqreturn_t ptnet_control_irq(int irq, void *data)
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

	/* The rings may be new, or a program has used them. */
	for (queue = pt->queues; queue < pt->end; queue++)
		queue->tx.room = 0;
	for (queue = pt->queues; queue < pt->queues + pt->channels; queue++)
		napi_enable(&queue->napi);
	netif_carrier_on(pt->netdev);
	netif_tx_wake_all_queues(pt->netdev);
	/* Events before this moment are lost: looks at the rings, and arms. */
	local_bh_disable();
	for (queue = pt->queues; queue < pt->queues + pt->channels; queue++)
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
	for (queue = pt->queues; queue < pt->queues + pt->channels; queue++)
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

void ptnet_link_work(struct work_struct *work)
{
	ptnet_follow_if_registered(container_of(work, struct ptnet, link_work));
}

void ptnet_ask_work(struct work_struct *work)
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

	channels->combined_count = pt->channels;
	channels->max_combined = pt->queues_count;
}

/* Interrupts of a queue go to the processor that also transmits on it. */
static void ptnet_spread_interrupts(struct ptnet *pt, bool spreads)
{
	struct ptnet_queue *queue;
	u32 cpu, direction;
	int vector;

	for (queue = pt->queues; queue < pt->end; queue++) {
		cpu = cpumask_local_spread(ptnet_channel(queue)->number, NUMA_NO_NODE);
		for (direction = PTNET_TX; direction <= PTNET_RX; direction++) {
			vector = pci_irq_vector(pt->pdev, PTNET_VECTOR(queue->number, direction));
			irq_set_affinity_and_hint(vector, spreads ? cpumask_of(cpu) : NULL);
		}
	}
}

/* Each processor transmits on one queue. */
static void ptnet_set_xps(struct ptnet *pt)
{
	cpumask_var_t cpus;
	u32 i, channel;

	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL))
		return;
	for (channel = 0; channel < pt->channels; channel++) {
		cpumask_clear(cpus);
		for (i = channel; i < num_online_cpus(); i += pt->channels)
			cpumask_set_cpu(cpumask_local_spread(i, NUMA_NO_NODE), cpus);
		if (!cpumask_empty(cpus))
			netif_set_xps_queue(pt->netdev, cpus, channel);
	}
	free_cpumask_var(cpus);
}

void ptnet_spread(struct ptnet *pt)
{
	if (pt->queues_count == 1)
		return;
	ptnet_spread_interrupts(pt, true);
	ptnet_set_xps(pt);
}

void ptnet_gather(struct ptnet *pt)
{
	ptnet_spread_interrupts(pt, false);
}

/* The rings stay as they are: those beyond the last channel are received from by the others, and
 * nothing is sent on them.
 */
static int ptnet_set_channels(struct net_device *netdev, struct ethtool_channels *channels)
{
	struct ptnet *pt = netdev_priv(netdev);
	int err;

	if (ptnet_netmap_has(pt))
		return -EBUSY;
	ptnet_quiesce(pt);
	err = netif_set_real_num_queues(netdev, channels->combined_count,
					channels->combined_count);
	if (!err) {
		pt->channels = channels->combined_count;
		ptnet_spread(pt);
	}
	ptnet_follow(pt);
	return err;
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
	.set_channels = ptnet_set_channels,
	.get_sset_count = ptnet_get_sset_count,
	.get_strings = ptnet_get_strings,
	.get_ethtool_stats = ptnet_get_ethtool_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};

void ptnet_describe(struct ptnet *pt)
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
