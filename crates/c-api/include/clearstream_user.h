/* Ports and pipes of ClearStream's packet switch for programs in C99 and C++, in the style of net/netmap_user.h.
 *
 *   cc program.c $(pkg-config --cflags --libs clearstream_user)
 *
 * The library connects, attaches and detaches; it exports the functions declared here and no other name.
 * Everything else is inline here and works on the shared memory that docs/attachment.md describes. You hold
 * some slots of each ring. On a transmit ring, cs_reserve() returns how many are free, cs_put() fills one, and
 * cs_publish() hands them over. On a receive ring, cs_peek() returns how many frames have arrived, cs_frame()
 * returns one, and cs_release() returns the slots. Only one thread at a time may use a ring.
 *
 * Functions that return int return -1 when the other side broke the protocol (errno EPROTO) or a system call
 * failed (its errno). */
#ifndef CLEARSTREAM_USER_H
#define CLEARSTREAM_USER_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Layout of the memory, version 1. */
#define CS_LAYOUT_VERSION 1
#define CS_USER_CSB_OFFSET 4096
#define CS_OWNER_CSB_OFFSET 8192
#define CS_CSB_BYTES 64
#define CS_RING_HEADER_BYTES 256
#define CS_FIRST_BUFFER 2

/* Flags of a slot: its buffer was exchanged; its packet continues in the next slot. */
#define CS_BUFFER_CHANGED 0x01
#define CS_MORE_FRAGMENTS 0x20

/* One slot of a ring, 16 bytes: its buffer, and the length of the frame in it. */
struct cs_slot {
    uint32_t buffer;
    uint16_t length_bytes;
    uint16_t flags;
    uint64_t unused;
};

/* Cursors that the user of a ring writes, and those that its owner writes: one cache line each. */
struct cs_user_csb { uint32_t head, cur, sleeps, unused[13]; };
struct cs_owner_csb { uint32_t hwcur, hwtail, sleeps, unused[13]; };

/* Your side of a ring. You may read its fields; only the functions below write them. */
struct cs_ring {
    struct cs_user_csb *user;
    struct cs_owner_csb *owner;
    struct cs_slot *slots;
    uint8_t *buffers;
    uint32_t slots_count, buffer_bytes, buffers_count;
    /* 1 if you are the ring's owner: the receiving end of a pipe. */
    uint32_t is_owner;
    uint32_t position, available, asked, answered;
    int32_t their_bell, our_bell;
};

/* A port or a pipe's end. */
struct cs_port {
    struct cs_ring tx, rx;
    uint32_t header_bytes; /* length of the virtio-net header before each frame */
    uint32_t attachment;
    void *held; /* private to the library */
};

struct cs_switch;
enum cs_end { CS_MASTER = 0, CS_SLAVE = 1 };

/* Connects to the switch that serves `socket`; NULL for the default path. Returns NULL on failure, with
 * the reason in cs_error(). Ports attached over one connection share a mapping where they share memory. */
struct cs_switch *cs_connect(const char *socket);
/* Attachments end with their connection. */
void cs_disconnect(struct cs_switch *);
/* Attaches to port `vale0:a`, created if it does not exist. 0, or -1 with the reason in cs_error(). */
int cs_attach_port(struct cs_switch *, const char *port, struct cs_port *);
/* Attaches to one end of pipe `pipe` of a group, which must exist. */
int cs_attach_pipe(struct cs_switch *, const char *group, uint32_t pipe, enum cs_end, struct cs_port *);
/* Detaches; the rings must not be used any more. */
void cs_detach(struct cs_switch *, struct cs_port *);
/* A descriptor that is readable when an attachment or the switch has ended. */
int cs_switch_fd(const struct cs_switch *);
/* The last error in this thread. */
const char *cs_error(void);
/* The clock of cs_wait(); strict C has none. */
uint64_t cs_now_ns(void);

static inline uint32_t cs_after(const struct cs_ring *ring, uint32_t index, uint32_t count)
{
    uint32_t sum = index + count;
    return sum >= ring->slots_count ? sum - ring->slots_count : sum;
}

