// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/netmap in a guest: a program takes over the rings of its interface and
 * fills and empties the port's buffers itself, which it maps.
 *
 * The program has rings of its own before them in the mapping. A synchronisation
 * copies the slots that it moved to the port's rings, 8 bytes each, and those
 * that have come back from there; frames are not copied. What the program
 * writes is checked here only so far as this kernel depends on it: the
 * switch checks what it finds in the port's rings anyway.
 *
 * Locks: the RTNL, under which a program gets an interface and loses it; then
 * the program's own, under which its rings and the port's are moved.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include "port.h"
#include "netmap.h"

/* Frames that a program has sent are out this long after its end. */
#define PTNET_DRAIN_MS		100
/* How long a registration waits for its rings. */
#define PTNET_RINGS_PATIENCE	(HZ / 2)

/* One direction of a program's rings. */
struct ptnet_shadow {
	struct nm_ring *ring;
	/* The tail that the program was told; its own memory may say anything. */
	u32 tail;
};

/* A program's file. */
struct ptnet_netmap {
	/* Guards what follows, and the port's rings while this program has them. */
	struct mutex lock;
	wait_queue_head_t wait;
	/* NULL without an interface, or when that has gone. */
	struct ptnet *pt;
	struct address_space *mapping;
	/* Where this file's pages lie in the device's mapping. */
	unsigned long pgoff;
	/* Interface and rings, in pages that the program maps first. */
	void *front;
	size_t front_bytes;
	/* The part of the port's memory that follows. */
	phys_addr_t back;
	size_t back_bytes;
	struct ptnet_shadow tx[PTNET_QUEUES_MAX];
	struct ptnet_shadow rx[PTNET_QUEUES_MAX];
	/* The queues that it moves: all, or one. */
	u32 first;
	u32 end;
	/* Which of the port's rings these are: their reset's number. */
	u64 resets;
	/* Whether there were any yet. */
	bool has_rings;
	u64 flags;
};

static_assert(sizeof(struct nm_header) == 88);
static_assert(sizeof(struct nm_register) == 56);
static_assert(sizeof(struct nm_port_info) == 32);
static_assert(sizeof(struct nm_legacy) == 60);
static_assert(offsetof(struct nm_if, ring_ofs) == 56);
static_assert(offsetof(struct nm_ring, seconds) == 40);
static_assert(sizeof(struct nm_ring) == PTNET_RING_HEADER_BYTES);
static_assert(sizeof(struct nm_slot) == sizeof(struct ptnet_slot));

/* 4 GiB of offsets for each file, so that one can be unmapped alone. */
#define PTNET_FILE_PAGES_SHIFT	(32 - PAGE_SHIFT)
static atomic_t ptnet_netmap_files = ATOMIC_INIT(0);

/* In place of a queue's number. */
#define PTNET_ALL_QUEUES	PTNET_QUEUES_MAX

/* Rings. */

static u32 ptnet_distance(u32 from, u32 to, u32 count)
{
	return to >= from ? to - from : to + count - from;
}

static void ptnet_give_slot(struct ptnet_shadow *shadow, struct ptnet_ring *ring, u32 index)
{
	struct nm_slot *to = &shadow->ring->slot[index];
	struct ptnet_slot *from = &ring->slots[index];

	WRITE_ONCE(to->buf_idx, le32_to_cpu(READ_ONCE(from->buffer)));
	WRITE_ONCE(to->len, le16_to_cpu(READ_ONCE(from->length)));
	WRITE_ONCE(to->flags, le16_to_cpu(READ_ONCE(from->flags)) & NM_MORE_FRAGMENTS);
}

/* A slot that was sent comes back as the program left it, in a trust group with another buffer. */
static void ptnet_return_slot(struct ptnet_shadow *shadow, struct ptnet_ring *ring, u32 index)
{
	u32 buffer = le32_to_cpu(READ_ONCE(ring->slots[index].buffer));
	struct nm_slot *to = &shadow->ring->slot[index];

	if (READ_ONCE(to->buf_idx) == buffer)
		return;
	WRITE_ONCE(to->buf_idx, buffer);
	WRITE_ONCE(to->flags, NM_BUF_CHANGED);
}

