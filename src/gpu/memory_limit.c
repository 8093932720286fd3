/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's limit of a card's memory for a cgroup. */
#include "gpu/nvml_priv.h"

#include <inttypes.h>

#include "base/mem.h"

enum { PLAUSIBLE_BITS = 60 };

/* The handle of a card whose driver can be asked; else NULL with the answer. */
static void *find_device(struct gpu *g, const char *uuid, const char *cgroup,
                         const struct nvml_calls **call, enum gpu_limit_answer *answer,
                         struct err *err)
{
    void *device = NULL;
    *answer = GPU_LIMIT_OLD_DRIVER;
    if (!g->ops->device) {
        err_set(err, ERR_NOT_FOUND, "the source of the cards has no driver");
    } else if (!strncmp(uuid, "MIG-", 4)) {
        *answer = GPU_LIMIT_NOT_SUPPORTED;
        err_set(err, ERR_NOT_FOUND, "the driver limits no instances of MIG");
    } else if (*cgroup != '/') {
        *answer = GPU_LIMIT_INVALID;
        err_set(err, ERR_INVALID, "\"%s\" is no absolute path of a cgroup", cgroup);
    } else if (!(device = g->ops->device(g, uuid, call))) {
        *answer = GPU_LIMIT_FAILED;
        err_set(err, ERR_UNAVAILABLE, "card %s was not in the last sample", uuid);
    }
    return device;
}

static enum gpu_limit_answer answer_of(const struct nvml_calls *call, int rc,
                                       const char *cgroup, struct err *err)
{
    static const struct {
        int rc;
        enum gpu_limit_answer answer;
        enum err_code code;
        const char *what;
    } answers[] = {
        {NVML_NOT_FOUND, GPU_LIMIT_NONE, ERR_NOT_FOUND, "it has no limit"},
        {NVML_NOT_SUPPORTED, GPU_LIMIT_NOT_SUPPORTED, ERR_NOT_FOUND,
         "the card or the driver's settings have no memory limits"},
        {NVML_NO_PERMISSION, GPU_LIMIT_NO_PERMISSION, ERR_FORBIDDEN,
         "setting a memory limit needs root"},
        {NVML_INVALID_ARGUMENT, GPU_LIMIT_INVALID, ERR_INVALID,
         "the driver refuses these values"},
        {NVML_OPERATING_SYSTEM, GPU_LIMIT_NO_CGROUP, ERR_NOT_FOUND,
         "the driver opens no cgroup v2 there"},
    };
    char driver[NVML_VERSION_TEXT] = "", text[NVML_VERSION_TEXT] = "of unknown version";
    if (rc == NVML_OK)
        return GPU_LIMIT_OK;
    if (rc == NVML_FUNCTION_NOT_FOUND) {
        if (call->driver_version && !call->driver_version(driver, sizeof driver))
            gpu_set_text(text, sizeof text,
                         (struct span){driver, strnlen(driver, sizeof driver)});
        err_set(err, ERR_NOT_FOUND, "driver %s: needs 615", text);
        return GPU_LIMIT_OLD_DRIVER;
    }
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        if (answers[i].rc == rc) {
            err_set(err, answers[i].code, "%s: %s: %s (%d)", cgroup, answers[i].what,
                    call->error_string(rc), rc);
            return answers[i].answer;
        }
    err_set(err, ERR_UNAVAILABLE, "%s: its memory limit: %s (%d)", cgroup,
            call->error_string(rc), rc);
    return GPU_LIMIT_FAILED;
}

enum gpu_limit_answer gpu_memory_limit_get(struct gpu *g, const char *uuid,
                                           const char *cgroup,
                                           struct gpu_memory_limit *out, struct err *err)
{
    const struct nvml_calls *call;
    enum gpu_limit_answer answer;
    struct nvml_limits_used is = {.cgroup = cgroup};
    void *device = find_device(g, uuid, cgroup, &call, &answer, err);
    *out = (struct gpu_memory_limit){.hard = GPU_NO_LIMIT};
    if (!device)
        return answer;
    answer =
        answer_of(call,
                  call->limits_get && call->limits_set ? call->limits_get(device, &is)
                                                       : NVML_FUNCTION_NOT_FOUND,
                  cgroup, err);
    if (answer == GPU_LIMIT_OK && !is.soft && is.hard == NVML_NO_LIMIT)
        return answer_of(call, NVML_NOT_FOUND, cgroup, err);
    if (answer != GPU_LIMIT_OK)
        return answer;
    if ((is.soft | is.used | (is.hard == NVML_NO_LIMIT ? 0 : is.hard)) >>
            PLAUSIBLE_BITS ||
        is.soft > is.hard) {
        err_set(err, ERR_UNAVAILABLE,
                "%s: implausible limits: %" PRIu64 " bytes soft, %" PRIu64
                " hard, %" PRIu64 " used",
                cgroup, (uint64_t)is.soft, (uint64_t)is.hard, (uint64_t)is.used);
        return GPU_LIMIT_FAILED;
    }
    *out = (struct gpu_memory_limit){is.soft, is.hard, is.used};
    return GPU_LIMIT_OK;
}

enum gpu_limit_answer gpu_memory_limit_set(struct gpu *g, const char *uuid,
                                           const char *cgroup,
                                           const struct gpu_memory_limit *limit,
                                           struct err *err)
{
    const struct nvml_calls *call;
    enum gpu_limit_answer answer;
    struct nvml_limits wanted = {
        .cgroup = cgroup, .soft = limit->soft, .hard = limit->hard};
    void *device = find_device(g, uuid, cgroup, &call, &answer, err);
    if (!device)
        return answer;
    answer = answer_of(call,
                       call->limits_set ? call->limits_set(device, &wanted)
                                        : NVML_FUNCTION_NOT_FOUND,
                       cgroup, err);
    return answer == GPU_LIMIT_NONE ? GPU_LIMIT_FAILED : answer;
}

enum gpu_limit_answer gpu_memory_limit_probe(struct gpu *g, const char *uuid,
                                             const char *cgroup, struct err *err)
{
    struct gpu_memory_limit is;
    struct err why;
    enum gpu_limit_answer answer = gpu_memory_limit_get(g, uuid, cgroup, &is, &why);
    if (answer == GPU_LIMIT_OK || answer == GPU_LIMIT_NONE)
        return GPU_LIMIT_OK;
    err_set(err, why.code, "%s", why.msg);
    return answer;
}
