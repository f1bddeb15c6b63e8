/* The DPDK side of the packet benchmarks: what it can carry where nothing else is asked of it.
 *
 *   dpdk-peer EAL-OPTIONS -- ring SECONDS            bare pointers from one lcore to another
 *   dpdk-peer EAL-OPTIONS -- frames SECONDS BYTES    frames from one lcore to another: a buffer each, written
 *                                                    whole and read whole
 *   dpdk-peer EAL-OPTIONS -- forward SECONDS BYTES   frames out of port 0, back in at port 1
 *
 * Prints how many a second arrived. Bursts are of 256 on a ring of 1024, as ours are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_ring.h>

#define RING 1024
#define BURST 256
#define FORWARD_BURST 32

/* The frame that is written, its number into bytes 44 to 51, as ours are. */
static uint8_t frame[2048] __attribute__((aligned(64)));
/* What was read, so that it is. */
static volatile uint64_t seen;

/* rte_exit's words go to a log that is off. */
static void fail(const char *why)
{
	fprintf(stderr, "%s\n", why);
	exit(1);
}

static volatile int over;

static struct rte_mempool *pool;
static uint16_t frame_bytes;

static int fill(void *ring)
{
	void *some[BURST];

	for (unsigned i = 0; i < BURST; i++)
		some[i] = &some[i];
	while (!over)
		rte_ring_sp_enqueue_burst(ring, some, BURST, NULL);
	return 0;
}

static int fill_with_frames(void *ring)
{
	struct rte_mbuf *some[BURST];
	unsigned sent = BURST;
	uint64_t number = 0;

	while (!over) {
		if (sent == BURST) {
			if (rte_pktmbuf_alloc_bulk(pool, some, BURST))
				continue;
			for (unsigned i = 0; i < BURST; i++) {
				char *data = rte_pktmbuf_mtod(some[i], char *);

				some[i]->data_len = some[i]->pkt_len = frame_bytes;
				rte_memcpy(data, frame, frame_bytes);
				memcpy(data + 44, &number, sizeof(number));
				number++;
			}
			sent = 0;
		}
		sent += rte_ring_sp_enqueue_burst(ring, (void **)some + sent, BURST - sent, NULL);
	}
	return 0;
}

/* The words of a frame added up, the last filled up with zeros. */
static inline uint64_t sum(const uint8_t *data, unsigned bytes)
{
	uint64_t all = 0, word = 0;
	unsigned at = 0;

	for (; at + 8 <= bytes; at += 8) {
		memcpy(&word, data + at, 8);
		all += word;
	}
	word = 0;
	memcpy(&word, data + at, bytes - at);
	return all + word;
}

/* What arrived of at most a burst; with buffers, the frames are read and they are given back. */
static unsigned drain(struct rte_ring *ring, uint64_t *bytes)
{
	void *some[BURST];
	unsigned came = rte_ring_sc_dequeue_burst(ring, some, BURST, NULL);
	uint64_t content = 0;

	if (pool) {
		for (unsigned i = 0; i < came; i++) {
			struct rte_mbuf *one = some[i];

			*bytes += one->pkt_len;
			/* Of the usual length the compiler knows how many words there are. */
			content += one->pkt_len == 60 ? sum(rte_pktmbuf_mtod(one, uint8_t *), 60) :
							sum(rte_pktmbuf_mtod(one, uint8_t *), one->pkt_len);
		}
		seen += content;
		rte_pktmbuf_free_bulk((struct rte_mbuf **)some, came);
	}
	return came;
}

static double through_ring(double seconds)
{
	struct rte_ring *ring = rte_ring_create("bench", RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	uint64_t bytes = 0, count = 0, first, now;

	if (!ring || rte_eal_remote_launch(pool ? fill_with_frames : fill, ring, rte_get_next_lcore(-1, 1, 0)))
		fail("no ring or no second lcore");
	while (!count)
		count = drain(ring, &bytes);
	count = 0;
	first = now = rte_get_timer_cycles();
	while (now - first < seconds * rte_get_timer_hz()) {
		for (int i = 0; i < 64; i++)
			count += drain(ring, &bytes);
		now = rte_get_timer_cycles();
	}
	over = 1;
	rte_eal_mp_wait_lcore();
	return (double)count * rte_get_timer_hz() / (now - first);
}

static void start(uint16_t port)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	if (rte_eth_dev_configure(port, 1, 1, &conf) ||
	    rte_eth_rx_queue_setup(port, 0, RING, SOCKET_ID_ANY, NULL, pool) ||
	    rte_eth_tx_queue_setup(port, 0, RING, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(port))
		fail("a port does not start");
}

static void send_some(void)
{
	struct rte_mbuf *some[FORWARD_BURST];
	unsigned sent;

	if (rte_pktmbuf_alloc_bulk(pool, some, FORWARD_BURST))
		return;
	for (unsigned i = 0; i < FORWARD_BURST; i++) {
		some[i]->data_len = some[i]->pkt_len = frame_bytes;
	}
	sent = rte_eth_tx_burst(0, 0, some, FORWARD_BURST);
	rte_pktmbuf_free_bulk(some + sent, FORWARD_BURST - sent);
}

static unsigned take_some(void)
{
	struct rte_mbuf *some[FORWARD_BURST];
	unsigned came = rte_eth_rx_burst(1, 0, some, FORWARD_BURST);

	rte_pktmbuf_free_bulk(some, came);
	return came;
}

static double through_forwarder(double seconds)
{
	uint64_t hz = rte_get_timer_hz(), began = rte_get_timer_cycles(), count = 0, first = 0, now;

	if (rte_eth_dev_count_avail() != 2)
		fail("not two ports");
	start(0);
	start(1);
	for (;;) {
		for (int i = 0; i < 64; i++) {
			send_some();
			count += take_some();
		}
		now = rte_get_timer_cycles();
		if (!first) {
			if (count) {
				first = now;
				count = 0;
			} else if (now - began > 10 * hz) {
				fail("nothing comes back");
			}
		} else if (now - first > seconds * hz) {
			return (double)count * hz / (now - first);
		}
	}
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	double rate;

	if (used < 0)
		return 1;
	argc -= used;
	argv += used;
	if (argc < 3)
		return 2;
	if (argc == 4) {
		frame_bytes = atoi(argv[3]);
		pool = rte_pktmbuf_pool_create("bench", 16383, 512, 0, 2304, SOCKET_ID_ANY);
		if (!pool)
			fail("no memory");
	}
	rate = strcmp(argv[1], "forward") ? through_ring(atof(argv[2])) : through_forwarder(atof(argv[2]));
	printf("%.0f\n", rate);
	return 0;
}