/* The program's rings begin where the port's are. */
static void ptnet_shadow_begin(struct ptnet_shadow *shadow, struct ptnet_ring *ring, u32 available)
{
	u32 i;

	for (i = 0; i < ring->count; i++)
		ptnet_give_slot(shadow, ring, i);
	shadow->tail = ptnet_index(ring, available);
	WRITE_ONCE(shadow->ring->head, ring->position);
	WRITE_ONCE(shadow->ring->cur, ring->position);
	WRITE_ONCE(shadow->ring->tail, shadow->tail);
}

static void ptnet_shadows_begin(struct ptnet_netmap *nm, struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++) {
		ptnet_shadow_begin(&nm->tx[queue->number], &queue->tx,
				   pt->has_rings ? ptnet_available(&queue->tx) : 0);
		ptnet_shadow_begin(&nm->rx[queue->number], &queue->rx, 0);
	}
	nm->resets = pt->resets;
	WRITE_ONCE(nm->has_rings, pt->has_rings);
}

/* Slots that the program has let go of; negative if its cursors are none. */
static int ptnet_released(struct ptnet_shadow *shadow, struct ptnet_ring *ring)
{
	u32 limit = ptnet_distance(ring->position, shadow->tail, ring->count);
	u32 head = READ_ONCE(shadow->ring->head);
	u32 cur = READ_ONCE(shadow->ring->cur);
	u32 released;

	if (head >= ring->count || cur >= ring->count)
		return -EINVAL;
	released = ptnet_distance(ring->position, head, ring->count);
	if (released > limit ||
	    ptnet_distance(head, cur, ring->count) > limit - released)
		return -EINVAL;
	return released;
}

/* The slots go back to the port, with the buffers that the program has put in. */
static int ptnet_take_slots(struct ptnet *pt, struct ptnet_shadow *shadow,
			    struct ptnet_ring *ring, u32 slots)
{
	u32 i;

	for (i = 0; i < slots; i++) {
		u32 index = ptnet_index(ring, i);
		struct nm_slot *from = &shadow->ring->slot[index];
		struct ptnet_slot *to = &ring->slots[index];
		u32 buffer = READ_ONCE(from->buf_idx);
		u16 length = READ_ONCE(from->len);
		u16 flags = READ_ONCE(from->flags) & NM_MORE_FRAGMENTS;

		if (!ptnet_buffer(pt, buffer) || length > pt->buffer_bytes)
			return -EINVAL;
		if (buffer != le32_to_cpu(READ_ONCE(to->buffer)))
			flags |= NM_BUF_CHANGED;
		WRITE_ONCE(to->buffer, cpu_to_le32(buffer));
		WRITE_ONCE(to->length, cpu_to_le16(length));
		WRITE_ONCE(to->flags, cpu_to_le16(flags));
	}
	return 0;
}

/* Moves one direction both ways. -EINVAL, and rings that begin anew, if the program has written
 * nonsense.
 */
static int ptnet_sync(struct ptnet *pt, struct ptnet_shadow *shadow, struct ptnet_ring *ring)
{
	int released = ptnet_released(shadow, ring);
	u32 tail;

	if (unlikely(released < 0 || ptnet_take_slots(pt, shadow, ring, released))) {
		ptnet_shadow_begin(shadow, ring, ptnet_available(ring));
		return -EINVAL;
	}
	if (released) {
		ptnet_advance(ring, released);
		if (ptnet_must_kick(ring))
			ptnet_kick(pt, ring->vector);
	}
	tail = ptnet_index(ring, ptnet_available(ring));
	while (shadow->tail != tail) {
		if (ring->direction == PTNET_RX)
			ptnet_give_slot(shadow, ring, shadow->tail);
		else
			ptnet_return_slot(shadow, ring, shadow->tail);
		shadow->tail = shadow->tail + 1 == ring->count ? 0 : shadow->tail + 1;
	}
	/* The slots before it are written before it: the program's other threads. */
	smp_store_release(&shadow->ring->tail, tail);
	return 0;
}