/* Reads how many slots you hold. */
static inline int cs_look(struct cs_ring *ring)
{
    const uint32_t *theirs = ring->is_owner ? &ring->user->head : &ring->owner->hwtail;
    uint32_t cursor = __atomic_load_n(theirs, __ATOMIC_ACQUIRE);
    uint32_t now = cursor >= ring->position ? cursor - ring->position
                                            : cursor + ring->slots_count - ring->position;
    if (cursor >= ring->slots_count || now < ring->available) {
        errno = EPROTO;
        return -1;
    }
    ring->available = now;
    return (int)now;
}

/* Number of slots you hold; reads the other side's cursor only when fewer than `wanted` are known. */
static inline int cs_reserve(struct cs_ring *ring, uint32_t wanted)
{
    return ring->available < wanted ? cs_look(ring) : (int)ring->available;
}
static inline int cs_peek(struct cs_ring *ring, uint32_t wanted) { return cs_reserve(ring, wanted); }

/* A copy of the `offset`th of your slots; buffer 0 when you do not hold it. */
static inline struct cs_slot cs_get(const struct cs_ring *ring, uint32_t offset)
{
    struct cs_slot slot = { 0, 0, 0, 0 };
    uint64_t word;
    if (offset >= ring->available) return slot;
    word = __atomic_load_n((const uint64_t *)(const void *)&ring->slots[cs_after(ring, ring->position, offset)],
                           __ATOMIC_RELAXED);
    memcpy(&slot, &word, sizeof word);
    return slot;
}

static inline void cs_set(struct cs_ring *ring, uint32_t offset, struct cs_slot slot)
{
    uint64_t word;
    if (offset >= ring->available) return;
    memcpy(&word, &slot, sizeof word);
    __atomic_store_n((uint64_t *)(void *)&ring->slots[cs_after(ring, ring->position, offset)], word,
                     __ATOMIC_RELAXED);
}

/* The buffer of a slot, `buffer_bytes` long; NULL when there is no buffer of that number. */
static inline uint8_t *cs_buffer(const struct cs_ring *ring, struct cs_slot slot)
{
    if (slot.buffer < CS_FIRST_BUFFER || slot.buffer >= ring->buffers_count) return NULL;
    return ring->buffers + (size_t)slot.buffer * ring->buffer_bytes;
}

/* Sets your `offset`th slot to hold a frame, or with CS_MORE_FRAGMENTS a part of one. 0 or -1. */
static inline int cs_put_length(struct cs_ring *ring, uint32_t offset, uint16_t length_bytes, uint16_t flags)
{
    struct cs_slot slot = cs_get(ring, offset);
    if (length_bytes > ring->buffer_bytes || cs_buffer(ring, slot) == NULL) {
        errno = EMSGSIZE;
        return -1;
    }
    slot.length_bytes = length_bytes;
    slot.flags = (uint16_t)((slot.flags & CS_BUFFER_CHANGED) | flags);
    cs_set(ring, offset, slot);
    return 0;
}

/* Copies a frame into your `offset`th slot. 0 or -1. */
static inline int cs_put(struct cs_ring *ring, uint32_t offset, const void *frame, uint16_t length_bytes)
{
    uint8_t *to = cs_buffer(ring, cs_get(ring, offset));
    if (to == NULL || cs_put_length(ring, offset, length_bytes, 0) < 0) return -1;
    memcpy(to, frame, length_bytes);
    return 0;
}

/* The frame of your `offset`th slot; NULL when you hold no such slot. */
static inline const uint8_t *cs_frame(const struct cs_ring *ring, uint32_t offset, uint16_t *length_bytes)
{
    struct cs_slot slot = cs_get(ring, offset);
    *length_bytes = slot.length_bytes <= ring->buffer_bytes ? slot.length_bytes : 0;
    return cs_buffer(ring, slot);
}

