/* Two ends of an MX job for the tests of the library: `program ROLE [HOST]`. The end that receives says "ready" and
 * serves one peer; the end that sends connects to endpoint 1 of HOST. What fails is said, and the exit is 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mx_extensions.h"

#define FILTER 0x12345
#define ID 1
#define PING 0x1000000000000001ull
#define PONG 0x1000000000000002ull
#define MS_MAX 20000

static mx_endpoint_t endpoint;

static void fail(const char *what, int code, const char *text)
{
    printf("FAILED: %s: %d (%s)\n", what, code, text);
    exit(1);
}

static void must(const char *what, mx_return_t code)
{
    if (code != MX_SUCCESS) fail(what, (int)code, mx_strerror(code));
}

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted) {
        printf("FAILED: %s: %ld, expected %ld\n", what, got, wanted);
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static mx_status_t end_of(const char *what, mx_request_t *request)
{
    mx_status_t status;
    uint32_t result;
    must(what, mx_wait(endpoint, request, MS_MAX, &status, &result));
    if (!result) fail(what, 0, "it has not ended");
    return status;
}

static mx_request_t begin_send(mx_endpoint_addr_t to, uint64_t match, void *bytes, uint32_t count)
{
    mx_segment_t segment;
    mx_request_t request;
    segment.segment_ptr = bytes;
    segment.segment_length = count;
    must("mx_isend", mx_isend(endpoint, &segment, 1, to, match, &segment, &request));
    return request;
}

static void send_all(mx_endpoint_addr_t to, uint64_t match, void *bytes, uint32_t count)
{
    mx_request_t request = begin_send(to, match, bytes, count);
    mx_status_t status = end_of("a send", &request);
    expect("status of a send", status.code, MX_STATUS_SUCCESS);
    expect("length of a send", (long)status.xfer_length, (long)count);
}

static mx_request_t begin_receive(uint64_t match, uint64_t mask, void *bytes, uint32_t count)
{
    mx_segment_t segment;
    mx_request_t request;
    segment.segment_ptr = bytes;
    segment.segment_length = count;
    must("mx_irecv", mx_irecv(endpoint, &segment, 1, match, mask, bytes, &request));
    return request;
}

static mx_status_t receive(uint64_t match, uint64_t mask, void *bytes, uint32_t count)
{
    mx_request_t request = begin_receive(match, mask, bytes, count);
    return end_of("a receive", &request);
}

static void open_endpoint(uint32_t id)
{
    must("mx_init", mx_init());
    mx_set_error_handler(MX_ERRORS_RETURN);
    must("mx_open_endpoint", mx_open_endpoint(MX_ANY_NIC, id, FILTER, NULL, 0, &endpoint));
}

static mx_endpoint_addr_t connect_to(const char *host, uint32_t filter)
{
    mx_endpoint_addr_t to;
    uint64_t nic_id, found;
    uint32_t id;
    must("mx_hostname_to_nic_id", mx_hostname_to_nic_id((char *)host, &nic_id));
    must("mx_connect", mx_connect(endpoint, nic_id, ID, filter, MS_MAX, &to));
    must("mx_decompose_endpoint_addr", mx_decompose_endpoint_addr(to, &found, &id));
    expect("NIC id of the peer", (long)found, (long)nic_id);
    expect("endpoint id of the peer", (long)id, ID);
    return to;
}

static void finish(void)
{
    must("mx_close_endpoint", mx_close_endpoint(endpoint));
    must("mx_finalize", mx_finalize());
    printf("good\n");
}

static const uint32_t lengths[] = {0, 1, 32, 128, 4096, 4097, 32768, 32769, 1000000, 4000000};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static unsigned char pattern(uint32_t seed, uint32_t at)
{
    return (unsigned char)(seed * 7 + at * 13 + (at >> 8));
}

/* Each message comes back to whoever the status says sent it, changed. */
static void serve(void)
{
    unsigned char *bytes = malloc(4000000);
    size_t index;
    open_endpoint(ID);
    printf("ready\n");
    fflush(stdout);
    for (index = 0; index < LENGTHS; index++) {
        mx_status_t status = receive(PING, MX_MATCH_MASK_NONE, bytes, 4000000);
        uint32_t at;
        expect("status of a receive", status.code, MX_STATUS_SUCCESS);
        expect("length of a message", (long)status.msg_length, (long)lengths[index]);
        for (at = 0; at < status.xfer_length; at++) {
            if (bytes[at] != pattern((uint32_t)index, at)) fail("a byte of a message", (int)at, "it differs");
            bytes[at] ^= 0xff;
        }
        send_all(status.source, PONG, bytes, status.xfer_length);
    }
    free(bytes);
    finish();
}

