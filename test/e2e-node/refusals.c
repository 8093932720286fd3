/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/refusals.h"

#include <string.h>

#include "base/mem.h"
#include "e2e-node/look.h"

static struct {
    json_t *seen;    /* {uid: true} */
    json_t *reasons; /* {reason: count} */
} counts;

/* The REASON of "Allocate failed due to rpc error: code = X desc = REASON: ..." (from the
 * plugin) and of "Allocate failed due to REASON; ..." (from the kubelet). */
static char *reason_in(const char *message)
{
    static const char *const marks[] = {" desc = ", " due to "};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        const char *at = strstr(message, marks[i]);
        if (at)
            return xmemdup0(at + strlen(marks[i]), strcspn(at + strlen(marks[i]), ":;,"));
    }
    return xstrdup("");
}

static void count(const json_t *pod)
{
    const char *message = lib_str(pod, "status.message");
    cleanup_free char *words = reason_in(message);
    cleanup_free char *reason =
        xasprintf("%s%s%s", lib_str(pod, "status.reason"), *words ? ", " : "", words);
    json_int_t n = json_integer_value(json_object_get(counts.reasons, reason));
    json_object_set_new(counts.reasons, reason, json_integer(n + 1));
    if (n == 0)
        fprintf(stderr, "refused: %s: %s: %s\n", lib_str(pod, "metadata.name"), reason,
                message);
}

size_t refusals_look(void (*again)(const char *name))
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    json_t *pod;
    size_t i, fresh = 0;
    if (!counts.seen) {
        counts.seen = json_object();
        counts.reasons = json_object();
    }
    json_array_foreach(pods, i, pod)
    {
        const char *uid = lib_str(pod, "metadata.uid");
        if (strcmp(lib_str(pod, "status.phase"), "Failed") != 0 ||
            json_object_get(counts.seen, uid))
            continue;
        json_object_set_new(counts.seen, uid, json_true());
        count(pod);
        fresh++;
        if (again && !lib_at(pod, "metadata.ownerReferences")) {
            cleanup_free char *path =
                xasprintf(CLUSTER_PODS "/%s", lib_str(pod, "metadata.name"));
            cluster_delete(path);
            again(lib_str(pod, "metadata.name"));
        }
    }
    return fresh;
}

size_t refusals_tell(void)
{
    const char *reason;
    json_t *n;
    refusals_look(NULL);
    printf("measured: pods that the kubelet refused: %zu", json_object_size(counts.seen));
    json_object_foreach(counts.reasons, reason, n)
        printf("; %s: %d", reason, (int)json_integer_value(n));
    printf("\n");
    fflush(stdout);
    return json_object_size(counts.seen);
}
