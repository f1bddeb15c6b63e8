#define _GNU_SOURCE
/* What netmap has beyond rings: monitors, the host's rings, headers, slots in parts, extra buffers. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "port.h"

static void submit(struct port *port, const void *frame, uint16_t length, uint16_t flags)
{
    struct ring *ring = port->tx;
    struct slot *slot = &ring->slot[ring->head];
    memcpy(buffer(ring, slot->buffer), frame, length);
    slot->length = length;
    slot->flags = flags;
    ring->head = ring->cur = next(ring, ring->head);
}

static void drain(struct port *port)
{
    struct ring *ring = port->tx;
    for (int turn = 0; next(ring, ring->tail) != ring->head; turn++) {
        CHECK(turn < 20000 && ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
        usleep(1000);
    }
}

/* The next frame, copied to `out`; how long it is. Others than of that length are passed over. */
static struct slot take(struct port *port, uint8_t *out)
{
    struct ring *ring = port->rx;
    while (is_empty(ring)) wait_for(port->fd, POLLIN, "poll");
    struct slot slot = ring->slot[ring->head];
    memcpy(out, buffer(ring, slot.buffer), slot.length);
    ring->head = ring->cur = next(ring, ring->head);
    return slot;
}

/* Frames numbered from 0 on pass the port `name`, of which `sent` ones were sent by it. */
static void monitor(const char *name, uint32_t count, uint64_t flags)
{
    static uint8_t frame[2048];
    struct registration body = { .mode = ALL, .flags = flags };
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0);
    CHECK(control(fd, REGISTER, "vale0:nobody", &body) == -1 && errno == ENXIO);
    CHECK(control(fd, REGISTER, "pipe{1", &body) == -1 && errno == EOPNOTSUPP);
    CHECK(control(fd, REGISTER, name, &body) == 0);
    struct port port = map(fd, body.offset, body.memory_bytes);
    printf("attached\n");
    fflush(stdout);
    uint32_t numbers[2] = { 0, 0 };
    for (uint32_t seen = 0; seen < count; seen++) {
        struct slot slot = take(&port, frame);
        int sent = (slot.flags & SENT) != 0;
        CHECK(flags & (sent ? MONITOR_TX : MONITOR_RX));
        CHECK(is_right(frame, slot.length, numbers[sent]++));
    }
    /* What is sent here leads nowhere, and is not waited for. */
    for (int turn = 0; turn < 3; turn++) submit(&port, frame, 60, 0);
    CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0 && next(port.tx, port.tx->tail) == port.tx->head);
}

static int header_length(int fd, const char *name)
{
    uint32_t body[2] = { 99, 0 };
    return control(fd, HEADER_GET, name, body) == 0 ? (int)body[0] : -1;
}

static int set_header(int fd, const char *name, uint32_t bytes)
{
    uint32_t body[2] = { bytes, 0 };
    return control(fd, HEADER_SET, name, body);
}

static void headers(const char *name)
{
    static uint8_t frame[2048], expected[2048];
    struct port plain = attach("vale0:plain", 0), port = attach(name, 0);
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(set_header(fd, name, 11) == -1 && errno == EINVAL);
    CHECK(set_header(fd, "vale0:nobody", 10) == -1 && errno == ENXIO);
    CHECK(set_header(fd, "pipe{1", 10) == -1 && errno == EINVAL);
    struct old_request old = { .version = 14, .command = OLD_SET_HEADER, .arg1 = 10 };
    strncpy(old.name, name, sizeof old.name - 1);
    CHECK(ioctl(fd, NIOCREGIF, &old) == 0 && header_length(fd, name) == 10);
    CHECK(set_header(fd, name, 12) == 0 && header_length(fd, name) == 12);
    old.command = OLD_GET_HEADER;
    CHECK(ioctl(fd, NIOCREGIF, &old) == 0 && old.arg1 == 12);
    CHECK(header_length(fd, "vale0:plain") == 0);
    /* Who does not expect a header does not get the port. */
    struct registration body = { .mode = ALL };
    CHECK(control(fd, REGISTER, name, &body) == -1 && errno == EIO);
    body.flags = ACCEPT_HEADER;
    CHECK(control(fd, REGISTER, name, &body) == 0);
    /* There the header goes, back it comes, empty. */
    fill(expected, 40);
    memcpy(frame + 12, expected, 100);
    submit(&port, frame, 112, 0);
    drain(&port);
    CHECK(take(&plain, frame).length == 100 && memcmp(frame, expected, 100) == 0);
    submit(&plain, expected, 100, 0);
    drain(&plain);
    CHECK(take(&port, frame).length == 112 && frame[0] == 0 && memcmp(frame + 12, expected, 100) == 0);
}

