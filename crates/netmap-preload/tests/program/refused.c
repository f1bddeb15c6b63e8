#define _GNU_SOURCE
/* Says with which error numbers ports are refused: for each name that of opening `vale0:NAME`, and that of making
 * a port NAME. */
#include "port.h"

struct new_port { uint32_t tx_slots, rx_slots; uint16_t tx_rings, rx_rings, memory, pad[5]; };
enum { NEW_PORT = 8 };

int main(int count, char **words)
{
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0);
    for (int at = 1; at < count; at++) {
        char name[64];
        struct registration body = { .mode = ALL };
        struct new_port new_port = { 0 };
        snprintf(name, sizeof name, "vale0:%s", words[at]);
        CHECK(control(fd, REGISTER, name, &body) == -1);
        int opened = errno;
        CHECK(control(fd, NEW_PORT, words[at], &new_port) == -1);
        printf("%s %d %d\n", words[at], opened, errno);
    }
    return 0;
}
