/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/netmap of the guest: what it shares with programs (netmap's API 14, as
 * far as a port needs it).
 */
#ifndef PTNET_NETMAP_H
#define PTNET_NETMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define NM_API			14
#define NM_API_NEWEST		15
#define NM_API_LEGACY_OLDEST	11

struct nm_header {
	__u16 version;
	__u16 reqtype;
	__u32 reserved;
	char name[64];
	__u64 options;
	__u64 body;
};

enum {
	NM_REQ_REGISTER = 1,
	NM_REQ_PORT_INFO_GET = 2,
	NM_REQ_PORT_HDR_SET = 6,
	NM_REQ_PORT_HDR_GET = 7,
};

struct nm_register {
	__u64 offset;
	__u64 memsize;
	__u32 tx_slots;
	__u32 rx_slots;
	__u16 tx_rings;
	__u16 rx_rings;
	__u16 host_tx_rings;
	__u16 host_rx_rings;
	__u16 mem_id;
	__u16 ringid;
	__u32 mode;
	__u32 extra_bufs;
	__u32 pad;
	__u64 flags;
};

/* Modes. */
enum {
	NM_REG_DEFAULT,
	NM_REG_ALL_NIC,
	NM_REG_ONE_NIC = 4,
};

/* Flags that change what a registration is; others are hints. */
#define NM_MONITOR_TX		0x100
#define NM_MONITOR_RX		0x200
#define NM_ZCOPY_MON		0x400
#define NM_DO_RX_POLL		0x10000
#define NM_NO_TX_POLL		0x20000

struct nm_port_info {
	__u64 memsize;
	__u32 tx_slots;
	__u32 rx_slots;
	__u16 tx_rings;
	__u16 rx_rings;
	__u16 host_tx_rings;
	__u16 host_rx_rings;
	__u16 mem_id;
	__u16 pad[3];
};

struct nm_port_hdr {
	__u32 header_bytes;
	__u32 pad;
};

/* The argument of the older requests. */
struct nm_legacy {
	char name[16];
	__u32 version;
	__u32 offset;
	__u32 memsize;
	__u32 tx_slots;
	__u32 rx_slots;
	__u16 tx_rings;
	__u16 rx_rings;
	__u16 ringid;
	__u16 cmd;
	__u16 arg1;
	__u16 arg2;
	__u32 arg3;
	__u32 flags;
	__u32 spare;
};

#define NM_LEGACY_MODE		0xf
#define NM_LEGACY_NO_TX_POLL	0x1000
#define NM_LEGACY_DO_RX_POLL	0x8000

#define NM_IOCGINFO	_IOWR('i', 145, struct nm_legacy)
#define NM_IOCREGIF	_IOWR('i', 146, struct nm_legacy)
#define NM_IOCTXSYNC	_IO('i', 148)
#define NM_IOCRXSYNC	_IO('i', 149)
#define NM_IOCCTRL	_IOWR('i', 151, struct nm_header)

/* Mapped by programs. */
struct nm_if {
	char name[16];
	__u32 version;
	__u32 flags;
	__u32 tx_rings;
	__u32 rx_rings;
	__u32 bufs_head;
	__u32 host_tx_rings;
	__u32 host_rx_rings;
	__u32 spare[3];
	/* Of the rings to transmit, then of those to receive. */
	__s64 ring_ofs[];
};

#define NM_IF_PRIV_MEM		1

struct nm_slot {
	__u32 buf_idx;
	__u16 len;
	__u16 flags;
	__u64 ptr;
};

struct nm_ring {
	__s64 buf_ofs;
	__u32 num_slots;
	__u32 buf_size;
	__u16 ringid;
	__u16 dir;
	__u32 head;
	__u32 cur;
	__u32 tail;
	__u32 flags;
	__u32 pad;
	__s64 seconds;
	__s64 microseconds;
	__u8 reserved[200];
	struct nm_slot slot[];
};

#define NM_BUF_CHANGED		0x01
#define NM_MORE_FRAGMENTS	0x20

#endif