/* A packet in three slots, one of them elsewhere, and what becomes of flags. */
static void slots(void)
{
    static uint8_t elsewhere[100], frame[2048];
    struct port to = attach("vale0:to", 0), from = attach("vale0:from", 0);
    fill(frame, 40);
    memset(elsewhere, 7, sizeof elsewhere);
    uint32_t first = from.tx->head;
    submit(&from, frame, 100, MORE);
    from.tx->slot[from.tx->head].pointer = (uintptr_t)elsewhere;
    submit(&from, frame, 100, MORE | INDIRECT);
    submit(&from, frame, 100, REPORT | CHANGED);
    drain(&from);
    CHECK(!(from.tx->slot[(first + 2) % from.tx->slots].flags & (REPORT | CHANGED)));
    for (int part = 0; part < 3; part++) {
        struct slot slot = take(&to, frame);
        CHECK(slot.length == 100 && slot.flags == (0x300 | (part < 2 ? MORE : 0)));
        CHECK(part != 1 || memcmp(frame, elsewhere, 100) == 0);
    }
    /* An address that is none: nothing is sent, and nobody crashes. */
    from.tx->slot[from.tx->head].pointer = 8;
    submit(&from, elsewhere, 100, INDIRECT);
    fill(frame, 40);
    submit(&from, frame, 100, 0);
    drain(&from);
    CHECK(take(&to, frame).length == 100 && frame[0] == 0xff && is_empty(to.rx));
    /* A packet whose end never comes is sent as far as it is there. */
    fill(frame, 40);
    submit(&from, frame, 100, MORE);
    drain(&from);
    CHECK(take(&to, frame).flags == 0x100);
}

/* A list of spare buffers: all different, none in a ring, sent from without a copy, and free again. */
static void extra(void)
{
    static uint8_t seen[1 << 16], frame[2048];
    struct port to = attach("vale0:to", 0);
    for (int round = 0; round < 3; round++) {
        const uint32_t count = 3000;
        struct port port = attach("vale0:from", count);
        memset(seen, 0, sizeof seen);
        for (uint32_t at = 0; at < port.tx->slots; at++) {
            seen[port.tx->slot[at].buffer] = 1;
            seen[port.rx->slot[at].buffer] = 1;
        }
        uint32_t spare = port.interface->extra, found = 0;
        for (; spare != 0; found++) {
            CHECK(spare < sizeof seen && !seen[spare]);
            seen[spare] = 1;
            memcpy(&spare, buffer(port.tx, spare), sizeof spare);
        }
        CHECK(found == count);
        struct slot *slot = &port.tx->slot[port.tx->head];
        uint32_t own = slot->buffer;
        slot->buffer = port.interface->extra;
        memcpy(&port.interface->extra, buffer(port.tx, slot->buffer), 4);
        memcpy(buffer(port.tx, own), &port.interface->extra, 4);
        port.interface->extra = own;
        fill(frame, 40);
        submit(&port, frame, 100, CHANGED);
        drain(&port);
        CHECK(take(&to, frame).length == 100 && frame[0] == 0xff);
        CHECK(munmap(port.memory, port.bytes) == 0 && close(port.fd) == 0);
    }
}

/* Numbered frames, a thousand a second. */
static void stream_out(const char *name, uint32_t count)
{
    uint8_t frame[60];
    struct port port = attach(name, 0);
    printf("attached\n");
    fflush(stdout);
    fill(frame, 0);
    for (uint32_t number = 0; number < count; number++) {
        wait_for(port.fd, POLLOUT, "poll");
        memcpy(frame + 14, &number, sizeof number);
        submit(&port, frame, sizeof frame, 0);
        CHECK(ioctl(port.fd, NIOCTXSYNC, NULL) == 0);
        usleep(1000);
    }
    drain(&port);
}

/* The same: some may be missing, none comes twice or late, and the last one comes. */
static void stream_in(const char *name, uint32_t count)
{
    static uint8_t frame[2048];
    struct port port = attach(name, 0);
    printf("attached\n");
    fflush(stdout);
    uint32_t got = 0;
    for (uint32_t number, expected = 0; expected < count; expected = number + 1, got++) {
        CHECK(take(&port, frame).length == 60);
        memcpy(&number, frame + 14, sizeof number);
        CHECK(number >= expected && number < count);
    }
    CHECK(ioctl(port.fd, NIOCRXSYNC, NULL) == 0);
    printf("%u\n", got);
}