static int ptnet_txsync(struct ptnet_netmap *nm, struct ptnet *pt)
{
	int err = 0;
	u32 i;

	for (i = nm->first; i < nm->end && !err; i++)
		err = ptnet_sync(pt, &nm->tx[i], &pt->queues[i].tx);
	return err;
}

static int ptnet_rxsync(struct ptnet_netmap *nm, struct ptnet *pt)
{
	struct timespec64 now;
	int err = 0;
	u32 i;

	ktime_get_real_ts64(&now);
	for (i = nm->first; i < nm->end && !err; i++) {
		WRITE_ONCE(nm->rx[i].ring->seconds, now.tv_sec);
		WRITE_ONCE(nm->rx[i].ring->microseconds, now.tv_nsec / NSEC_PER_USEC);
		err = ptnet_sync(pt, &nm->rx[i], &pt->queues[i].rx);
	}
	return err;
}

/* Whether a switch serves the rings; without one nothing is moved. */
static bool ptnet_is_served(struct ptnet *pt)
{
	return pt->has_rings && ptnet_load(&pt->guest->link);
}

/* The device, with the program's lock held; NULL when it has gone. */
static struct ptnet *ptnet_netmap_lock(struct ptnet_netmap *nm)
{
	mutex_lock(&nm->lock);
	if (nm->pt)
		return nm->pt;
	mutex_unlock(&nm->lock);
	return NULL;
}

static long ptnet_netmap_sync(struct ptnet_netmap *nm, bool sends)
{
	struct ptnet *pt = ptnet_netmap_lock(nm);
	long err = 0;

	if (!pt)
		return -ENXIO;
	if (ptnet_is_served(pt))
		err = sends ? ptnet_txsync(nm, pt) : ptnet_rxsync(nm, pt);
	mutex_unlock(&nm->lock);
	return err;
}

/* Slots beyond the program's cursor; if there are none, asks for an interrupt. */
static bool ptnet_is_ready(struct ptnet_shadow *shadow, struct ptnet_ring *ring)
{
	u32 cur = READ_ONCE(shadow->ring->cur);

	if (cur != shadow->tail)
		return true;
	if (ptnet_arm(ring, ptnet_distance(ring->position, cur, ring->count) + 1))
		return false;
	ptnet_disarm(ring);
	return true;
}

/* Whether any of the program's queues is ready; those that are not ask for an interrupt. */
static bool ptnet_any_ready(struct ptnet_netmap *nm, struct ptnet *pt, u32 direction)
{
	bool is_ready = false;
	u32 i;

	for (i = nm->first; i < nm->end; i++) {
		struct ptnet_queue *queue = &pt->queues[i];

		is_ready |= direction == PTNET_TX ? ptnet_is_ready(&nm->tx[i], &queue->tx) :
						    ptnet_is_ready(&nm->rx[i], &queue->rx);
	}
	return is_ready;
}

static __poll_t ptnet_netmap_poll(struct file *file, poll_table *table)
{
	struct ptnet_netmap *nm = file->private_data;
	__poll_t wants = poll_requested_events(table);
	__poll_t ready = 0;
	struct ptnet *pt;
	int err = 0;

	poll_wait(file, &nm->wait, table);
	pt = ptnet_netmap_lock(nm);
	if (!pt)
		return EPOLLERR;
	if (!ptnet_is_served(pt))
		goto unlock;
	if (wants & EPOLLOUT || !(nm->flags & NM_NO_TX_POLL))
		err = ptnet_txsync(nm, pt);
	if (!err && (wants & EPOLLIN || nm->flags & NM_DO_RX_POLL))
		err = ptnet_rxsync(nm, pt);
	if (err) {
		ready = EPOLLERR;
		goto unlock;
	}
	/* An interrupt for one direction must not hide what the other has: both are asked. */
	if (wants & EPOLLOUT && ptnet_any_ready(nm, pt, PTNET_TX)) {
		ready |= EPOLLOUT | EPOLLWRNORM;
		ptnet_txsync(nm, pt);
	}
	if (wants & EPOLLIN && ptnet_any_ready(nm, pt, PTNET_RX)) {
		ready |= EPOLLIN | EPOLLRDNORM;
		ptnet_rxsync(nm, pt);
	}
unlock:
	mutex_unlock(&nm->lock);
	return ready;
}

