// SPDX-License-Identifier: GPL-2.0
/*
 * The rings of programs. A synchronisation copies the slots that a program moved
 * to the port's rings, 8 bytes each, and those that have come back from there;
 * frames are not copied. What the program writes is checked here only so far as
 * this kernel depends on it: the switch checks what it finds in the port's rings
 * anyway.
 */
#include <linux/rtnetlink.h>
#include <linux/timekeeping.h>

#include "program.h"

static_assert(sizeof(struct nm_slot) == sizeof(struct ptnet_slot));

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

void ptnet_shadows_begin(struct ptnet_netmap *nm, struct ptnet *pt)
{
	u32 i;

	for (i = nm->first; i < nm->end; i++) {
		struct ptnet_queue *queue = &pt->queues[i];

		ptnet_shadow_begin(&nm->view->tx[i], &queue->tx,
				   pt->has_rings ? ptnet_available(&queue->tx) : 0);
		ptnet_shadow_begin(&nm->view->rx[i], &queue->rx, 0);
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
		err = ptnet_sync(pt, &nm->view->tx[i], &pt->queues[i].tx);
	return err;
}

static int ptnet_rxsync(struct ptnet_netmap *nm, struct ptnet *pt)
{
	struct timespec64 now;
	int err = 0;
	u32 i;

	ktime_get_real_ts64(&now);
	for (i = nm->first; i < nm->end && !err; i++) {
		WRITE_ONCE(nm->view->rx[i].ring->seconds, now.tv_sec);
		WRITE_ONCE(nm->view->rx[i].ring->microseconds, now.tv_nsec / NSEC_PER_USEC);
		err = ptnet_sync(pt, &nm->view->rx[i], &pt->queues[i].rx);
	}
	return err;
}

/* Whether a switch serves the rings; without one nothing is moved. */
bool ptnet_is_served(struct ptnet *pt)
{
	return pt->has_rings && ptnet_load(&pt->guest->link);
}

/* The device, with the program's lock held; NULL when it has gone. */
struct ptnet *ptnet_netmap_lock(struct ptnet_netmap *nm)
{
	mutex_lock(&nm->lock);
	if (nm->pt)
		return nm->pt;
	mutex_unlock(&nm->lock);
	return NULL;
}

long ptnet_netmap_sync(struct ptnet_netmap *nm, bool sends)
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

		is_ready |= direction == PTNET_TX ? ptnet_is_ready(&nm->view->tx[i], &queue->tx) :
						    ptnet_is_ready(&nm->view->rx[i], &queue->rx);
	}
	return is_ready;
}

__poll_t ptnet_netmap_poll(struct file *file, poll_table *table)
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

/* What the interface calls. */

/* The program whose first queue this is. */
static struct ptnet_netmap *ptnet_program_at(struct ptnet_queue *queue)
{
	struct ptnet_netmap *nm = rtnl_dereference(queue->netmap);

	return nm && nm->first == queue->number ? nm : NULL;
}

bool ptnet_netmap_has(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++)
		if (rtnl_dereference(queue->netmap))
			return true;
	return false;
}

void ptnet_netmap_hold(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	for (queue = pt->queues; queue < pt->end; queue++) {
		struct ptnet_netmap *nm = ptnet_program_at(queue);

		if (nm)
			mutex_lock_nested(&nm->lock, nm->first);
	}
}

void ptnet_netmap_resume(struct ptnet *pt)
{
	struct ptnet_queue *queue;

	if (ptnet_netmap_has(pt))
		ptnet_forget_answers(pt);
	for (queue = pt->queues; queue < pt->end; queue++) {
		struct ptnet_netmap *nm = ptnet_program_at(queue);

		if (!nm)
			continue;
		if (pt->has_rings && nm->resets != pt->resets)
			ptnet_shadows_begin(nm, pt);
		mutex_unlock(&nm->lock);
		wake_up_interruptible(&nm->wait);
	}
}

bool ptnet_netmap_wake(struct ptnet_queue *queue)
{
	struct ptnet_netmap *nm;

	rcu_read_lock();
	nm = rcu_dereference(queue->netmap);
	if (nm)
		wake_up_interruptible(&nm->wait);
	rcu_read_unlock();
	return nm;
}
