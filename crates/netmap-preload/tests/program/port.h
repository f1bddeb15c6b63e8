/* Attaching to a port as programs do, and waiting for it in every way there is. */
#ifndef PORT_H
#define PORT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

#include "abi.h"

#define CHECK(what) do { if (!(what)) { \
    fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno)); exit(1); } } while (0)

struct port { int fd; char *memory; uint64_t bytes; struct interface *interface; struct ring *tx, *rx; };

static inline struct port map(int fd, uint64_t offset, uint64_t bytes)
{
    struct port port = { .fd = fd, .bytes = bytes };
    port.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(port.memory != MAP_FAILED);
    struct interface *interface = (void *)(port.memory + offset);
    CHECK(interface->version == API);
    uint32_t tx_rings = interface->tx_rings + interface->host_tx_rings;
    port.interface = interface;
    port.tx = (void *)((char *)interface + interface->ring[0]);
    port.rx = (void *)((char *)interface + interface->ring[tx_rings]);
    CHECK(port.tx->direction == 0 && port.rx->direction == 1);
    return port;
}

/* Asks for something of a name; what came of it, as ioctl says. */
static inline int control(int fd, uint16_t kind, const char *name, void *body)
{
    struct header header = { .version = API, .kind = kind, .body = (uintptr_t)body };
    strncpy(header.name, name, sizeof header.name - 1);
    errno = 0;
    return ioctl(fd, NIOCCTRL, &header);
}

static inline struct port attach(const char *name, uint32_t extra)
{
    int fd = open("/dev/netmap", O_RDWR);
    struct registration body = { .mode = ALL, .extra = extra };
    CHECK(fd >= 0 && control(fd, REGISTER, name, &body) == 0);
    CHECK(body.extra == extra && body.tx_slots > 1 && body.memory > 0);
    CHECK(control(fd, REGISTER, name, &body) == -1 && errno == EBUSY);
    return map(fd, body.offset, body.memory_bytes);
}

static inline struct port attach_the_old_way(const char *name)
{
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0);
    struct old_request request = { .version = 11, .flags = ALL };
    strncpy(request.name, name, sizeof request.name - 1);
    CHECK(ioctl(fd, NIOCREGIF, &request) == 0);
    return map(fd, request.offset, request.memory_bytes);
}

static inline uint8_t *buffer(struct ring *ring, uint32_t index)
{
    return (uint8_t *)ring + ring->to_buffers + (uint64_t)index * ring->buffer_bytes;
}

static inline uint32_t next(struct ring *ring, uint32_t at) { return at + 1 == ring->slots ? 0 : at + 1; }
static inline int is_empty(struct ring *ring) { return ring->head == ring->tail; }

static inline uint16_t length_of(uint32_t number) { return 60 + number % 1400; }

static inline void fill(uint8_t *frame, uint32_t number)
{
    static const uint8_t to_all[12] = { 255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1 };
    memcpy(frame, to_all, 12);
    for (uint32_t at = 12; at < length_of(number); at++) frame[at] = (uint8_t)(number + at * 7);
}

static inline int is_right(const uint8_t *frame, uint16_t length, uint32_t number)
{
    if (length != length_of(number)) return 0;
    for (uint32_t at = 12; at < length; at++) if (frame[at] != (uint8_t)(number + at * 7)) return 0;
    return 1;
}

static inline void wait_for(int fd, short events, const char *how)
{
    if (strcmp(how, "select") == 0) {
        fd_set set;
        struct timeval limit = { 20, 0 };
        FD_ZERO(&set);
        FD_SET(fd, &set);
        CHECK(select(fd + 1, events == POLLIN ? &set : NULL, events == POLLIN ? NULL : &set, NULL, &limit) == 1);
        CHECK(FD_ISSET(fd, &set));
    } else if (strcmp(how, "pselect") == 0) {
        fd_set set;
        struct timespec limit = { 20, 0 };
        sigset_t none;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        sigemptyset(&none);
        CHECK(pselect(fd + 1, events == POLLIN ? &set : NULL, events == POLLIN ? NULL : &set, NULL, &limit, &none) == 1);
        CHECK(FD_ISSET(fd, &set));
    } else if (strcmp(how, "ppoll") == 0) {
        struct pollfd entry = { .fd = fd, .events = events };
        struct timespec limit = { 20, 0 };
        sigset_t none;
        sigemptyset(&none);
        CHECK(ppoll(&entry, 1, &limit, &none) == 1 && entry.revents == events);
    } else if (strncmp(how, "epoll", 5) == 0) {
        static int sets[2] = { -1, -1 };
        int *set = &sets[events == POLLIN];
        struct epoll_event event = { .events = (uint32_t)events, .data.u64 = 4711 };
        if (*set < 0) {
            *set = epoll_create1(0);
            CHECK(epoll_ctl(*set, EPOLL_CTL_ADD, fd, &event) == 0);
        }
        struct epoll_event got = { 0 };
        if (strcmp(how, "epoll-pwait") == 0) {
            sigset_t none;
            sigemptyset(&none);
            CHECK(epoll_pwait(*set, &got, 1, 20000, &none) == 1);
        } else {
            CHECK(epoll_wait(*set, &got, 1, 20000) == 1);
        }
        CHECK(got.data.u64 == 4711 && (got.events & (uint32_t)events));
    } else {
        struct pollfd entry = { .fd = fd, .events = events };
        CHECK(poll(&entry, 1, 20000) == 1);
        CHECK(entry.revents == events);
    }
}

#endif