static void ping(const char *host)
{
    unsigned char *bytes = malloc(4000000);
    mx_endpoint_addr_t to;
    size_t index;
    open_endpoint(MX_ANY_ENDPOINT);
    to = connect_to(host, FILTER);
    for (index = 0; index < LENGTHS; index++) {
        mx_request_t back;
        mx_status_t status;
        uint32_t at, count = lengths[index];
        for (at = 0; at < count; at++) bytes[at] = pattern((uint32_t)index, at);
        send_all(to, PING, bytes, count);
        back = begin_receive(PONG, MX_MATCH_MASK_NONE, bytes, count);
        status = end_of("an answer", &back);
        expect("status of an answer", status.code, MX_STATUS_SUCCESS);
        expect("length of an answer", (long)status.xfer_length, (long)count);
        for (at = 0; at < count; at++) {
            if (bytes[at] != (unsigned char)~pattern((uint32_t)index, at)) fail("a byte of an answer", (int)at, "it differs");
        }
    }
    free(bytes);
    finish();
}

/* Says "talking" after a first message; then sends until a send fails, which must be in bounded time. */
static void outlive(const char *host)
{
    static unsigned char bytes[100000];
    mx_endpoint_addr_t to;
    mx_status_t status;
    double began;
    open_endpoint(MX_ANY_ENDPOINT);
    to = connect_to(host, FILTER);
    send_all(to, PING, bytes, 0);
    printf("talking\n");
    fflush(stdout);
    for (began = seconds(); seconds() - began < 15; usleep(1000)) {
        mx_segment_t segment = {bytes, sizeof bytes};
        mx_request_t request;
        must("mx_issend", mx_issend(endpoint, &segment, 1, to, PING, NULL, &request));
        status = end_of("a synchronous send", &request);
        if (status.code != MX_STATUS_SUCCESS) {
            mx_return_t again;
            uint64_t nic_id;
            uint32_t id;
            printf("status %d: %s\n", (int)status.code, mx_strstatus(status.code));
            mx_decompose_endpoint_addr(to, &nic_id, &id);
            again = mx_connect(endpoint, nic_id, id, FILTER, MS_MAX, &to);
            expect("mx_connect to a peer that ended", (long)again, MX_CONNECTION_FAILED);
            finish();
            return;
        }
    }
    fail("sends to a peer that was killed", 0, "none has failed");
}

/* Receives until it is killed. */
static void receive_for_ever(void)
{
    static unsigned char bytes[100000];
    open_endpoint(ID);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        mx_request_t request = begin_receive(PING, MX_MATCH_MASK_NONE, bytes, sizeof bytes);
        mx_status_t status;
        uint32_t result;
        must("mx_wait", mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
    }
}

struct seen {
    int count;
    mx_request_t request;
    char bytes[8];
};

