/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>

#include "base/mem.h"
#include "gpu/nvml_priv.h"

static const struct call {
    size_t at; /* offset in struct nvml_calls */
    const char *name, *older;
    bool needed;
} table[] = {
#define ROW(member, args, name, older, needed)                                           \
    {offsetof(struct nvml_calls, member), name, older, needed},
    NVML_CALLS(ROW)
#undef ROW
};

static void *find(void *handle, const struct call *c)
{
    void *f = dlsym(handle, c->name);
    return f || !c->older ? f : dlsym(handle, c->older);
}

int nvml_load(const char *library, void **handle, struct nvml_calls *calls,
              struct err *err)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        return err_set(err, ERR_NOT_FOUND, "NVML: %s", why ? why : library);
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        void *f = find(lib, &table[i]);
        if (!f && table[i].needed) {
            dlclose(lib);
            return err_set(err, ERR_UNAVAILABLE, "NVML: %s lacks function %s", library,
                           table[i].name);
        }
        /* POSIX allows function pointers in void *, ISO C does not. */
        memcpy((char *)calls + table[i].at, &f, sizeof f);
    }
    *handle = lib;
    return 0;
}

const char *nvml_strerror(int rc)
{
    static const struct {
        int rc;
        const char *words;
    } known[] = {
        {NVML_OK, "no error"},
        {NVML_UNINITIALIZED, "NVML is not initialized"},
        {2, "invalid argument"},
        {NVML_NOT_SUPPORTED, "not supported"},
        {NVML_NO_PERMISSION, "no permission"},
        {6, "not found"},
        {NVML_INSUFFICIENT_SIZE, "insufficient buffer size"},
        {NVML_INSUFFICIENT_POWER, "insufficient external power"},
        {NVML_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"},
        {NVML_TIMEOUT, "timeout"},
        {NVML_IRQ_ISSUE, "the kernel reports an interrupt issue of the card"},
        {12, "a library of the driver is missing"},
        {NVML_FUNCTION_NOT_FOUND, "the library lacks this function"},
        {14, "the card's infoROM is corrupted"},
        {NVML_GPU_IS_LOST, "the card fell off the bus"},
        {NVML_RESET_REQUIRED, "the card requires a reset"},
        {NVML_OPERATING_SYSTEM, "the operating system denies access to the card"},
        {NVML_VERSION_MISMATCH, "driver and library versions differ"},
        {19, "the card is in use"},
        {20, "out of memory"},
        {21, "no data"},
        {23, "insufficient resources"},
        {25, "unsupported argument version"},
        {27, "the system is not ready"},
        {28, "no card found"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].rc == rc)
            return known[i].words;
    return "unknown driver error";
}

bool nvml_is_gone(int rc)
{
    return rc == NVML_UNINITIALIZED || rc == NVML_DRIVER_NOT_LOADED ||
           rc == NVML_VERSION_MISMATCH;
}

bool nvml_is_lost(int rc)
{
    return rc == NVML_GPU_IS_LOST || rc == NVML_RESET_REQUIRED;
}
