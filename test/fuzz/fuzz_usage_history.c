/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file in which scv-agent keeps what workloads used. Rejected input has an error text and
 * changes nothing. Accepted input is within the bounds of the history and survives a write and a
 * read.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "node/usage_history.h"

#define NOW  (INT64_C(1000) * USAGE_HISTORY_HOUR_MS)
#define WALL (INT64_C(490000) * USAGE_HISTORY_HOUR_MS)

static const struct span node = SPAN("n1");

static void check(const struct usage_history *h)
{
    if (usage_history_count(h) > USAGE_HISTORY_MAX)
        fuzz_fail("too many workloads");
    for (size_t i = 0; i < usage_history_count(h); i++) {
        struct usage_history_row row = usage_history_row(h, i);
        if (!row.ns.n || !row.name.n || !row.container.n || !row.kind)
            fuzz_fail("a workload without a name");
        if (row.hours < 1 || row.hours > row.age_hours + 1 ||
            row.age_hours >= USAGE_HISTORY_HOURS)
            fuzz_fail("hours that do not exist");
        if (row.p95_mib < 0 || row.p95_mib > row.max_mib ||
            row.max_mib > USAGE_HISTORY_MARK_MAX || row.promised_mib < -1 ||
            row.promised_mib > USAGE_HISTORY_MARK_MAX)
            fuzz_fail("an amount out of bounds");
    }
}

static void check_again(const struct usage_history *h)
{
    cleanup_buf struct buf text = {0}, again = {0};
    struct usage_history *back = usage_history_new();
    struct err err;
    usage_history_write(h, node, NOW, WALL, &text);
    if (text.n > USAGE_HISTORY_FILE_MAX)
        fuzz_fail("a text that is too long");
    if (usage_history_read(back, buf_span(&text), node, 5, WALL, &err))
        fuzz_fail("what was written cannot be read");
    usage_history_write(back, node, 5, WALL, &again);
    if (!span_eq(buf_span(&text), buf_span(&again)))
        fuzz_fail("written and read again it is not the same");
    usage_history_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct usage_history *h = usage_history_new();
    const struct span text = {(const char *)data, size};
    struct err err = {0};
    if (usage_history_read(h, text, node, NOW, WALL, &err)) {
        if (usage_history_count(h))
            fuzz_fail("a rejected file has changed the history");
        if (!err.msg[0] || (err.code != ERR_INVALID && err.code != ERR_CONFLICT))
            fuzz_fail("an error without text, or of another kind");
    } else {
        check(h);
        check_again(h);
    }
    usage_history_free(h);
    return 0;
}
