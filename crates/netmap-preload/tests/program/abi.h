/* netmap's interface to programs, as far as program.c uses it: layouts and numbers, API 14. */
#ifndef ABI_H
#define ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

struct slot { uint32_t buffer; uint16_t length, flags; uint64_t pointer; };

struct ring {
    int64_t to_buffers;
    uint32_t slots, buffer_bytes;
    uint16_t number, direction;
    uint32_t head, cur, tail, flags;
    struct timeval stamp;
    uint64_t offset_mask, align;
    uint8_t room[56 + 128];
    struct slot slot[];
};

struct interface {
    char name[16];
    uint32_t version, flags, tx_rings, rx_rings, extra, host_tx_rings, host_rx_rings, spare[3];
    int64_t ring[];
};

struct header {
    uint16_t version, kind;
    uint32_t reserved;
    char name[64];
    uint64_t options, body;
};

struct registration {
    uint64_t offset, memory_bytes;
    uint32_t tx_slots, rx_slots;
    uint16_t tx_rings, rx_rings, host_tx_rings, host_rx_rings, memory, ring;
    uint32_t mode, extra;
    uint64_t flags;
};

struct old_request {
    char name[16];
    uint32_t version, offset, memory_bytes, tx_slots, rx_slots;
    uint16_t tx_rings, rx_rings, ring, command, arg1, memory;
    uint32_t extra, flags, spare;
};

struct option { uint64_t next; uint32_t kind, status; uint64_t bytes; };
struct csb_option { struct option option; uint64_t to_kernel, to_program; };
struct to_kernel { uint32_t head, cur, kick, flags, pad[12]; };
struct to_program { uint32_t hwcur, hwtail, kick, pad[13]; };

_Static_assert(sizeof(struct slot) == 16, "slot");
_Static_assert(offsetof(struct ring, slot) == 256, "ring");
_Static_assert(offsetof(struct interface, ring) == 56, "interface");
_Static_assert(sizeof(struct header) == 88, "header");
_Static_assert(sizeof(struct registration) == 56, "registration");
_Static_assert(sizeof(struct old_request) == 60, "old request");

enum { LOOP_START = 13, LOOP_STOP = 14, OPTION_CSB = 3, EXCLUSIVE = 0x800 };
enum { API = 14, REGISTER = 1, ALL = 1, NIOCTXSYNC = 0x6994, NIOCRXSYNC = 0x6995 };
#define NIOCCTRL 0xc0586997UL
#define NIOCREGIF 0xc03c6992UL
enum { HOST_ONLY = 2, BOTH = 3, HEADER_SET = 6, HEADER_GET = 7, POLL_ON = 10, POLL_OFF = 11 };
enum { MONITOR_TX = 0x100, MONITOR_RX = 0x200, ZERO_COPY = 0x400, ACCEPT_HEADER = 0x8000 };
enum { OLD_SET_HEADER = 5, OLD_GET_HEADER = 12 };
enum { FORWARD = 4 /* of a slot, and of a ring */ };
enum { CHANGED = 1, REPORT = 2, INDIRECT = 0x10, MORE = 0x20, SENT = 0x40 };

#endif