/* Takes the first message itself, posts a receive for the second, leaves the others. */
static mx_unexp_handler_action_t handle(void *context, mx_endpoint_addr_t source, uint64_t match,
                                        uint32_t length, void *data)
{
    struct seen *seen = context;
    mx_status_t status;
    uint32_t result;
    (void)source;
    seen->count++;
    expect("match of an unexpected message", (long)match, 100 + seen->count);
    expect("a test inside the handler", mx_test_any(endpoint, 0, 0, &status, &result), MX_CLOSE_IN_HANDLER);
    if (seen->count == 1) {
        expect("length of an unexpected message", (long)length, 6);
        if (data == NULL || memcmp(data, "first", 6) != 0) fail("data of an unexpected message", 0, "it differs");
        return MX_RECV_FINISHED;
    }
    if (seen->count == 2) seen->request = begin_receive(102, MX_MATCH_MASK_NONE, seen->bytes, sizeof seen->bytes);
    return MX_RECV_CONTINUE;
}

static void check_handler(mx_endpoint_addr_t own)
{
    struct seen seen = {0, NULL, {0}};
    static char large[100000];
    mx_request_t request;
    mx_status_t status;
    must("mx_register_unexp_handler", mx_register_unexp_handler(endpoint, handle, &seen));
    send_all(own, 101, "first", 6);
    send_all(own, 102, "second", 7);
    request = begin_send(own, 103, large, sizeof large);
    while (seen.count < 3) must("mx_progress", mx_progress(endpoint));
    status = end_of("the receive of the handler", &seen.request);
    expect("its length", (long)status.msg_length, 7);
    expect("its bytes", memcmp(seen.bytes, "second", 7), 0);
    must("mx_register_unexp_handler", mx_register_unexp_handler(endpoint, NULL, NULL));
    status = receive(103, MX_MATCH_MASK_NONE, large, sizeof large);
    expect("the third message's length", (long)status.xfer_length, sizeof large);
    end_of("the third message's send", &request);
}

static void check_requests(mx_endpoint_addr_t own)
{
    char bytes[64], pieces[2][3];
    mx_segment_t segments[2];
    mx_request_t one, two, found;
    mx_status_t status;
    uint32_t result;
    void *context;
    /* Truncation. */
    send_all(own, 7, "0123456789", 10);
    status = receive(7, MX_MATCH_MASK_NONE, bytes, 4);
    expect("status of a short receive", status.code, MX_STATUS_TRUNCATED);
    expect("its message's length", (long)status.msg_length, 10);
    expect("what it received", (long)status.xfer_length, 4);
    /* Pieces. */
    segments[0].segment_ptr = pieces[0];
    segments[1].segment_ptr = pieces[1];
    segments[0].segment_length = segments[1].segment_length = 3;
    must("mx_irecv", mx_irecv(endpoint, segments, 2, 8, MX_MATCH_MASK_NONE, &one, &one));
    must("mx_context", mx_context(&one, &context));
    expect("the context of a request", context == &one, 1);
    send_all(own, 8, "abcde", 5);
    status = end_of("a receive of pieces", &one);
    expect("its pieces", memcmp(pieces[0], "abc", 3) | memcmp(pieces[1], "de", 2), 0);
    expect("its context", status.context == &one, 1);
    /* Cancelled and forgotten receives take nothing that is told. */
    one = begin_receive(9, MX_MATCH_MASK_NONE, bytes, 1);
    must("mx_cancel", mx_cancel(endpoint, &one, &result));
    expect("an unmatched receive is cancelled", (long)result, 1);
    expect("and gone", mx_test(endpoint, &one, &status, &result), MX_BAD_REQUEST);
    one = begin_receive(9, MX_MATCH_MASK_NONE, bytes, 1);
    must("mx_forget", mx_forget(endpoint, &one));
    send_all(own, 9, "x", 1);
    must("mx_test_any", mx_test_any(endpoint, 0, 0, &status, &result));
    expect("a forgotten receive is not told", (long)result, 0);
    /* Any request, and the first that ended. */
    one = begin_receive(0x10, MX_MATCH_MASK_NONE, bytes, 1);
    two = begin_receive(0x20, MX_MATCH_MASK_NONE, bytes + 1, 1);
    send_all(own, 0x20, "t", 1);
    must("mx_peek", mx_peek(endpoint, MS_MAX, &found, &result));
    expect("the request that ended", found == two, 1);
    must("mx_ibuffered", mx_ibuffered(endpoint, &one, &result));
    expect("a receive without a message has ended", (long)result, 0);
    must("mx_wait_any", mx_wait_any(endpoint, 20, 0x10, 0x10, &status, &result));
    expect("a result before its message", (long)result, 0);
    send_all(own, 0x10, "o", 1);
    must("mx_wait_any", mx_wait_any(endpoint, MS_MAX, 0x10, 0x10, &status, &result));
    expect("a result after its message", (long)result && status.match_info == 0x10, 1);
    must("mx_ipeek", mx_ipeek(endpoint, &found, &result));
    end_of("the second receive", &two);
    /* Probes. */
    must("mx_iprobe", mx_iprobe(endpoint, 0, 0, &status, &result));
    expect("no message waits", (long)result, 0);
    send_all(own, 0xab30, "waits", 6);
    must("mx_probe", mx_probe(endpoint, MS_MAX, 0x30, 0xff, &status, &result));
    expect("a message that waits", (long)result && status.match_info == 0xab30, 1);
    expect("its length", (long)status.msg_length, 6);
    receive(0x30, 0xff, bytes, sizeof bytes);
    /* A time. */
    one = begin_receive(0x40, MX_MATCH_MASK_NONE, bytes, 1);
    must("mx_set_request_timeout", mx_set_request_timeout(endpoint, one, 20));
    status = end_of("a receive whose time is over", &one);
    expect("its status", status.code, MX_STATUS_TIMEOUT);
    /* No progress while it is disabled. */
    one = begin_receive(0x50, MX_MATCH_MASK_NONE, bytes, 1);
    must("mx_disable_progression", mx_disable_progression(endpoint));
    must("mx_wait", mx_wait(endpoint, &one, 20, &status, &result));
    expect("a result without a message", (long)result, 0);
    must("mx_reenable_progression", mx_reenable_progression(endpoint));
    send_all(own, 0x50, "", 1);
    end_of("a receive after progress was enabled again", &one);
}

