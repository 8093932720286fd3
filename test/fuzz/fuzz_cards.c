/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file of the card source. Accepted input is consistent (indexes ascend, names are
 * clean, UUIDs are unique, no more memory is free or used than exists).
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "gpu/gpu_priv.h"

static void check_text(const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    if (n == size)
        fuzz_fail("a text that is not terminated");
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_len((const unsigned char *)text + i, n - i);
        if (!len || (unsigned char)text[i] < ' ' || text[i] == 0x7f)
            fuzz_fail("a text with an invalid byte");
    }
}

static void check_card(const struct gpu_card *c)
{
    check_text(c->model, sizeof c->model);
    check_text(c->bus_id, sizeof c->bus_id);
    check_text(c->why, sizeof c->why);
    check_text(c->uuid, sizeof c->uuid);
    if (strspn(c->uuid, "0123456789-abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(c->uuid))
        fuzz_fail("a UUID with invalid characters");
    if (!c->why[0] != (c->state == GPU_OK))
        fuzz_fail("a state without a reason, or a reason without a state");
    for (int m = 0; m < GPU_N_METRICS; m++)
        if (gpu_knows(c, m) && (c->value[m] < 0 || c->value[m] > INT64_C(1) << 60))
            fuzz_fail("a number out of range");
    int64_t total = gpu_value(c, GPU_MEM_TOTAL, 0);
    if (gpu_value(c, GPU_MEM_FREE, 0) > total || gpu_value(c, GPU_MEM_USED, 0) > total ||
        gpu_value(c, GPU_MEM_RESERVED, 0) > total)
        fuzz_fail("more memory than the card has");
    for (size_t i = 1; i < c->n_processes; i++)
        if (c->processes[i].pid < c->processes[i - 1].pid)
            fuzz_fail("the processes are not sorted");
}

static void check(const struct gpu_sample *s)
{
    check_text(s->driver, sizeof s->driver);
    for (size_t i = 0; i < s->n_cards; i++) {
        check_card(&s->cards[i]);
        for (size_t k = 0; k < i; k++)
            if (s->cards[k].index >= s->cards[i].index ||
                (*s->cards[i].uuid && !strcmp(s->cards[k].uuid, s->cards[i].uuid)))
                fuzz_fail("the cards are not sorted or not unique");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpu_sample cards = {0};
    struct err err = {0};
    int rc = gpu_file_parse((struct span){(const char *)data, size}, &cards, &err);
    bool told = err.code == ERR_INVALID || err.code == ERR_UNAVAILABLE; /* "error" of the file */
    if (rc && (!told || !err.msg[0]))
        fuzz_fail("an error without text");
    if (!rc)
        check(&cards);
    gpu_sample_fini(&cards);
    return 0;
}
