// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/netmap in a guest: a program takes over rings of its interface (program.c)
 * and fills and empties the port's buffers itself, which it maps. Before the
 * buffers in the mapping it has rings of its own (netmap_rings.c).
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "program.h"

/* How long a registration waits for its rings. */
#define PTNET_RINGS_PATIENCE	(HZ / 2)

static_assert(sizeof(struct nm_header) == 88);
static_assert(sizeof(struct nm_register) == 56);
static_assert(sizeof(struct nm_port_info) == 32);
static_assert(sizeof(struct nm_legacy) == 60);

/* 4 GiB of offsets for each file, so that one can be unmapped alone. */
#define PTNET_FILE_PAGES_SHIFT	(32 - PAGE_SHIFT)
static atomic_t ptnet_netmap_files = ATOMIC_INIT(0);

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
	else if (mode == NM_REG_ONE_NIC)
		err = ptnet_netmap_bind(nm, pt, ring, ring + 1, flags);
	else
		err = ptnet_netmap_bind(nm, pt, 0, pt->queues_count, flags);
	if (!err) {
		answer->offset = ptnet_if_offset(pt, nm->first, nm->end);
		answer->memsize = nm->view->front_bytes + nm->view->back_bytes;
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
	u32 offset = 0;
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
		offset = reg.offset;
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
	request.offset = offset;
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
	struct ptnet_view *view;
	size_t front;
	int err;

	if (vma->vm_pgoff || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (!ptnet_netmap_lock(nm))
		return -ENXIO;
	err = -EINVAL;
	view = nm->view;
	if (bytes > view->front_bytes + view->back_bytes)
		goto unlock;
	vma->vm_pgoff = nm->pgoff;
	front = min(bytes, view->front_bytes);
	err = remap_pfn_range(vma, vma->vm_start, virt_to_phys(view->front) >> PAGE_SHIFT, front,
			      vma->vm_page_prot);
	if (!err && bytes > front)
		err = remap_pfn_range(vma, vma->vm_start + front, view->back >> PAGE_SHIFT,
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