/* What main.c calls. */

bool ptnet_netmap_has(struct ptnet *pt)
{
	return rtnl_dereference(pt->netmap);
}

void ptnet_netmap_hold(struct ptnet *pt)
{
	struct ptnet_netmap *nm = rtnl_dereference(pt->netmap);

	if (nm)
		mutex_lock(&nm->lock);
}

void ptnet_netmap_resume(struct ptnet *pt)
{
	struct ptnet_netmap *nm = rtnl_dereference(pt->netmap);

	if (!nm)
		return;
	if (pt->has_rings && nm->resets != pt->resets)
		ptnet_shadows_begin(nm, pt);
	ptnet_forget_answers(pt);
	mutex_unlock(&nm->lock);
	wake_up_interruptible(&nm->wait);
}

bool ptnet_netmap_wake(struct ptnet *pt)
{
	struct ptnet_netmap *nm;

	rcu_read_lock();
	nm = rcu_dereference(pt->netmap);
	if (nm)
		wake_up_interruptible(&nm->wait);
	rcu_read_unlock();
	return nm;
}

void ptnet_netmap_detach(struct ptnet *pt)
{
	struct ptnet_netmap *nm;

	rtnl_lock();
	nm = rtnl_dereference(pt->netmap);
	if (nm) {
		mutex_lock(&nm->lock);
		nm->pt = NULL;
		RCU_INIT_POINTER(pt->netmap, NULL);
		mutex_unlock(&nm->lock);
		/* The memory may belong to another device soon. */
		unmap_mapping_range(nm->mapping, (loff_t)nm->pgoff << PAGE_SHIFT,
				    1ULL << 32, 1);
		wake_up_interruptible(&nm->wait);
	}
	rtnl_unlock();
	synchronize_rcu();
}

/* Registration. */

static size_t ptnet_ring_bytes(const struct ptnet_ring *ring)
{
	return PAGE_ALIGN(sizeof(struct nm_ring) + ring->count * sizeof(struct nm_slot));
}

static size_t ptnet_front_bytes(const struct ptnet *pt)
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

static size_t ptnet_back_bytes(const struct ptnet *pt)
{
	return PAGE_ALIGN(ptnet_buffers_in_page(pt) + (size_t)pt->buffer_bytes * pt->buffers_count);
}

static void ptnet_describe_ring(struct ptnet_netmap *nm, const struct ptnet *pt,
				struct ptnet_shadow *shadow, const struct ptnet_ring *ring,
				u32 number, size_t offset)
{
	struct nm_ring *view = nm->front + offset;
	struct nm_if *interface = nm->front;
	u32 index = ring->direction == PTNET_TX ? number : pt->queues_count + number;

	interface->ring_ofs[index] = offset;
	view->buf_ofs = nm->front_bytes + ptnet_buffers_in_page(pt) - offset;
	view->num_slots = ring->count;
	view->buf_size = pt->buffer_bytes;
	view->ringid = number;
	view->dir = ring->direction;
	shadow->ring = view;
}