static void check_refusals(mx_endpoint_addr_t own)
{
    mx_segment_t none = {NULL, 1};
    mx_endpoint_addr_t stranger = {{1, 2}};
    mx_request_t request = NULL;
    mx_endpoint_t other;
    mx_param_t parameter;
    mx_status_t status;
    uint64_t nic_id;
    uint32_t result;
    expect("a second mx_init", mx_init(), MX_ALREADY_INITIALIZED);
    expect("mx_finalize before the close", mx_finalize(), MX_BUSY);
    expect("a board that is not there", mx_open_endpoint(77, 3, 0, NULL, 0, &other), MX_BOARD_UNKNOWN);
    expect("an endpoint twice", mx_open_endpoint(MX_ANY_NIC, ID, 0, NULL, 0, &other), MX_BUSY);
    expect("an endpoint id too large", mx_open_endpoint(MX_ANY_NIC, 256, 0, NULL, 0, &other), MX_BAD_ENDPOINT_ID);
    expect("a null pointer", mx_isend(endpoint, &none, 1, own, 0, NULL, &request), MX_BAD_SEG_MEM);
    expect("too many segments", mx_isend(endpoint, &none, 257, own, 0, NULL, &request), MX_BAD_SEG_CNT);
    expect("an address of nobody", mx_isend(endpoint, NULL, 0, stranger, 0, NULL, &request), MX_BAD_ENDPOINT);
    expect("match bits outside the mask", mx_irecv(endpoint, NULL, 0, 3, 1, NULL, &request), MX_BAD_MATCH_MASK);
    expect("no request", mx_test(endpoint, &request, &status, &result), MX_BAD_REQUEST);
    expect("no host", mx_hostname_to_nic_id("localhost:99", &nic_id), MX_HOST_NOT_FOUND);
    must("mx_hostname_to_nic_id", mx_hostname_to_nic_id("localhost", &nic_id));
    expect("another filter", mx_connect(endpoint, nic_id, ID, FILTER + 1, MS_MAX, &own), MX_BAD_CONNECTION_KEY);
    expect("nobody at an endpoint", mx_connect(endpoint, nic_id, 9, FILTER, MS_MAX, &own), MX_CONNECTION_FAILED);
    parameter.key = MX_PARAM_CONTEXT_ID;
    parameter.val.context_id.bits = 4;
    parameter.val.context_id.shift = 60;
    must("mx_open_endpoint", mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 0, &parameter, 1, &other));
    expect("a context id left out", mx_irecv(other, NULL, 0, 0, 0xff, NULL, &request), MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
    must("mx_close_endpoint", mx_close_endpoint(other));
    expect("a closed endpoint", mx_progress(other), MX_BAD_ENDPOINT);
}

