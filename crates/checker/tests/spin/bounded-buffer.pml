/* The example bounded-buffer in Promela: one statement for each transition. */
chan items = [2] of { byte };
active proctype Producer() { byte next;
ready: items!next;
sent: next = (next + 1) % 4; goto ready
}
active proctype Consumer() { byte item, expected;
ready: items?item;
taken: expected = (expected + 1) % 4; goto ready
}