/* The rings become the program's, which moves those of one queue or of all; with the RTNL held. */
static int ptnet_netmap_bind(struct ptnet_netmap *nm, struct ptnet *pt, u32 only, u64 flags)
{
	struct ptnet_queue *queue;
	struct nm_if *interface;
	size_t offset = PAGE_SIZE;

	if (nm->front || rtnl_dereference(pt->netmap))
		return -EBUSY;
	nm->front_bytes = ptnet_front_bytes(pt);
	nm->front = alloc_pages_exact(nm->front_bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!nm->front)
		return -ENOMEM;
	nm->back = pci_resource_start(pt->pdev, 2) +
		   round_down(pt->buffers - (u8 *)pt->memory, PAGE_SIZE);
	nm->back_bytes = ptnet_back_bytes(pt);
	nm->flags = flags;
	nm->first = only == PTNET_ALL_QUEUES ? 0 : only;
	nm->end = only == PTNET_ALL_QUEUES ? pt->queues_count : only + 1;
	interface = nm->front;
	strscpy(interface->name, pt->netdev->name, sizeof(interface->name));
	interface->version = NM_API;
	interface->flags = NM_IF_PRIV_MEM;
	interface->tx_rings = pt->queues_count;
	interface->rx_rings = pt->queues_count;
	for (queue = pt->queues; queue < pt->end; queue++) {
		ptnet_describe_ring(nm, pt, &nm->tx[queue->number], &queue->tx, queue->number,
				    offset);
		offset += ptnet_ring_bytes(&queue->tx);
		ptnet_describe_ring(nm, pt, &nm->rx[queue->number], &queue->rx, queue->number,
				    offset);
		offset += ptnet_ring_bytes(&queue->rx);
	}

	ptnet_quiesce(pt);
	mutex_lock(&nm->lock);
	ptnet_shadows_begin(nm, pt);
	nm->pt = pt;
	rcu_assign_pointer(pt->netmap, nm);
	mutex_unlock(&nm->lock);
	ptnet_follow(pt);
	return 0;
}

/* Whether the switch has taken what the program has sent. */
static bool ptnet_is_drained(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++)
		if (ptnet_available(&queue->tx) != queue->tx.count - 1)
			return false;
	return true;
}

/* Gives the rings back to the interface. */
static void ptnet_netmap_unbind(struct ptnet_netmap *nm)
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
			is_empty = ptnet_is_drained(pt);
		mutex_unlock(&nm->lock);
		if (is_empty)
			break;
		usleep_range(1000, 1100);
	}
	rtnl_lock();
	pt = nm->pt;
	if (pt) {
		RCU_INIT_POINTER(pt->netmap, NULL);
		nm->pt = NULL;
		/* It may have left a buffer in two slots. */
		ptnet_new_reset(pt);
		ptnet_follow(pt);
	}
	rtnl_unlock();
	/* Interrupt handlers that have seen it. */
	synchronize_rcu();
	if (nm->front)
		free_pages_exact(nm->front, nm->front_bytes);
	nm->front = NULL;
}

/* The interface of a request; with the RTNL held. */
static struct ptnet *ptnet_named(const char *name)
{
	struct net_device *netdev = __dev_get_by_name(&init_net, name);

	return netdev ? ptnet_of(netdev) : NULL;
}

static int ptnet_registration(struct ptnet_netmap *nm, const char *name, u32 mode, u16 ring,
			      u64 flags, struct nm_register *answer)
{
	struct ptnet *pt;
	int err;

	if (flags & (NM_MONITOR_TX | NM_MONITOR_RX | NM_ZCOPY_MON))
		return -EOPNOTSUPP;
	if (mode != NM_REG_DEFAULT && mode != NM_REG_ALL_NIC && mode != NM_REG_ONE_NIC)
		return -EINVAL;
	rtnl_lock();
	pt = ptnet_named(name);
	if (!pt)
		err = -ENXIO;
	else if (mode == NM_REG_ONE_NIC && ring >= pt->queues_count)
		err = -EINVAL;
	else
		err = ptnet_netmap_bind(nm, pt, mode == NM_REG_ONE_NIC ? ring : PTNET_ALL_QUEUES,
					flags);
	if (!err) {
		answer->offset = 0;
		answer->memsize = nm->front_bytes + nm->back_bytes;
		answer->tx_slots = pt->queues[0].tx.count;
		answer->rx_slots = pt->queues[0].rx.count;
		answer->tx_rings = pt->queues_count;
		answer->rx_rings = pt->queues_count;
		answer->host_tx_rings = 0;
		answer->host_rx_rings = 0;
		answer->mem_id = pt->netdev->ifindex;
		answer->extra_bufs = 0;
	}
	rtnl_unlock();
	/* A program that ended just before leaves none. Without an answer this one goes on:
	 * they come when there is a switch.
	 */
	if (!err)
		wait_event_interruptible_timeout(nm->wait, READ_ONCE(nm->has_rings),
						 PTNET_RINGS_PATIENCE);
	return err;
}

