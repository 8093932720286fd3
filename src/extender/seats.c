/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/seats.h"

bool seats_take(struct seats *s, bool main, struct httpd_reply *reply)
{
    bool fits = atomic_fetch_add(&s->taken, 1) < s->most,
         here = !main || atomic_fetch_add(&s->main_taken, 1) < s->main_most;
    if (fits && here)
        return true;
    seats_give(s, main);
    httpd_fail(reply, 503, "too many %s: %u are open%s", s->what,
               here ? s->most : s->main_most,
               here ? "; retry later" : " on this port; use --observe-port");
    seats_retry_after(reply);
    return false;
}

void seats_give(struct seats *s, bool main)
{
    atomic_fetch_sub(&s->taken, 1);
    if (main)
        atomic_fetch_sub(&s->main_taken, 1);
}

void seats_retry_after(struct httpd_reply *reply)
{
    reply->header[0][0] = "Retry-After";
    reply->header[0][1] = "1";
}
