/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file of the card source. Accepted input is consistent (indexes ascend, names are
 * clean, UUIDs are unique, no more memory is free or used than exists).
 */

#include "fuzz/fuzz.h"

#include "base/utf8.h"
#include "gpu/gpu_priv.h"

static void check_text(const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    fuzz_fail_if(n == size, "a text that is not terminated");
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_len((const unsigned char *)text + i, n - i);
        fuzz_fail_if(!len || (unsigned char)text[i] < ' ' || text[i] == 0x7f,
                     "a text with an invalid byte");
    }
}

static void check_card(const struct gpu_card *c)
{
    check_text(c->model, sizeof c->model);
    check_text(c->bus_id, sizeof c->bus_id);
    check_text(c->why, sizeof c->why);
    check_text(c->uuid, sizeof c->uuid);
    fuzz_fail_if(strspn(c->uuid, "0123456789-abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(c->uuid),
                 "a UUID with invalid characters");
    fuzz_fail_if(!c->why[0] != (c->state == GPU_OK),
                 "a state without a reason, or a reason without a state");
    for (int m = 0; m < GPU_N_METRICS; m++)
        fuzz_fail_if(gpu_knows(c, m) &&
                         (c->value[m] < 0 || c->value[m] > INT64_C(1) << 60),
                     "a number out of range");
    int64_t total = gpu_value(c, GPU_MEM_TOTAL, 0);
    fuzz_fail_if(gpu_value(c, GPU_MEM_FREE, 0) > total ||
                     gpu_value(c, GPU_MEM_USED, 0) > total ||
                     gpu_value(c, GPU_MEM_RESERVED, 0) > total,
                 "more memory than the card has");
    for (size_t i = 1; i < c->n_processes; i++)
        fuzz_fail_if(c->processes[i].pid < c->processes[i - 1].pid,
                     "the processes are not sorted");
}

static void check(const struct gpu_sample *s)
{
    check_text(s->driver, sizeof s->driver);
    for (size_t i = 0; i < s->n_cards; i++) {
        check_card(&s->cards[i]);
        for (size_t k = 0; k < i; k++)
            fuzz_fail_if(
                s->cards[k].index >= s->cards[i].index ||
                    (*s->cards[i].uuid && !strcmp(s->cards[k].uuid, s->cards[i].uuid)),
                "the cards are not sorted or not unique");
    }
}

void fuzz_input(struct span in)
{
    struct gpu_sample cards = {0};
    struct err err = {0};
    if (gpu_file_parse(in, &cards, &err)) {
        fuzz_check_error(&err);
        /* UNAVAILABLE: the member "error" of the file. */
        fuzz_fail_if(err.code != ERR_INVALID && err.code != ERR_UNAVAILABLE,
                     "an error of another kind");
    } else {
        check(&cards);
    }
    gpu_sample_fini(&cards);
}
