/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The order in which new connections are let in. Guests are accepted connections without
 * a thread. A guest is ready when the server can go on with it; of those, different
 * addresses take turns, and the guests of one address keep their order. So a guest waits
 * behind at most as many of each other address as there are of its own before it, however
 * many connections another client opens. The order is start-time fair queueing (Goyal,
 * Vin, Cheng 1996) with a cost of 1 for each guest. Pure; one thread.
 */

/* A client's address: of IPv6 the first 64 bits, which one host or network has. */
struct httpd_address {
    unsigned char bytes[16];
};

/* Embedded in the caller's object; all fields are the lobby's. */
struct httpd_guest {
    struct httpd_address address;
    int64_t since_ms;
    uint64_t tag; /* of a ready guest: the lowest is next; 0: not ready */
    unsigned siblings;
    struct httpd_guest *prev, *next; /* in order of arrival */
};

struct httpd_lobby {
    struct httpd_guest *first, *last;
    size_t n, ready;
    size_t max;   /* guests; set by the caller */
    uint64_t now; /* tag of the guest that was let in last */
};

/* Borrows `g` until it is removed. `now_ms` does not decrease from call to call. */
void httpd_lobby_add(struct httpd_lobby *l, struct httpd_guest *g,
                     const struct httpd_address *address, int64_t now_ms);
void httpd_lobby_remove(struct httpd_lobby *l, struct httpd_guest *g);
/* The guest is ready; without effect if it was. */
void httpd_lobby_ready(struct httpd_lobby *l, struct httpd_guest *g);
/* Removes the guest whose turn it is; NULL: none is ready. */
struct httpd_guest *httpd_lobby_next(struct httpd_lobby *l);
/* Removes a guest that has been here for longer than `ms`; NULL: none. */
struct httpd_guest *httpd_lobby_expired(struct httpd_lobby *l, int64_t now_ms,
                                        int64_t ms);
/* If there are more than `max`: removes some and returns them, linked by `next`;
 * else NULL. They are of the address with the most guests: first those that are not
 * ready, the oldest before the others, then the youngest, because they have waited the
 * least. */
struct httpd_guest *httpd_lobby_excess(struct httpd_lobby *l);
