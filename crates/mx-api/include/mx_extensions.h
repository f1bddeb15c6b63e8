/* Functions of MX beside those of myriexpress.h. */
#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX_HAS_ICONNECT_V2 1

/* The request's status has the address as its source. */
mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id,
                        uint32_t filter, uint64_t match_info, void *context,
                        mx_request_t *request);
mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t address);

typedef enum mx_unexp_handler_action {
    /* A receive takes the message, now or later. */
    MX_RECV_CONTINUE = 0,
    /* The handler has dealt with the message. */
    MX_RECV_FINISHED = 1
} mx_unexp_handler_action_t;

/* Called for a message that no receive has matched. `data` is null where the bytes are still at the sender; it is valid
 * until the handler returns. The handler may start sends and receives, and not wait or test. */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(void *context, mx_endpoint_addr_t source,
                                                        uint64_t match_info, uint32_t length,
                                                        void *data);
mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint, mx_unexp_handler_t handler,
                                      void *context);

mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);
mx_return_t mx_progress(mx_endpoint_t endpoint);
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t milliseconds);

/* A pointer of the program's for each peer of an endpoint; null at first. */
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t address, void *context);
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t address, void **context);
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t address, uint64_t *nic_id,
                                        uint32_t *endpoint_id, uint32_t *session_id);

#ifdef __cplusplus
}
#endif

#endif
