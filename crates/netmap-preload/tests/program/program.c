#define _GNU_SOURCE
/* A netmap program that knows nothing of what is behind /dev/netmap. It checks every byte it gets. */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "port.h"

static void send_frames(struct port *port, uint32_t count, const char *how)
{
    struct ring *ring = port->tx;
    for (uint32_t number = 0; number < count;) {
        wait_for(port->fd, POLLOUT, how);
        for (; number < count && !is_empty(ring); number++) {
            struct slot *slot = &ring->slot[ring->head];
            fill(buffer(ring, slot->buffer), number);
            slot->length = length_of(number);
            slot->flags = 0;
            ring->head = ring->cur = next(ring, ring->head);
        }
        CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
    }
    /* All but one slot come back: everything has been taken. */
    for (int turn = 0; next(ring, ring->tail) != ring->head; turn++) {
        CHECK(turn < 20000);
        usleep(1000);
        CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
    }
}

static void receive_frames(struct port *port, uint32_t count, const char *how)
{
    struct ring *ring = port->rx;
    uint32_t spare = port->interface->extra;
    for (uint32_t number = 0; number < count;) {
        wait_for(port->fd, POLLIN, how);
        for (; number < count && !is_empty(ring); number++) {
            struct slot *slot = &ring->slot[ring->head];
            CHECK(is_right(buffer(ring, slot->buffer), slot->length, number));
            if (spare) {
                /* Keep this buffer, and give the one kept before in its place. */
                uint32_t kept = slot->buffer;
                slot->buffer = spare;
                slot->flags |= CHANGED;
                spare = kept;
                memset(buffer(ring, spare), 0, 4);
            }
            ring->head = ring->cur = next(ring, ring->head);
        }
    }
    port->interface->extra = spare;
    CHECK(ioctl(port->fd, NIOCRXSYNC, NULL) == 0);
}

/* A packet of three slots, the second of them elsewhere in memory. */
static void send_parts(struct port *port)
{
    static uint8_t elsewhere[100];
    struct ring *ring = port->tx;
    memset(elsewhere, 7, sizeof elsewhere);
    for (int part = 0; part < 3; part++) {
        struct slot *slot = &ring->slot[ring->head];
        fill(buffer(ring, slot->buffer), (uint32_t)part);
        slot->length = 100;
        slot->flags = part < 2 ? MORE : 0;
        if (part == 1) {
            slot->flags |= INDIRECT;
            slot->pointer = (uintptr_t)elsewhere;
        }
        ring->head = ring->cur = next(ring, ring->head);
    }
    CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
}

static void receive_parts(struct port *port)
{
    struct ring *ring = port->rx;
    int parts = 0;
    while (parts < 3) {
        wait_for(port->fd, POLLIN, "poll");
        for (; !is_empty(ring) && parts < 3; parts++) {
            struct slot *slot = &ring->slot[ring->head];
            CHECK(slot->length == 100);
            CHECK(!(slot->flags & MORE) == (parts == 2));
            CHECK(parts != 1 || buffer(ring, slot->buffer)[50] == 7);
            ring->head = ring->cur = next(ring, ring->head);
        }
    }
}

/* Cursors outside of what is held: netmap says so once and sets them back. */
static void misbehave(struct port *port)
{
    struct pollfd entry = { .fd = port->fd, .events = POLLOUT };
    port->tx->head = port->tx->cur = port->tx->slots + 7;
    CHECK(poll(&entry, 1, 1000) == 1 && (entry.revents & POLLERR));
    CHECK(port->tx->head == 0 && port->tx->tail == port->tx->slots - 1);
    port->tx->slot[0].buffer = 1u << 30;
    port->tx->slot[0].length = 60;
    port->tx->head = port->tx->cur = 1;
    CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
    CHECK(port->tx->slot[0].buffer < (1u << 20));
}

static void copies(struct port *port)
{
    int other = dup(port->fd), far = fcntl(port->fd, F_DUPFD, 100);
    CHECK(other >= 0 && far >= 100);
    CHECK(close(port->fd) == 0);
    CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == -1);
    CHECK(ioctl(other, NIOCTXSYNC, NULL) == 0 && ioctl(far, NIOCRXSYNC, NULL) == 0);
    CHECK(close(other) == 0 && dup2(far, port->fd) == port->fd && close(far) == 0);
    CHECK(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
}

/* Waiting for netmap and for something else. */
static void mixed(struct port *port)
{
    int ends[2];
    char byte = 1;
    CHECK(pipe(ends) == 0);
    struct pollfd entries[2] = { { .fd = ends[0], .events = POLLIN }, { .fd = port->fd, .events = POLLIN } };
    CHECK(poll(entries, 2, 30) == 0);
    CHECK(entries[0].revents == 0 && entries[1].revents == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(20000);
        _exit(write(ends[1], &byte, 1) == 1 ? 0 : 1);
    }
    CHECK(poll(entries, 2, 20000) == 1);
    CHECK(entries[0].revents == POLLIN && entries[1].revents == 0);
    entries[1].events = POLLIN | POLLOUT;
    CHECK(poll(entries, 2, -1) == 2 && entries[1].revents == POLLOUT);
    int set = epoll_create1(0);
    struct epoll_event one = { .events = EPOLLIN, .data.u32 = 1 }, two = { .events = EPOLLOUT, .data.u32 = 2 };
    struct epoll_event got[2];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &one) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, port->fd, &two) == 0);
    CHECK(epoll_wait(set, got, 2, -1) == 2 && got[0].data.u32 + got[1].data.u32 == 3);
    two.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, port->fd, &two) == 0 && read(ends[0], &byte, 1) == 1);
    CHECK(epoll_wait(set, got, 2, 30) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, port->fd, NULL) == 0);
    errno = 0;
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, port->fd, NULL) == -1 && errno == ENOENT);
    /* The number means something else once it is closed, however it is closed. */
    int other = dup(port->fd);
    CHECK(close_range((unsigned)other, (unsigned)other, 0) == 0 && dup(ends[0]) == other);
    errno = 0;
    CHECK(ioctl(other, NIOCTXSYNC, NULL) == -1 && errno == ENOTTY);
}

