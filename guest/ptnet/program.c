// SPDX-License-Identifier: GPL-2.0
/*
 * Programs get rings of an interface, and lose them: with their file, or when the
 * device goes. What they map is the device's, made for the first of them.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "program.h"

/* Frames that a program has sent are out this long after its end. */
#define PTNET_DRAIN_MS		100

/* Interfaces as programs see them, in the first page: that with all queues, then that with each
 * queue alone. A program takes the rings that its interface has for its own.
 */
#define PTNET_IF_BYTES		256

static_assert(offsetof(struct nm_if, ring_ofs) == 56);
static_assert(offsetof(struct nm_if, ring_ofs[2 * PTNET_QUEUES_MAX]) <= PTNET_IF_BYTES);
static_assert((1 + PTNET_QUEUES_MAX) * PTNET_IF_BYTES <= PAGE_SIZE);
static_assert(offsetof(struct nm_ring, seconds) == 40);
static_assert(sizeof(struct nm_ring) == PTNET_RING_HEADER_BYTES);

/* What programs map. */

static size_t ptnet_ring_bytes(const struct ptnet_ring *ring)
{
	return PAGE_ALIGN(sizeof(struct nm_ring) + ring->count * sizeof(struct nm_slot));
}

size_t ptnet_front_bytes(const struct ptnet *pt)
{
	const struct ptnet_queue *queue;
	size_t bytes = PAGE_SIZE;

	for (queue = pt->queues; queue < pt->end; queue++)
		bytes += ptnet_ring_bytes(&queue->tx) + ptnet_ring_bytes(&queue->rx);
	return bytes;
}

/* The buffers' first byte, in the page in which the program's view begins. */
static size_t ptnet_buffers_in_page(const struct ptnet *pt)
{
	return offset_in_page(pt->buffers - (u8 *)pt->memory);
}

size_t ptnet_back_bytes(const struct ptnet *pt)
{
	return PAGE_ALIGN(ptnet_buffers_in_page(pt) + (size_t)pt->buffer_bytes * pt->buffers_count);
}

size_t ptnet_if_offset(const struct ptnet *pt, u32 first, u32 end)
{
	return end - first == pt->queues_count ? 0 : (1 + first) * PTNET_IF_BYTES;
}

static void ptnet_describe_ring(struct ptnet_view *view, const struct ptnet *pt,
				struct ptnet_shadow *shadow, const struct ptnet_ring *ring,
				u32 number, size_t offset)
{
	size_t alone = ptnet_if_offset(pt, number, number + 1);
	u32 index = ring->direction == PTNET_TX ? number : pt->queues_count + number;
	struct nm_ring *program = view->front + offset;
	struct nm_if *interface = view->front;

	interface->ring_ofs[index] = offset;
	interface = view->front + alone;
	interface->ring_ofs[index] = offset - alone;
	program->buf_ofs = view->front_bytes + ptnet_buffers_in_page(pt) - offset;
	program->num_slots = ring->count;
	program->buf_size = pt->buffer_bytes;
	program->ringid = number;
	program->dir = ring->direction;
	shadow->ring = program;
}

static void ptnet_describe_view(struct ptnet_view *view, struct ptnet *pt)
{
	struct ptnet_queue *queue;
	size_t offset = PAGE_SIZE;
	u32 number;

	for (number = 0; number <= pt->queues_count; number++) {
		struct nm_if *interface = view->front + number * PTNET_IF_BYTES;

		strscpy(interface->name, pt->netdev->name, sizeof(interface->name));
		interface->version = NM_API;
		interface->flags = NM_IF_PRIV_MEM;
		interface->tx_rings = pt->queues_count;
		interface->rx_rings = pt->queues_count;
	}
	for (queue = pt->queues; queue < pt->end; queue++) {
		ptnet_describe_ring(view, pt, &view->tx[queue->number], &queue->tx, queue->number,
				    offset);
		offset += ptnet_ring_bytes(&queue->tx);
		ptnet_describe_ring(view, pt, &view->rx[queue->number], &queue->rx, queue->number,
				    offset);
		offset += ptnet_ring_bytes(&queue->rx);
	}
}

/* The device's, made for its first program; with the RTNL held. */
static struct ptnet_view *ptnet_view_get(struct ptnet *pt)
{
	struct ptnet_view *view = pt->view;

	if (!view) {
		view = kzalloc(sizeof(*view), GFP_KERNEL_ACCOUNT);
		if (!view)
			return NULL;
		view->front_bytes = ptnet_front_bytes(pt);
		view->front = alloc_pages_exact(view->front_bytes,
						GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!view->front) {
			kfree(view);
			return NULL;
		}
		view->back = pci_resource_start(pt->pdev, 2) +
			     round_down(pt->buffers - (u8 *)pt->memory, PAGE_SIZE);
		view->back_bytes = ptnet_back_bytes(pt);
		ptnet_describe_view(view, pt);
		pt->view = view;
	}
	view->users++;
	return view;
}

/* With the RTNL held; of a device that has gone pt is NULL. */
static void ptnet_view_put(struct ptnet_view *view, struct ptnet *pt)
{
	if (--view->users)
		return;
	if (pt)
		pt->view = NULL;
	free_pages_exact(view->front, view->front_bytes);
	kfree(view);
}

