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
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/virtio_net.h>

#include "port.h"
#include "program.h"

#define IVSHMEM_DEVICE	0x1110

static_assert(offsetof(struct ptnet_guest, reset) == 64);
static_assert(sizeof(struct ptnet_guest) <= PTNET_GUEST_BYTES);
static_assert(sizeof(struct ptnet_layout) <= PTNET_GUEST_OFFSET);

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
	pt->channels = pt->queues_count;
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
	return 0;

free:
	ptnet_free_vectors(pt, i);
	return err;
}

static void ptnet_free_irqs(struct ptnet *pt)
{
	ptnet_gather(pt);
	ptnet_free_vectors(pt, PTNET_VECTORS(pt->queues_count));
}

static void ptnet_del_napi(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++)
		netif_napi_del(&queue->napi);
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
	ptnet_spread(pt);
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
