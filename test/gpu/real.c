/* SPDX-License-Identifier: Apache-2.0 */

/*
 * make test-gpu: reads the cards of this machine through the real NVML, shows them and
 * the Scv that scv-agent makes of them, and compares with nvidia-smi. Skipped, with the
 * reason, where there is no card.
 *
 *     test-gpu [LIBRARY [NVIDIA-SMI]]
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/smi.h"

/* What a command prints; its exit status, or -1. */
static int run(const char *command, struct buf *out)
{
    char part[4096];
    FILE *f = popen(command, "re");
    if (!f)
        return -1;
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        buf_add(out, part, n);
    return pclose(f);
}

/* As scv-agent, which is beside this program, publishes it. */
static bool show_scv(const char *self, const char *library)
{
    const char *slash = strrchr(self, '/');
    int dir = slash ? (int)(slash - self + 1) : 0;
    cleanup_buf struct buf out = {0};
    cleanup_free char *command =
        xasprintf("'%.*sscv-agent' --once --node-name this-node --gpu-source 'nvml%s%s'",
                  dir, self, library ? ":" : "", library ? library : "");
    int rc = run(command, &out);
    printf("scv-agent --once:\n%s\n", rc == 0 && out.n ? out.p : "does not work here\n");
    return rc == 0 && out.n;
}

/* What an idle card has less than its size. */
static void show_reserve(const struct gpu_sample *s)
{
    for (size_t i = 0; i < s->n_cards; i++) {
        const struct gpu_card *c = &s->cards[i];
        printf("card %d (%s, %s%s%s): %lld MiB reserved by the driver, %lld in use, "
               "%zu processes\n",
               c->index, c->model, gpu_state_name(c->state), *c->why ? ": " : "", c->why,
               (long long)(gpu_value(c, GPU_MEM_RESERVED, -1) >> 20),
               (long long)(gpu_value(c, GPU_MEM_USED, -1) >> 20), c->n_processes);
    }
}

static int compare(const struct gpu_sample *s, const char *smi)
{
    cleanup_buf struct buf xml = {0}, out = {0};
    cleanup_free char *command = xasprintf("%s -q -x", smi);
    if (run(command, &xml)) {
        printf("test-gpu: %s does not work here\n", command);
        return 1;
    }
    struct smi_result r = smi_compare(&out, s, buf_span(&xml));
    printf("\nours | nvidia-smi's:\n%s%u same, %u unknown to one of them\n", out.p,
           r.same, r.unknown);
    printf("%u passed, %u failed\n", r.same, r.different);
    return r.different || !r.same;
}

int main(int argc, char **argv)
{
    cleanup_gpu_sample struct gpu_sample s = {0};
    struct err err = {0};
    struct gpu *g = gpu_nvml_new(argc > 1 ? argv[1] : NULL);
    int64_t start = clock_mono_ms(), first;
    int rc = gpu_sample(g, &s, &err);
    first = clock_mono_ms() - start;
    start = clock_mono_ms();
    for (int i = 0; !rc && i < 10; i++)
        rc = gpu_sample(g, &s, &err);
    if (rc || !s.n_cards) {
        printf("test-gpu: skipped, because there is no card to test with: %s\n",
               rc ? err.msg : "NVML knows of none");
        gpu_free(g);
        return 0;
    }
    printf("the first sample took %lld ms, ten more %lld ms\n\n", (long long)first,
           (long long)(clock_mono_ms() - start));
    bool published = show_scv(argv[0], argc > 1 ? argv[1] : NULL);
    show_reserve(&s);
    rc = compare(&s, argc > 2 ? argv[2] : "nvidia-smi") || !published;
    gpu_free(g);
    return rc;
}