/* Nothing of netmap: files, memory, sockets, other processes. */
static void plain(const char *file)
{
    char text[6] = "";
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0640);
    struct stat status;
    CHECK(fd >= 0 && write(fd, "hello", 5) == 5 && fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0640);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED && memcmp(mapped, "hello", 5) == 0 && munmap(mapped, 4096) == 0);
    CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && close(fd) == 0);
    CHECK(openat(AT_FDCWD, "/nonexistent", O_RDONLY) == -1 && errno == ENOENT && unlink(file) == 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    CHECK(connect(near, (void *)&address, length) == 0);
    wait_for(listener, POLLIN, "poll");
    int far = accept(listener, NULL, NULL), waiting = -1;
    wait_for(near, POLLOUT, "select");
    CHECK(write(near, "hello", 5) == 5);
    wait_for(far, POLLIN, "epoll");
    CHECK(ioctl(far, FIONREAD, &waiting) == 0 && waiting == 5 && read(far, text, 5) == 5 && !strcmp(text, "hello"));
    CHECK(system("exec true") == 0);
}

static _Alignas(64) struct to_kernel ours[2];
static _Alignas(64) struct to_program theirs[2];

static void *serve(void *port)
{
    uint32_t sleep_us[2] = { 100, 0 };
    struct header header = { .version = API, .kind = LOOP_START, .body = (uintptr_t)sleep_us };
    CHECK(ioctl(((struct port *)port)->fd, NIOCCTRL, &header) == 0);
    return NULL;
}

/* Cursors in memory of our own, and a thread that netmap works in. */
static void send_by_csb(const char *name, uint32_t count)
{
    struct csb_option option = { { .kind = OPTION_CSB, .status = 99 }, (uintptr_t)ours, (uintptr_t)theirs };
    struct registration body = { .mode = ALL, .flags = EXCLUSIVE };
    struct header header = { .version = API, .kind = REGISTER, .body = (uintptr_t)&body, .options = (uintptr_t)&option };
    strncpy(header.name, name, sizeof header.name - 1);
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0 && ioctl(fd, NIOCCTRL, &header) == 0 && option.option.status == 0);
    struct port port = map(fd, body.offset, body.memory_bytes);
    errno = 0;
    CHECK(ioctl(fd, NIOCTXSYNC, NULL) == -1 && errno == EBUSY);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &port) == 0);
    struct ring *ring = port.tx;
    uint32_t head = ours[0].head;
    for (uint32_t number = 0; number < count;) {
        uint32_t tail = __atomic_load_n(&theirs[0].hwtail, __ATOMIC_ACQUIRE);
        if (head == tail) usleep(50);
        for (; number < count && head != tail; number++, head = next(ring, head)) {
            struct slot *slot = &ring->slot[head];
            fill(buffer(ring, slot->buffer), number);
            slot->length = length_of(number);
        }
        __atomic_store_n(&ours[0].cur, head, __ATOMIC_RELEASE);
        __atomic_store_n(&ours[0].head, head, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&theirs[0].hwcur, __ATOMIC_ACQUIRE) != head) usleep(50);
    struct header stop = { .version = API, .kind = LOOP_STOP };
    CHECK(ioctl(fd, NIOCCTRL, &stop) == 0 && pthread_join(thread, NULL) == 0 && close(fd) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 5);
    if (strcmp(words[1], "send-csb") == 0) {
        printf("attached\n");
        fflush(stdout);
        send_by_csb(words[2], (uint32_t)atoi(words[3]));
        printf("done\n");
        return 0;
    }
    if (strcmp(words[1], "plain") == 0) {
        plain(words[2]);
        return 0;
    }
    const char *what = words[1], *name = words[2], *how = words[4];
    uint32_t frames = (uint32_t)atoi(words[3]);
    struct port port = strcmp(how, "old") == 0 ? attach_the_old_way(name)
                                               : attach(name, strcmp(how, "swap") == 0 ? 1 : 0);
    printf("attached\n");
    fflush(stdout);
    if (strcmp(what, "send") == 0) send_frames(&port, frames, how);
    else if (strcmp(what, "receive") == 0) receive_frames(&port, frames, how);
    else if (strcmp(what, "reflect") == 0) {
        receive_frames(&port, frames, how);
        send_frames(&port, frames, how);
    }
    else if (strcmp(what, "send-parts") == 0) send_parts(&port);
    else if (strcmp(what, "send-and-exit") == 0) {
        struct ring *ring = port.tx;
        for (uint32_t number = 0; number < frames; number++) {
            struct slot *slot = &ring->slot[ring->head];
            fill(buffer(ring, slot->buffer), number);
            slot->length = length_of(number);
            ring->head = ring->cur = next(ring, ring->head);
        }
        CHECK(ioctl(port.fd, NIOCTXSYNC, NULL) == 0);
        printf("done\n");
        exit(0);
    }
    else if (strcmp(what, "receive-parts") == 0) receive_parts(&port);
    else if (strcmp(what, "misbehave") == 0) misbehave(&port);
    else if (strcmp(what, "copies") == 0) copies(&port);
    else if (strcmp(what, "mixed") == 0) mixed(&port);
    else return 2;
    CHECK(munmap(port.memory, port.bytes) == 0 && close(port.fd) == 0);
    printf("done\n");
    return 0;
}
