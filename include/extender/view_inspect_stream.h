/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"
#include "wire/httpd.h"

/*
 * What inspect shows, and what changes of it, as a stream of lines: for the page, and for
 * everybody who looks on.
 *
 *     {"Node":<object as in inspect>,"Type":"SYNCED"}
 *     {"Node":{"name":"n1"},"Type":"DELETED"}
 *     {"Cluster":<what follows the nodes in inspect>,"Type":"SYNCED"}
 *     (nothing)    all there was at the start has been said; later: still here
 *
 * A reader is asked once a second whether it wants news, and then looks at the ledger
 * itself: so what it costs does not depend on how much changes. Changes of a second are
 * one line. What is said of the cluster is worked out once for all readers.
 */

struct view_inspect_stream;

enum { VIEW_INSPECT_STREAM_WATCHES = 64, VIEW_INSPECT_STREAM_MAIN_WATCHES = 16 };

/* New. `store` is borrowed. After so long without news a reader is told so; 0: never. */
struct view_inspect_stream *view_inspect_stream_new(struct store *store,
                                                    int64_t heartbeat_ms);
void view_inspect_stream_free(
    struct view_inspect_stream *live); /* when no stream is left; NULL is accepted */
/* Answers with the stream, or with 503: everything has yet to be listed, or too many
 * watch. `main` is the listener that has a thread for each. */
void view_inspect_stream_watch(struct view_inspect_stream *live, bool main,
                               struct httpd_reply *reply);