static int ptnet_port_info(const char *name, struct nm_port_info *answer, u32 *header_bytes)
{
	struct ptnet *pt;

	rtnl_lock();
	pt = ptnet_named(name);
	if (pt) {
		*answer = (struct nm_port_info) {
			.memsize = ptnet_front_bytes(pt) + ptnet_back_bytes(pt),
			.tx_slots = pt->queues[0].tx.count,
			.rx_slots = pt->queues[0].rx.count,
			.tx_rings = pt->queues_count,
			.rx_rings = pt->queues_count,
			.mem_id = pt->netdev->ifindex,
		};
		*header_bytes = pt->header_bytes;
	}
	rtnl_unlock();
	return pt ? 0 : -ENXIO;
}

static long ptnet_netmap_control(struct ptnet_netmap *nm, struct nm_header __user *argument)
{
	struct nm_port_hdr hdr = {};
	struct nm_register reg;
	struct nm_port_info info;
	struct nm_header header;
	u32 header_bytes;
	void __user *body;
	int err;

	if (copy_from_user(&header, argument, sizeof(header)))
		return -EFAULT;
	if (header.version < NM_API || header.version > NM_API_NEWEST)
		return -EINVAL;
	if (header.options)
		return -EOPNOTSUPP;
	if (strnlen(header.name, sizeof(header.name)) >= IFNAMSIZ)
		return -ENXIO;
	body = u64_to_user_ptr(header.body);

	switch (header.reqtype) {
	case NM_REQ_REGISTER:
		if (copy_from_user(&reg, body, sizeof(reg)))
			return -EFAULT;
		err = ptnet_registration(nm, header.name, reg.mode, reg.ringid, reg.flags, &reg);
		if (err)
			return err;
		return copy_to_user(body, &reg, sizeof(reg)) ? -EFAULT : 0;
	case NM_REQ_PORT_INFO_GET:
		err = ptnet_port_info(header.name, &info, &header_bytes);
		if (err)
			return err;
		return copy_to_user(body, &info, sizeof(info)) ? -EFAULT : 0;
	case NM_REQ_PORT_HDR_GET:
	case NM_REQ_PORT_HDR_SET:
		if (copy_from_user(&hdr, body, sizeof(hdr)))
			return -EFAULT;
		err = ptnet_port_info(header.name, &info, &header_bytes);
		if (err)
			return err;
		/* The host has decided on it. */
		if (header.reqtype == NM_REQ_PORT_HDR_SET)
			return hdr.header_bytes == header_bytes ? 0 : -EINVAL;
		hdr.header_bytes = header_bytes;
		return copy_to_user(body, &hdr, sizeof(hdr)) ? -EFAULT : 0;
	default:
		return -EOPNOTSUPP;
	}
}

static long ptnet_netmap_legacy(struct ptnet_netmap *nm, bool registers,
				struct nm_legacy __user *argument)
{
	struct nm_register reg = {};
	struct nm_legacy request;
	struct nm_port_info info;
	u32 header_bytes;
	u64 flags = 0;
	int err;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (request.version < NM_API_LEGACY_OLDEST || request.cmd)
		return -EINVAL;
	if (strnlen(request.name, sizeof(request.name)) >= IFNAMSIZ)
		return -ENXIO;
	if (registers) {
		if (request.ringid & NM_LEGACY_NO_TX_POLL)
			flags |= NM_NO_TX_POLL;
		if (request.ringid & NM_LEGACY_DO_RX_POLL)
			flags |= NM_DO_RX_POLL;
		flags |= request.flags & (NM_MONITOR_TX | NM_MONITOR_RX | NM_ZCOPY_MON);
		err = ptnet_registration(nm, request.name, request.flags & NM_LEGACY_MODE,
					 request.ringid & 0xfff, flags, &reg);
		if (err)
			return err;
		info.memsize = reg.memsize;
		info.tx_slots = reg.tx_slots;
		info.rx_slots = reg.rx_slots;
		info.tx_rings = reg.tx_rings;
		info.rx_rings = reg.rx_rings;
		info.mem_id = reg.mem_id;
	} else {
		err = ptnet_port_info(request.name, &info, &header_bytes);
		if (err)
			return err;
	}
	request.offset = 0;
	request.memsize = info.memsize;
	request.tx_slots = info.tx_slots;
	request.rx_slots = info.rx_slots;
	request.tx_rings = info.tx_rings;
	request.rx_rings = info.rx_rings;
	request.arg2 = info.mem_id;
	request.arg3 = 0;
	return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

static long ptnet_netmap_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	struct ptnet_netmap *nm = file->private_data;
	void __user *pointer = (void __user *)argument;

