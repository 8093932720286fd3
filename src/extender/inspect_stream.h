/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "wire/httpd.h"

/*
 * inspect as a stream of JSON lines: the current state, then every change.
 *
 *     {"Node":<object as in inspect>,"Type":"SYNCED"}
 *     {"Node":{"name":"n1"},"Type":"DELETED"}
 *     {"Cluster":<the members after `nodes` in inspect>,"Type":"SYNCED"}
 *     (empty line)   the initial state is complete; later: heartbeat
 *
 * The HTTP server polls each reader, which then scans the ledger (view/changes.h). The
 * cluster line is computed once for all readers.
 */

struct inspect_stream;

enum { INSPECT_STREAM_WATCHES = 64, INSPECT_STREAM_MAIN_WATCHES = 16 };

/* New. `driver` is borrowed. An idle stream sends an empty line every `heartbeat_ms`; 0:
 * never. */
struct inspect_stream *inspect_stream_new(struct core_driver *driver,
                                          int64_t heartbeat_ms);
/* No stream may be open. NULL is accepted. */
void inspect_stream_free(struct inspect_stream *s);
/* Answers with a stream, or with 503 if not every kind of object has been listed or too
 * many streams are open. `main`: the main port, where a stream occupies a thread. The
 * stream ends at `end_ms` (clock_mono_ms). */
void inspect_stream_watch(struct inspect_stream *s, bool main, int64_t end_ms,
                          struct httpd_reply *reply);