/* Who has which rings. */

int ptnet_netmap_bind(struct ptnet_netmap *nm, struct ptnet *pt, u32 first, u32 end, u64 flags)
{
	u32 i;

	if (nm->view)
		return -EBUSY;
	for (i = first; i < end; i++)
		if (rtnl_dereference(pt->queues[i].netmap))
			return -EBUSY;
	nm->view = ptnet_view_get(pt);
	if (!nm->view)
		return -ENOMEM;
	ptnet_quiesce(pt);
	mutex_lock(&nm->lock);
	nm->flags = flags;
	nm->first = first;
	nm->end = end;
	ptnet_shadows_begin(nm, pt);
	nm->pt = pt;
	for (i = first; i < end; i++)
		rcu_assign_pointer(pt->queues[i].netmap, nm);
	mutex_unlock(&nm->lock);
	ptnet_follow(pt);
	return 0;
}

/* Whether the switch has taken what the program has sent. */
static bool ptnet_is_drained(const struct ptnet_netmap *nm, struct ptnet *pt)
{
	u32 i;

	for (i = nm->first; i < nm->end; i++)
		if (ptnet_available(&pt->queues[i].tx) != pt->queues[i].tx.count - 1)
			return false;
	return true;
}

/* Whether these buffers exist, and are not among those that were marked before. */
static bool ptnet_mark_buffers(struct ptnet *pt, const struct ptnet_ring *ring,
			       unsigned long *marked)
{
	u32 i, buffer;

	for (i = 0; i < ring->count; i++) {
		buffer = le32_to_cpu(READ_ONCE(ring->slots[i].buffer));
		if (!ptnet_buffer(pt, buffer) || __test_and_set_bit(buffer, marked))
			return false;
	}
	return true;
}

/* Whether each buffer is in one slot; false also if that cannot be known. */
static bool ptnet_is_sound(struct ptnet *pt)
{
	unsigned long *marked = bitmap_zalloc(pt->buffers_count, GFP_KERNEL);
	bool is_sound = marked;
	struct ptnet_queue *queue;

	for (queue = pt->queues; is_sound && queue < pt->end; queue++)
		is_sound = ptnet_mark_buffers(pt, &queue->tx, marked) &&
			   ptnet_mark_buffers(pt, &queue->rx, marked);
	bitmap_free(marked);
	return is_sound;
}

/* The rings are no program's any more; with the RTNL held. */
static void ptnet_netmap_leave(struct ptnet_netmap *nm, struct ptnet *pt)
{
	u32 i;

	for (i = nm->first; i < nm->end; i++) {
		ptnet_disarm(&pt->queues[i].tx);
		ptnet_disarm(&pt->queues[i].rx);
		RCU_INIT_POINTER(pt->queues[i].netmap, NULL);
	}
	nm->pt = NULL;
	/* It may have left a buffer in two slots. Other programs keep their rings if it has not. */
	ptnet_netmap_hold(pt);
	if (!ptnet_netmap_has(pt) || !ptnet_is_sound(pt))
		ptnet_new_reset(pt);
	ptnet_netmap_resume(pt);
	ptnet_follow(pt);
}

void ptnet_netmap_unbind(struct ptnet_netmap *nm)
{
	struct ptnet *pt;
	int waited;

	/* What was sent last is still in the ring. */
	for (waited = 0; waited < PTNET_DRAIN_MS; waited++) {
		bool is_empty = true;

		pt = ptnet_netmap_lock(nm);
		if (!pt)
			break;
		if (ptnet_is_served(pt))
			is_empty = ptnet_is_drained(nm, pt);
		mutex_unlock(&nm->lock);
		if (is_empty)
			break;
		usleep_range(1000, 1100);
	}
	rtnl_lock();
	pt = nm->pt;
	if (pt)
		ptnet_netmap_leave(nm, pt);
	if (nm->view)
		ptnet_view_put(nm->view, pt);
	nm->view = NULL;
	rtnl_unlock();
	/* Interrupt handlers that have seen it. */
	synchronize_rcu();
}

/* Takes the device away from one program. */
static void ptnet_netmap_take_away(struct ptnet_netmap *nm, struct ptnet *pt)
{
	u32 i;

	mutex_lock(&nm->lock);
	nm->pt = NULL;
	for (i = nm->first; i < nm->end; i++)
		RCU_INIT_POINTER(pt->queues[i].netmap, NULL);
	mutex_unlock(&nm->lock);
	/* The memory may belong to another device soon. */
	unmap_mapping_range(nm->mapping, (loff_t)nm->pgoff << PAGE_SHIFT, 1ULL << 32, 1);
	wake_up_interruptible(&nm->wait);
}

void ptnet_netmap_detach(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	rtnl_lock();
	for (queue = pt->queues; queue < pt->end; queue++) {
		struct ptnet_netmap *nm = rtnl_dereference(queue->netmap);

		if (nm)
			ptnet_netmap_take_away(nm, pt);
	}
	/* It is freed by the last program. */
	pt->view = NULL;
	rtnl_unlock();
	synchronize_rcu();
}