/* Hands over your first `count` slots, and wakes the other side if it sleeps. 0 or -1. */
static inline int cs_publish(struct cs_ring *ring, uint32_t count)
{
    uint32_t before, asked;
    uint64_t one = 1;
    if (count > ring->available) count = ring->available;
    if (count == 0) return 0;
    ring->available -= count;
    ring->position = cs_after(ring, ring->position, count);
    before = ring->position == 0 ? ring->slots_count - 1 : ring->position - 1;
    /* Writes to slots and buffers become visible before the cursor that hands them over. */
    if (ring->is_owner) {
        __atomic_store_n(&ring->owner->hwcur, ring->position, __ATOMIC_RELAXED);
        __atomic_store_n(&ring->owner->hwtail, before, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(&ring->user->cur, ring->position, __ATOMIC_RELAXED);
        __atomic_store_n(&ring->user->head, ring->position, __ATOMIC_RELEASE);
    }
    /* The cursor becomes visible before the other side's request to be woken is read. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    asked = __atomic_load_n(ring->is_owner ? &ring->user->sleeps : &ring->owner->sleeps, __ATOMIC_RELAXED);
    if (asked == 0 || (asked == ring->answered && asked != 1)) return 0;
    ring->answered = asked;
    return write(ring->their_bell, &one, sizeof one) == sizeof one || errno == EAGAIN ? 0 : -1;
}
static inline int cs_release(struct cs_ring *ring, uint32_t count) { return cs_publish(ring, count); }

/* Requests a wake-up when slots arrive, to poll `our_bell` with other descriptors. 1: sleep; 0: some just arrived;
 * -1: error. Always call cs_disarm() when awake. */
static inline int cs_arm(struct cs_ring *ring)
{
    uint32_t before = ring->available, *mine = ring->is_owner ? &ring->owner->sleeps : &ring->user->sleeps;
    int now;
    ring->asked = ring->asked + 1 < 2 ? 2 : ring->asked + 1;
    __atomic_store_n(mine, ring->asked, __ATOMIC_RELAXED);
    /* The request becomes visible before the last read of the other side's cursor. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    now = cs_look(ring);
    return now < 0 ? -1 : (uint32_t)now == before;
}

static inline void cs_disarm(struct cs_ring *ring)
{
    uint64_t rung;
    __atomic_store_n(ring->is_owner ? &ring->owner->sleeps : &ring->user->sleeps, 0, __ATOMIC_RELAXED);
    /* Does not wait: there may be no event. */
    if (read(ring->our_bell, &rung, sizeof rung) < 0) return;
}

/* Waits until you hold a slot: polls for `linger_ns`, then sleeps; UINT64_MAX only polls. Returns the number of slots,
 * 0 after `timeout_ms`, or -1. */
static inline int cs_wait(struct cs_ring *ring, uint64_t linger_ns, uint32_t timeout_ms)
{
    uint64_t began = cs_now_ns(), passed, timeout_ns = (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        int now = 0, turn, sleeps;
        for (turn = 0; turn < 32 && now == 0; turn++) now = cs_look(ring);
        if (now != 0) return now;
        passed = cs_now_ns() - began;
        if (passed >= timeout_ns) return 0;
        if (passed < linger_ns) continue;
        sleeps = cs_arm(ring);
        if (sleeps == 1) {
            struct pollfd bell = { ring->our_bell, POLLIN, 0 };
            if (poll(&bell, 1, (int)((timeout_ns - passed) / 1000000u) + 1) < 0 && errno != EINTR) sleeps = -1;
        }
        cs_disarm(ring);
        if (sleeps < 0) return -1;
    }
}

/* Forwards a frame without copying it: exchanges the buffers of a received slot and of a reserved one. 0, or
 * -1 when the rings do not share one memory (errno EXDEV) or you do not hold a slot. */
static inline int cs_swap(struct cs_ring *from, uint32_t received, struct cs_ring *to, uint32_t reserved)
{
    struct cs_slot full = cs_get(from, received), empty = cs_get(to, reserved);
    uint32_t free_buffer = empty.buffer;
    if (from->buffers != to->buffers || cs_buffer(from, full) == NULL || cs_buffer(to, empty) == NULL) {
        errno = EXDEV;
        return -1;
    }
    full.flags |= CS_BUFFER_CHANGED;
    cs_set(to, reserved, full);
    full.buffer = free_buffer;
    cs_set(from, received, full);
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
