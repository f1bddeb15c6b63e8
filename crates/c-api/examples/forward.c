/* Forwards frames between two ports or pipes of the packet switch, without a copy where they share memory.
 *
 *   cc -O2 forward.c $(pkg-config --cflags --libs clearstream_user) -o forward
 *   ./forward vale0:a vale0:b 1000          forward 1000 frames from the first to the second
 *   ./forward 'chain}0' 'chain{1' 1000
 */
#include <clearstream_user.h>
#include <stdio.h>
#include <stdlib.h>

static int attach(struct cs_switch *to, const char *name, struct cs_port *port)
{
    const char *brace = strpbrk(name, "{}");
    char group[64];
    if (brace == NULL) return cs_attach_port(to, name, port);
    snprintf(group, sizeof group, "%.*s", (int)(brace - name), name);
    return cs_attach_pipe(to, group, (uint32_t)atoi(brace + 1), *brace == '{' ? CS_MASTER : CS_SLAVE, port);
}

int main(int count, char **words)
{
    struct cs_port one, other;
    struct cs_switch *to = count == 4 ? cs_connect(NULL) : NULL;
    if (to == NULL || attach(to, words[1], &one) < 0 || attach(to, words[2], &other) < 0) {
        fprintf(stderr, "forward: %s\n", count == 4 ? cs_error() : "FROM TO COUNT");
        return 1;
    }
    printf("attached\n");
    fflush(stdout);
    unsigned long wanted = strtoul(words[3], NULL, 10), forwarded = 0, swapped = 0;
    while (forwarded < wanted) {
        /* A batch: what has come, and as much room for it. Polls for 20 us, then sleeps. */
        int arrived = cs_wait(&one.rx, 20000, 10000);
        int room = arrived > 0 ? cs_wait(&other.tx, 20000, 10000) : arrived;
        if (room <= 0) {
            fprintf(stderr, "forward: %s\n", room == 0 ? "nothing for ten seconds" : strerror(errno));
            return 1;
        }
        uint32_t batch = (uint32_t)(arrived < room ? arrived : room);
        for (uint32_t at = 0; at < batch; at++) {
            if (cs_swap(&one.rx, at, &other.tx, at) == 0) {
                swapped++;
                continue;
            }
            uint16_t length;
            const uint8_t *frame = cs_frame(&one.rx, at, &length);
            if (frame == NULL || cs_put(&other.tx, at, frame, length) < 0) (void)cs_put_length(&other.tx, at, 0, 0);
        }
        if (cs_publish(&other.tx, batch) < 0 || cs_release(&one.rx, batch) < 0) return 1;
        forwarded += batch;
    }
    printf("forwarded %lu, %lu of them by swapping buffers\n", forwarded, swapped);
    /* What is still in the ring would go with us. */
    while (cs_look(&other.tx) >= 0 && other.tx.available + 1 < other.tx.slots_count) poll(NULL, 0, 1);
    cs_detach(to, &one);
    cs_detach(to, &other);
    cs_disconnect(to);
    return 0;
}