static struct ring *ring_at(struct port *port, uint32_t number)
{
    CHECK(port->interface->ring[number] != 0);
    return (void *)((char *)port->interface + port->interface->ring[number]);
}

static uint16_t checksum(const uint8_t *bytes, size_t length)
{
    uint32_t sum = 0;
    for (size_t at = 0; at < length; at += 2) sum += (uint32_t)(bytes[at] << 8 | bytes[at + 1]);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static const uint8_t ours[6] = { 2, 0, 0, 0, 0, 9 };

/* A socket of the host's stack to 192.0.2.2, on the device of that name; it waits 20 s at most. */
static int host_socket(const char *name, struct sockaddr_in *peer)
{
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = { 0 };
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.1") };
    memcpy(&request.ifr_addr, &address, sizeof address);
    CHECK(ioctl(s, SIOCSIFADDR, &request) == 0);
    address.sin_addr.s_addr = inet_addr("255.255.255.0");
    memcpy(&request.ifr_netmask, &address, sizeof address);
    CHECK(ioctl(s, SIOCSIFNETMASK, &request) == 0);
    request.ifr_flags = IFF_UP;
    CHECK(ioctl(s, SIOCSIFFLAGS, &request) == 0);
    *peer = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("192.0.2.2") };
    struct timeval limit = { 20, 0 };
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(connect(s, (void *)peer, sizeof *peer) == 0);
    return s;
}

static int asks_for(const uint8_t *frame, const struct sockaddr_in *peer)
{
    return frame[12] == 8 && frame[13] == 6 && memcmp(frame + 38, &peer->sin_addr, 4) == 0;
}

/* ARP (RFC 826): asked for, answered. */
static void answer_arp(uint8_t *answer, const uint8_t *frame, const struct sockaddr_in *peer)
{
    memcpy(answer, frame, 42);
    memcpy(answer, frame + 6, 6);
    memcpy(answer + 6, ours, 6);
    answer[21] = 2;
    memcpy(answer + 32, frame + 22, 10);
    memcpy(answer + 22, ours, 6);
    memcpy(answer + 28, &peer->sin_addr, 4);
}

static int is_datagram(const uint8_t *frame, uint8_t to)
{
    return frame[12] == 8 && frame[13] == 0 && frame[23] == 17 && frame[37] == to;
}

/* A datagram of 11 bytes back to where one came from. */
static void answer_datagram(uint8_t *back, const uint8_t *frame)
{
    memcpy(back, frame + 6, 6);
    memcpy(back + 6, ours, 6);
    memcpy(back + 12, frame + 12, 41);
    memcpy(back + 26, frame + 30, 4);
    memcpy(back + 30, frame + 26, 4);
    memcpy(back + 34, frame + 36, 2);
    memcpy(back + 36, frame + 34, 2);
    memset(back + 40, 0, 2);
    memcpy(back + 42, "to the host", 11);
}

static void expect_answer(int s)
{
    char text[16];
    CHECK(recv(s, text, sizeof text, 0) == 11 && memcmp(text, "to the host", 11) == 0);
}

/* The host's stack asks who has 192.0.2.2, sends it a datagram, and gets one back. */
static void host(const char *name)
{
    CHECK(unshare(CLONE_NEWNET) == 0);
    int fd = open("/dev/netmap", O_RDWR);
    struct registration body = { .mode = BOTH };
    CHECK(control(fd, REGISTER, "vale0:v", &body) == -1 && errno == EINVAL);
    CHECK(control(fd, REGISTER, "pipe{1", &body) == -1 && errno == EINVAL);
    CHECK(fd >= 0 && control(fd, REGISTER, name, &body) == 0);
    struct port port = map(fd, body.offset, body.memory_bytes);
    CHECK(port.interface->host_tx_rings == 1 && port.interface->host_rx_rings == 1);
    port.tx = ring_at(&port, 1);
    port.rx = ring_at(&port, 3);
    CHECK(port.tx->direction == 0 && port.rx->direction == 1);
    struct sockaddr_in peer;
    int s = host_socket(name, &peer);
    CHECK(send(s, "to the wire", 11, 0) == 11);

    static uint8_t frame[2048];
    for (int answered = 0;;) {
        struct slot slot = take(&port, frame);
        if (asks_for(frame, &peer) && !answered++) {
            uint8_t answer[42];
            answer_arp(answer, frame, &peer);
            submit(&port, answer, 42, 0);
            CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0);
        } else if (is_datagram(frame, 9)) {
            CHECK(slot.length == 14 + 20 + 8 + 11 && memcmp(frame + 42, "to the wire", 11) == 0);
            CHECK(checksum(frame + 14, 20) == 0);
            break;
        }
    }
    /* The same datagram back, in two slots. */
    uint8_t back[53];
    answer_datagram(back, frame);
    submit(&port, back, 30, MORE);
    submit(&port, back + 30, 23, 0);
    CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0 && next(port.tx, port.tx->tail) == port.tx->head);
    expect_answer(s);
}