static void check_information(mx_endpoint_addr_t own)
{
    uint32_t number = 0, board = 0;
    uint64_t nic_id, ids[64];
    char host[MX_MAX_HOSTNAME_LEN], text[MX_MAX_STR_LEN];
    void *context = &number;
    must("MX_NIC_COUNT", mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &number, sizeof number));
    must("MX_NIC_IDS", mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, sizeof ids));
    expect("the list of NICs ends", (long)ids[number], 0);
    expect("too little room", mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 8), MX_BAD_INFO_LENGTH);
    must("MX_LINE_SPEED", mx_get_info(NULL, MX_LINE_SPEED, &board, sizeof board, &number, sizeof number));
    must("MX_PRODUCT_CODE", mx_get_info(endpoint, MX_PRODUCT_CODE, NULL, 0, text, sizeof text));
    must("mx_board_number_to_nic_id", mx_board_number_to_nic_id(0, &nic_id));
    expect("the first NIC", (long)nic_id, (long)ids[0]);
    must("mx_nic_id_to_hostname", mx_nic_id_to_hostname(nic_id, host));
    must("mx_hostname_to_nic_id", mx_hostname_to_nic_id(host, &nic_id));
    expect("the NIC of its host", (long)nic_id, (long)ids[0]);
    must("mx_nic_id_to_board_number", mx_nic_id_to_board_number(nic_id, &board));
    expect("its board", (long)board, 0);
    must("mx_get_endpoint_addr_context", mx_get_endpoint_addr_context(own, &context));
    expect("no pointer for a peer yet", context == NULL, 1);
    must("mx_set_endpoint_addr_context", mx_set_endpoint_addr_context(own, &board));
    must("mx_get_endpoint_addr_context", mx_get_endpoint_addr_context(own, &context));
    expect("the pointer for a peer", context == &board, 1);
}

/* All that one endpoint can do with itself. */
static void alone(void)
{
    mx_endpoint_addr_t own;
    open_endpoint(ID);
    must("mx_get_endpoint_addr", mx_get_endpoint_addr(endpoint, &own));
    check_requests(own);
    check_handler(own);
    check_information(own);
    check_refusals(own);
    finish();
}

/* Without the secret of the job no question arrives. */
static void stranger(const char *host)
{
    mx_endpoint_addr_t to;
    uint64_t nic_id;
    open_endpoint(MX_ANY_ENDPOINT);
    must("mx_hostname_to_nic_id", mx_hostname_to_nic_id((char *)host, &nic_id));
    expect("mx_connect without the secret", mx_connect(endpoint, nic_id, ID, FILTER, 1500, &to), MX_TIMEOUT);
    finish();
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";
    const char *host = argc > 2 ? argv[2] : "localhost";
    if (strcmp(role, "serve") == 0) serve();
    else if (strcmp(role, "ping") == 0) ping(host);
    else if (strcmp(role, "alone") == 0) alone();
    else if (strcmp(role, "outlive") == 0) outlive(host);
    else if (strcmp(role, "stranger") == 0) stranger(host);
    else if (strcmp(role, "receive") == 0) receive_for_ever();
    else return 2;
    return 0;
}