	switch (request) {
	case NM_IOCTXSYNC:
		return ptnet_netmap_sync(nm, true);
	case NM_IOCRXSYNC:
		return ptnet_netmap_sync(nm, false);
	case NM_IOCCTRL:
		return ptnet_netmap_control(nm, pointer);
	case NM_IOCREGIF:
	case NM_IOCGINFO:
		return ptnet_netmap_legacy(nm, request == NM_IOCREGIF, pointer);
	default:
		return -ENOTTY;
	}
}

static int ptnet_netmap_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ptnet_netmap *nm = file->private_data;
	size_t bytes = vma->vm_end - vma->vm_start;
	size_t front;
	int err;

	if (vma->vm_pgoff || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (!ptnet_netmap_lock(nm))
		return -ENXIO;
	err = -EINVAL;
	if (bytes > nm->front_bytes + nm->back_bytes)
		goto unlock;
	vma->vm_pgoff = nm->pgoff;
	front = min(bytes, nm->front_bytes);
	err = remap_pfn_range(vma, vma->vm_start, virt_to_phys(nm->front) >> PAGE_SHIFT, front,
			      vma->vm_page_prot);
	if (!err && bytes > front)
		err = remap_pfn_range(vma, vma->vm_start + front, nm->back >> PAGE_SHIFT,
				      bytes - front, vma->vm_page_prot);
unlock:
	mutex_unlock(&nm->lock);
	return err;
}

static int ptnet_netmap_open(struct inode *inode, struct file *file)
{
	struct ptnet_netmap *nm = kzalloc(sizeof(*nm), GFP_KERNEL_ACCOUNT);

	if (!nm)
		return -ENOMEM;
	mutex_init(&nm->lock);
	init_waitqueue_head(&nm->wait);
	nm->mapping = inode->i_mapping;
	nm->pgoff = (unsigned long)(atomic_inc_return(&ptnet_netmap_files) & 0xfffff)
		    << PTNET_FILE_PAGES_SHIFT;
	file->private_data = nm;
	return 0;
}

static int ptnet_netmap_release(struct inode *inode, struct file *file)
{
	struct ptnet_netmap *nm = file->private_data;

	ptnet_netmap_unbind(nm);
	kfree(nm);
	return 0;
}

static const struct file_operations ptnet_netmap_fops = {
	.owner = THIS_MODULE,
	.open = ptnet_netmap_open,
	.release = ptnet_netmap_release,
	.unlocked_ioctl = ptnet_netmap_ioctl,
	.mmap = ptnet_netmap_mmap,
	.poll = ptnet_netmap_poll,
};

static struct miscdevice ptnet_netmap_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "netmap",
	.mode = 0600,
	.fops = &ptnet_netmap_fops,
};

static bool ptnet_netmap_is_there;

void ptnet_netmap_init(void)
{
	int err = misc_register(&ptnet_netmap_device);

	ptnet_netmap_is_there = !err;
	if (err)
		pr_warn("ptnet: no /dev/netmap (%d); is netmap's own module loaded?\n", err);
}

void ptnet_netmap_exit(void)
{
	if (ptnet_netmap_is_there)
		misc_deregister(&ptnet_netmap_device);
}