/* Gives back all that has come, marked but for datagrams to port 10. */
static void pass_on(struct ring *ring)
{
    ring->flags |= FORWARD;
    for (; !is_empty(ring); ring->head = ring->cur = next(ring, ring->head)) {
        struct slot *slot = &ring->slot[ring->head];
        if (!is_datagram(buffer(ring, slot->buffer), 10)) slot->flags |= FORWARD;
    }
}

/* The same talk with somebody at the switch, the program between them marks what may pass. */
static void forward(const char *name)
{
    CHECK(unshare(CLONE_NEWNET) == 0);
    struct port wire = attach("vale0:wire", 0);
    int fd = open("/dev/netmap", O_RDWR);
    struct registration body = { .mode = BOTH };
    CHECK(fd >= 0 && control(fd, REGISTER, name, &body) == 0);
    struct port port = map(fd, body.offset, body.memory_bytes);
    struct sockaddr_in peer;
    int s = host_socket(name, &peer);
    struct sockaddr_in other = peer;
    other.sin_port = htons(10);

    static uint8_t frame[2048];
    uint8_t answer[53];
    CHECK(send(s, "to the wire", 11, 0) == 11);
    for (int heard = 0; heard < 2;) {
        struct pollfd both[2] = { { .fd = fd, .events = POLLIN }, { .fd = wire.fd, .events = POLLIN } };
        CHECK(poll(both, 2, 20000) > 0);
        pass_on(ring_at(&port, 2));
        pass_on(ring_at(&port, 3));
        CHECK(ioctl(fd, NIOCRXSYNC, NULL) == 0);
        while (!is_empty(wire.rx)) {
            struct slot slot = take(&wire, frame);
            CHECK(!is_datagram(frame, 10));
            if (asks_for(frame, &peer)) {
                answer_arp(answer, frame, &peer);
                submit(&wire, answer, 42, 0);
            } else if (is_datagram(frame, 9)) {
                CHECK(slot.length == 53 && memcmp(frame + 42, "to the wire", 11) == 0);
                answer_datagram(answer, frame);
                submit(&wire, answer, 53, 0);
                /* One that is not marked, and behind it one that is. */
                if (heard++ == 0) {
                    CHECK(sendto(s, "not to pass", 11, 0, (void *)&other, sizeof other) == 11);
                    CHECK(send(s, "to the wire", 11, 0) == 11);
                }
            }
        }
        drain(&wire);
    }
    /* Both answers are for the host: they wait in the port's ring until they are marked. */
    char text[16];
    for (int got = 0, turn = 0; got < 2; turn++) {
        struct pollfd one = { .fd = fd, .events = POLLIN };
        CHECK(turn < 2000 && poll(&one, 1, 10) >= 0);
        pass_on(ring_at(&port, 2));
        CHECK(ioctl(fd, NIOCRXSYNC, NULL) == 0);
        while (recv(s, text, sizeof text, MSG_DONTWAIT) == 11) got += memcmp(text, "to the host", 11) == 0;
    }
    /* Nothing comes twice. */
    CHECK(recv(s, text, sizeof text, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

int main(int count, char **words)
{
    CHECK(count == 5);
    const char *what = words[1], *name = words[2];
    if (strcmp(what, "monitor") == 0) {
        const char *how = words[4];
        uint64_t flags = (strchr(how, 't') ? MONITOR_TX : 0) | (strchr(how, 'r') ? MONITOR_RX : 0);
        monitor(name, (uint32_t)atoi(words[3]), flags | (strchr(how, 'z') ? ZERO_COPY : 0));
        printf("done\n");
        return 0;
    }
    if (strncmp(what, "stream", 6) == 0) {
        (strcmp(what, "stream-out") == 0 ? stream_out : stream_in)(name, (uint32_t)atoi(words[3]));
        return 0;
    }
    printf("attached\n");
    fflush(stdout);
    if (strcmp(what, "headers") == 0) headers(name);
    else if (strcmp(what, "slots") == 0) slots();
    else if (strcmp(what, "extra") == 0) extra();
    else if (strcmp(what, "host") == 0) host(name);
    else if (strcmp(what, "forward") == 0) forward(name);
    else return 2;
    printf("done\n");
    return 0;
}
