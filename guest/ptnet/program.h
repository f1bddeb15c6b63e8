/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs that have rings of an interface by /dev/netmap: their requests
 * (netmap.c), which rings they have (program.c), how these are moved
 * (netmap_rings.c), and what the interface calls.
 *
 * A program has one pair of rings, or all. Several may have different pairs of
 * one interface; all of them map the same pages.
 *
 * Locks: the RTNL, under which a program gets an interface and loses it; then
 * the programs' own in the order of their first queues, under which their rings
 * and the port's are moved.
 */
#ifndef PTNET_PROGRAM_H
#define PTNET_PROGRAM_H

#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/wait.h>

#include "netmap.h"
#include "port.h"

/* One direction of a queue's rings, as its program sees it. */
struct ptnet_shadow {
	struct nm_ring *ring;
	/* The tail that the program was told; its own memory may say anything. */
	u32 tail;
};

/* What the programs of a device map. */
struct ptnet_view {
	/* Files that have it; changed with the RTNL held. */
	u32 users;
	/* Interfaces and rings, in pages that come first. */
	void *front;
	size_t front_bytes;
	/* The part of the port's memory that follows. */
	phys_addr_t back;
	size_t back_bytes;
	struct ptnet_shadow tx[PTNET_QUEUES_MAX];
	struct ptnet_shadow rx[PTNET_QUEUES_MAX];
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
	/* NULL until it has got an interface. */
	struct ptnet_view *view;
	/* The queues that it moves: one, or all. */
	u32 first;
	u32 end;
	/* Which of the port's rings these are: their reset's number. */
	u64 resets;
	/* Whether there were any yet. */
	bool has_rings;
	u64 flags;
};

/* In netmap.c. */

void ptnet_netmap_init(void);
void ptnet_netmap_exit(void);

/* In program.c. */

/* The rings of these queues become the program's; with the RTNL held. */
int ptnet_netmap_bind(struct ptnet_netmap *nm, struct ptnet *pt, u32 first, u32 end, u64 flags);
/* Gives its rings back to the interface, if no other program has any. */
void ptnet_netmap_unbind(struct ptnet_netmap *nm);
/* Takes the device away from its programs, if it has any. */
void ptnet_netmap_detach(struct ptnet *pt);
/* Where the interface that has only these queues lies in what a program maps. */
size_t ptnet_if_offset(const struct ptnet *pt, u32 first, u32 end);
/* What a program maps: interfaces and rings, then a part of the port's memory. */
size_t ptnet_front_bytes(const struct ptnet *pt);
size_t ptnet_back_bytes(const struct ptnet *pt);

/* In netmap_rings.c. */

/* Whether programs have rings of the device; with the RTNL held. */
bool ptnet_netmap_has(struct ptnet *pt);
/* Around changes of the rings, with the RTNL held: programs wait meanwhile, and then find the
 * rings as they are.
 */
void ptnet_netmap_hold(struct ptnet *pt);
void ptnet_netmap_resume(struct ptnet *pt);
/* Wakes the program that has the queue's rings, if one has; in interrupt handlers. */
bool ptnet_netmap_wake(struct ptnet_queue *queue);
/* The program's rings begin where the port's are; with its lock held. */
void ptnet_shadows_begin(struct ptnet_netmap *nm, struct ptnet *pt);
/* Whether a switch serves the rings; without one nothing is moved. */
bool ptnet_is_served(struct ptnet *pt);
/* The device, with the program's lock held; NULL when it has gone. */
struct ptnet *ptnet_netmap_lock(struct ptnet_netmap *nm);
/* NIOCTXSYNC or NIOCRXSYNC. */
long ptnet_netmap_sync(struct ptnet_netmap *nm, bool sends);
__poll_t ptnet_netmap_poll(struct file *file, poll_table *table);

#endif
