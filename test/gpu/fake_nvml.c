/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libnvidia-ml.so.1 without a driver or a card: what is there is written in the file
 * that FAKE_NVML names, which is read at every call. Its declarations are its own,
 * after nvml.h, so that a mistake in those of src/gpu does not cancel itself out. Built
 * with FAKE_NVML_OLD it lacks what came after driver 450.
 *
 *     driver 535.129.03           the version of the driver
 *     cuda 12020
 *     down 9                      every call answers this code: 9 not loaded, 18 mismatch
 *     card uuid=GPU-0;name=Tesla T4;bus=3b;total=1000;free=900;used=60;reserved=40
 *     card uuid=GPU-1;open=15;... what opening it answers: 15 lost
 *     card uuid=GPU-2;books=N;... its use and processes are those of FAKE_CUDA_BOOKS, whose
 *                             pids are N less, as in a container
 *     fail nvmlDeviceGetName 999 1    the call answers this code, of card 1 (of all)
 *     event 7 GPU-0 8 79          number 7: type 8 (XID), data 79; `?` is no card
 *
 * The cards are in the order of their index. A number that a card does not have is not
 * supported by it: minor, maxclock1 and maxclock2 (SM, memory), gen, width, powerlimit, util,
 * utilmem, temp, pages, remap (0 none, 1 pending, 2 failed), recovery, mode (of compute), fabric
 * (3 completed, with fabricstatus), mig, events (mask),
 * processes=PID:BYTES,PID:BYTES, graphics=... and mps=... of the same form, sm=PID:PERCENT,...
 * with smage=MICROSECONDS since it was measured. size_v3=32 is the size of an item in the lists of
 * that version, as of some drivers of branch 535, `size` that of the first version, and
 * smsize that of sm; of a list, unset=2 items at the end are not written. spill=24 bytes are
 * written behind each struct. links=2:5d,1:switch,1:down are NVLinks: two to the
 * card on bus 5d, one to a switch, one that is down. path=30,50 is the topology level to each card;
 * affinity=MASK the NUMA nodes. Of a card in MIG mode, instances=N (7) is how many it can have; each
 * has a line as that of a card, with the card's index and the position:
 *
 *     instance card=0;at=2;uuid=MIG-2;name=NVIDIA A100 MIG 1g.10gb;total=900;free=900;gi=9;ci=0
 *
 * slices, cslices and mib are its attributes. For `fail`, the first line is card 1024.
 *
 *     sometimes nvmlDeviceSetMemoryLimits_v1 999 3   each third call of the process answers 999
 *     late nvmlDeviceSetMemoryLimits_v1 200          the call takes 200 ms more
 *
 * A driver of 615 and newer has the limits of fake_limits.h, of full cards. below=CODE is what it
 * answers to a hard limit of less than what is used; without it the limit is set.
 *
 * What a program may not do (use a device or a set of events after a shutdown, free a set
 * twice) ends it. fake_nvml_held says what it holds.
 */

#include "gpu/fake_cuda.h"
#include "gpu/fake_limits.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CARDS = 80, MAX_TEXT = 65536, INSTANCES = 1024, MAX_SOMETIMES = 8 };
enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    OPERATING_SYSTEM = 17,
    VERSION_MISMATCH = 25,
};

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    union {
        double d;
        unsigned int ui;
        unsigned long long ull;
    } value;
} nvmlFieldValue_t;
_Static_assert(sizeof(nvmlMemory_v2_t) == 40 && sizeof(nvmlPciInfo_t) == 68, "ABI");
typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24 && sizeof(nvmlEventData_t) == 32,
               "ABI");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "ABI");

#define EXPORT(type, name, ...)                                                          \
    type name(__VA_ARGS__);                                                              \
    __attribute__((visibility("default"))) type name(__VA_ARGS__)
#define NVML(name, ...) EXPORT(int, name, __VA_ARGS__)

/* A set remembers the number of the last event that it must not tell. */
struct nvmlEventSet_st {
    int generation;
    long last_id;
    unsigned long long types[MAX_CARDS];
};

static struct {
    int inits;      /* calls of nvmlInit not yet undone */
    int generation; /* how often it was initialised */
    int sets;
    char text[MAX_TEXT];
    struct {
        char name[64];
        int calls;
    } sometimes[MAX_SOMETIMES];
} g;

EXPORT(void, fake_nvml_held, int *inits, int *sets)
{
    *inits = g.inits;
    *sets = g.sets;
}

static void misuse(const char *what)
{
    fprintf(stderr, "fake NVML: %s\n", what);
    abort();
}

static void read_script(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    size_t n = f ? fread(g.text, 1, sizeof g.text - 1, f) : 0;
    if (f)
        fclose(f);
    g.text[n] = '\0';
    if (!f)
        strcpy(g.text, "down 9\n");
}

/* The rest of the n-th line that begins with this word; its length in *len. */
static const char *line_of(const char *word, int n, size_t *len)
{
    size_t w = strlen(word);
    for (const char *p = g.text; *p;) {
        size_t k = strcspn(p, "\n");
        if (k > w && !strncmp(p, word, w) && p[w] == ' ' && n-- == 0) {
            *len = k - w - 1;
            return p + w + 1;
        }
        p += k + (p[k] == '\n');
    }
    return NULL;
}

/* How often the process has made the call, with this one. */
static int count_call(const char *function)
{
    for (int i = 0; i < MAX_SOMETIMES; i++)
        if (!*g.sometimes[i].name || !strcmp(g.sometimes[i].name, function)) {
            snprintf(g.sometimes[i].name, sizeof g.sometimes[i].name, "%s", function);
            return ++g.sometimes[i].calls;
        }
    misuse("too many lines `sometimes`");
    return 0;
}

/* The two numbers of a line "WORD FUNCTION A B" of the script; false: there is none. */
static bool numbers_of(const char *word, const char *function, int *a, int *b)
{
    size_t len;
    const char *p;
    for (int i = 0; (p = line_of(word, i, &len)); i++) {
        char line[128] = "", name[64];
        memcpy(line, p, len < sizeof line - 1 ? len : sizeof line - 1);
        if (sscanf(line, "%63s %d %d", name, a, b) >= 2 && !strcmp(name, function))
            return true;
    }
    return false;
}

/* What the script has a call answer instead of what it does. index -1: no card. */
static int scripted(const char *function, int index)
{
    size_t len;
    const char *p;
    int a, b = 1;
    read_script();
    if ((p = line_of("down", 0, &len)))
        return atoi(p);
    if (numbers_of("late", function, &a, &b))
        nanosleep(&(struct timespec){a / 1000, a % 1000 * 1000000L}, NULL);
    if (numbers_of("sometimes", function, &a, &b) && count_call(function) % b == 0)
        return a;
    for (int i = 0; (p = line_of("fail", i, &len)); i++) {
        char line[128] = "", name[64];
        int code, of = -1;
        memcpy(line, p, len < sizeof line - 1 ? len : sizeof line - 1);
        if (sscanf(line, "%63s %d %d", name, &code, &of) < 2)
            misuse("a bad line `fail`");
        if (!strcmp(name, function) && (of < 0 || of == index))
            return code;
    }
    return OK;
}

static int trouble(const char *function, int index)
{
    int rc = scripted(function, index);
    return rc ? rc : g.inits == 0 ? UNINITIALIZED : OK;
}

/* A handle is no address: its generation and the index, so that an old one is seen. */
static nvmlDevice_t handle_of(int index)
{
    return (nvmlDevice_t)(size_t)((g.generation << 16) | (index << 4) | 8);
}

static int index_of(nvmlDevice_t device)
{
    size_t v = (size_t)device;
    if ((int)(v >> 16) != g.generation || (v & 15) != 8)
        misuse("a device of another life");
    return (int)(v >> 4 & 0xfff);
}

static const char *value_of(int index, const char *key, size_t *len)
{
    size_t n, k = strlen(key);
    const char *p = index < INSTANCES ? line_of("card", index, &n)
                                      : line_of("instance", index - INSTANCES, &n);
    while (p && n) {
        const char *semicolon = memchr(p, ';', n);
        size_t item = semicolon ? (size_t)(semicolon - p) : n;
        if (item > k && !strncmp(p, key, k) && p[k] == '=') {
            *len = item - k - 1;
            return p + k + 1;
        }
        item += semicolon != NULL;
        p += item;
        n -= item;
    }
    return NULL;
}

static bool number(int index, const char *key, unsigned long long *out)
{
    size_t len;
    const char *p = value_of(index, key, &len);
    if (p)
        *out = strtoull(p, NULL, 0);
    return p != NULL;
}

/* The books of the card's driver, or NULL. */
static const struct fake_books *books_of(int index, unsigned long long *pids)
{
    static struct fake_books books;
    const char *path = getenv("FAKE_CUDA_BOOKS");
    int fd = path && number(index, "books", pids) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : pread(fd, &books, sizeof books, 0);
    if (fd >= 0)
        close(fd);
    return n == sizeof books ? &books : NULL;
}

static int get_unsigned(const char *function, nvmlDevice_t device, const char *key,
                        unsigned int *out)
{
    int index = index_of(device), rc = trouble(function, index);
    unsigned long long v;
    if (rc)
        return rc;
    if (!number(index, key, &v))
        return NOT_SUPPORTED;
    *out = (unsigned)v;
    return OK;
}

/* What the structs of a later driver have behind those that are known here. */
static void spill(nvmlDevice_t device, void *end)
{
    unsigned long long n = 0;
    if (device && number(index_of(device), "spill", &n))
        memset(end, 0x5a, n);
}

static int give_text(int rc, const char *p, size_t len, char *out, unsigned int size)
{
    if (rc)
        return rc;
    if (!p)
        return NOT_SUPPORTED;
    if (len >= size)
        return INSUFFICIENT_SIZE;
    memcpy(out, p, len);
    out[len] = '\0';
    return OK;
}

static int get_text(const char *function, nvmlDevice_t device, const char *key, char *out,
                    unsigned int size)
{
    int index = index_of(device), rc = trouble(function, index);
    size_t len = 0;
    const char *p = value_of(index, key, &len);
    return give_text(rc, p, len, out, size);
}

/* Some texts of the library. */
EXPORT(const char *, nvmlErrorString, int rc)
{
    static const char *const texts[] = {
        [UNINITIALIZED] = "Uninitialized", [NOT_SUPPORTED] = "Not Supported",
        [9] = "Driver Not Loaded",         [15] = "GPU is lost",
        [16] = "GPU requires reset",       [18] = "Driver/library version mismatch"};
    bool known = rc >= 0 && rc < (int)(sizeof texts / sizeof *texts) && texts[rc];
    return known ? texts[rc] : "Unknown Error";
}

NVML(nvmlInit_v2, void)
{
    int rc = scripted(__func__, -1);
    if (!rc && g.inits++ == 0)
        g.generation++;
    return rc;
}

/* That of nvidia-smi. */
NVML(nvmlInitWithFlags, unsigned int flags)
{
    (void)flags;
    return nvmlInit_v2();
}

NVML(nvmlShutdown, void)
{
    if (g.inits == 0)
        return UNINITIALIZED;
    g.inits--; /* a set of events that is left does no harm, as nvidia-smi leaves one */
    return OK;
}

NVML(nvmlSystemGetDriverVersion, char *out, unsigned int size)
{
    size_t len = 0;
    int rc = trouble(__func__, -1);
    const char *p = line_of("driver", 0, &len);
    return give_text(rc, p, len, out, size);
}

NVML(nvmlSystemGetCudaDriverVersion_v2, int *out)
{
    size_t len;
    int rc = trouble(__func__, -1);
    const char *p = line_of("cuda", 0, &len);
    if (!rc && p)
        *out = atoi(p);
    return rc ? rc : p ? OK : NOT_SUPPORTED;
}

NVML(nvmlDeviceGetCount_v2, unsigned int *out)
{
    size_t len;
    int rc = trouble(__func__, -1);
    if (rc)
        return rc;
    for (*out = 0; line_of("card", (int)*out, &len);)
        ++*out;
    return OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *out)
{
    size_t len;
    unsigned long long code;
    int rc = trouble(__func__, (int)index);
    if (rc)
        return rc;
    if (index >= MAX_CARDS || !line_of("card", (int)index, &len))
        return INVALID_ARGUMENT;
    if (number((int)index, "open", &code) && code)
        return (int)code;
    *out = handle_of((int)index);
    return OK;
}

/* nvidia-ctk needs it (test/e2e-node/test_cdi.c). */
NVML(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *out)
{
    unsigned int n = 0;
    int rc = nvmlDeviceGetCount_v2(&n);
    for (unsigned int i = 0; !rc && i < n; i++) {
        size_t len;
        const char *p = value_of((int)i, "uuid", &len);
        if (p && len == strlen(uuid) && !memcmp(p, uuid, len))
            return nvmlDeviceGetHandleByIndex_v2(i, out);
    }
    return rc ? rc : NOT_FOUND;
}

NVML(nvmlDeviceGetUUID, nvmlDevice_t device, char *out, unsigned int size)
{
    return get_text(__func__, device, "uuid", out, size);
}

NVML(nvmlDeviceGetName, nvmlDevice_t device, char *out, unsigned int size)
{
    return get_text(__func__, device, "name", out, size);
}

/* A function that has a number of the card. */
#define NUMBER(name, key)                                                                \
    NVML(name, nvmlDevice_t device, unsigned int *out)                                   \
    {                                                                                    \
        return get_unsigned(__func__, device, key, out);                                 \
    }
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "gen")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "width")
NUMBER(nvmlDeviceGetPowerManagementLimit, "powerlimit")
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "pages")
NUMBER(nvmlDeviceGetComputeMode, "mode")

typedef struct {
    unsigned char clusterUuid[16];
    int status;
    unsigned int cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
typedef struct {
    unsigned int version;
    unsigned char clusterUuid[16];
    int status;
    unsigned int cliqueId;
    unsigned char state;
    unsigned int healthMask;
} nvmlGpuFabricInfo_v2_t;
_Static_assert(sizeof(nvmlGpuFabricInfo_t) == 28 && sizeof(nvmlGpuFabricInfo_v2_t) == 36,
               "ABI");

NVML(nvmlDeviceGetGpuFabricInfo, nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    unsigned int state = 0, status = 0;
    int rc = get_unsigned(__func__, device, "fabric", &state);
    get_unsigned(__func__, device, "fabricstatus", &status);
    *out = (nvmlGpuFabricInfo_t){"cluster", (int)status, 7, (unsigned char)state};
    spill(device, out + 1);
    return rc;
}

NVML(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *out)
{
    int index = index_of(device), rc = trouble(__func__, index);
    size_t len;
    const char *p = value_of(index, "bus", &len);
    if (rc)
        return rc;
    if (!p)
        return NOT_SUPPORTED;
    memset(out, 0xa5, sizeof *out);
    out->domain = out->device = 0;
    out->bus = (unsigned)strtoul(p, NULL, 16) & 0xff;
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "0000:%02X:00.0", out->bus);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
    spill(device, out + 1);
    return OK;
}

/* What the link of a card with this number leads to: a bus, `switch` or `down`. */
static int link_of(const char *function, nvmlDevice_t device, unsigned int link,
                   char to[16])
{
    int index = index_of(device), rc = trouble(function, index);
    size_t len;
    const char *p = value_of(index, "links", &len);
    if (rc)
        return rc;
    for (const char *end = p + len; p && p < end; p += strcspn(p, ",;\n") + 1) {
        unsigned int n = 0;
        if (sscanf(p, "%u:%15[a-z0-9]", &n, to) != 2)
            misuse("bad links");
        if (link < n)
            return OK;
        link -= n;
    }
    return p ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

NVML(nvmlDeviceGetNvLinkState, nvmlDevice_t device, unsigned int link, int *up)
{
    char to[16] = "";
    int rc = link_of(__func__, device, link, to);
    if (!rc)
        *up = strcmp(to, "down") != 0;
    return rc;
}

NVML(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlDevice_t device, unsigned int link,
     int *type)
{
    char to[16] = "";
    int rc = link_of(__func__, device, link, to);
    if (!rc)
        *type = strcmp(to, "switch") ? 0 : 2;
    return rc;
}

NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDevice_t device, unsigned int link,
     nvmlPciInfo_t *pci)
{
    char to[16] = "";
    int rc = link_of(__func__, device, link, to);
    memset(pci, 0, sizeof *pci);
    spill(device, pci + 1);
    if (!rc)
        snprintf(pci->busId, sizeof pci->busId, "00000000:%.2s:00.0", to);
    return rc;
}

NVML(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t a, nvmlDevice_t b, int *level)
{
    int index = index_of(a), other = index_of(b), rc = trouble(__func__, index);
    size_t len;
    const char *p = value_of(index, "path", &len);
    if (rc || !p)
        return rc ? rc : NOT_SUPPORTED;
    for (; other; other--)
        p += strcspn(p, ",;\n") + 1;
    *level = atoi(p);
    return OK;
}

NVML(nvmlDeviceGetMemoryAffinity, nvmlDevice_t device, unsigned int n,
     unsigned long *nodes, unsigned int scope)
{
    unsigned int mask = 0;
    int rc = get_unsigned(__func__, device, "affinity", &mask);
    if (n < 1 || scope > 1)
        return INVALID_ARGUMENT;
    memset(nodes, 0, n * sizeof *nodes);
    nodes[0] = mask;
    return rc;
}

static int memory(const char *function, nvmlDevice_t device, nvmlMemory_v2_t *m)
{
    int index = index_of(device), rc = trouble(function, index);
    *m = (nvmlMemory_v2_t){0};
    if (rc)
        return rc;
    if (!number(index, "total", &m->total))
        return NOT_SUPPORTED;
    number(index, "free", &m->free);
    number(index, "used", &m->used);
    number(index, "reserved", &m->reserved);
    unsigned long long pids;
    const struct fake_books *books = books_of(index, &pids);
    for (int i = 0; books && i < FAKE_PROCESSES; i++) {
        m->used += books->entries[i].used;
        m->free -= books->entries[i].used;
    }
    return OK;
}

#ifndef FAKE_NVML_OLD
__attribute__((visibility("default"))) int
nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out);
#endif

NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *out)
{
    nvmlMemory_v2_t m;
    int rc = memory(__func__, device, &m);
#ifndef FAKE_NVML_OLD /* as drivers from 535 on: whoever replaces the exported one comes between */
    nvmlMemory_v2_t again = {.version = sizeof again | 2u << 24};
    if (!rc && nvmlDeviceGetMemoryInfo_v2(device, &again) == OK)
        m = again;
#endif
    *out = (nvmlMemory_t){m.total, m.free, m.used + m.reserved};
    spill(device, out + 1);
    return rc;
}

/* maxclock2: the number behind the name says which. */
NVML(nvmlDeviceGetMaxClockInfo, nvmlDevice_t device, int type, unsigned int *out)
{
    char key[32];
    snprintf(key, sizeof key, "maxclock%d", type);
    return get_unsigned(__func__, device, key, out);
}

NVML(nvmlDeviceGetUtilizationRates, nvmlDevice_t device, nvmlUtilization_t *out)
{
    int rc = get_unsigned(__func__, device, "util", &out->gpu);
    spill(device, out + 1);
    return rc ? rc : get_unsigned(__func__, device, "utilmem", &out->memory);
}

NVML(nvmlDeviceGetTemperature, nvmlDevice_t device, int sensor, unsigned int *out)
{
    return sensor ? INVALID_ARGUMENT : get_unsigned(__func__, device, "temp", out);
}

struct processes {
    struct {
        unsigned int pid;
        unsigned long long bytes;
    } p[4096];
    unsigned n;
};

/* "PID:BYTES,PID:BYTES"; BYTES may be -1. */
static int processes(const char *function, nvmlDevice_t device, const char *key,
                     unsigned int *n, struct processes *list)
{
    int index = index_of(device), rc = trouble(function, index);
    size_t len;
    const char *p = value_of(index, key, &len), *end = p ? p + len : NULL;
    unsigned long long pids;
    const struct fake_books *books = books_of(index, &pids);
    list->n = 0;
    if (rc)
        return rc;
    for (int i = 0; books && i < FAKE_PROCESSES; i++)
        if (books->entries[i].used) {
            list->p[list->n].pid = (unsigned)books->entries[i].pid + (unsigned)pids;
            list->p[list->n++].bytes = books->entries[i].used;
        }
    if (!p && !books)
        return NOT_SUPPORTED;
    while (p < end) {
        char *next;
        list->p[list->n].pid = (unsigned)strtoul(p, &next, 10);
        list->p[list->n++].bytes = strtoull(next + 1, &next, 10);
        p = next + 1;
    }
    rc = list->n > *n ? INSUFFICIENT_SIZE : OK;
    *n = list->n;
    return rc;
}

/* Writes an item as a driver does whose items have size_v3 bytes, where the card says so of the
 * function's version: what the form does not have is 0. Of the list, it leaves `unset` out. */
static void put_process(nvmlDevice_t device, const char *function, void *out, unsigned i,
                        unsigned n, const void *item, size_t size)
{
    char key[16];
    unsigned long long real = size, unset = 0;
    snprintf(key, sizeof key, "size%s", strstr(function, "Processes") + 9);
    number(index_of(device), key, &real);
    number(index_of(device), "unset", &unset);
    if (i + unset >= n)
        return;
    char *at = (char *)out + i * ((real + 7) / 8 * 8); /* the bytes of padding stay */
    memset(at, 0, real);
    memcpy(at, item, size < real ? size : real);
}

/* A list of processes in a form of nvml.h, with what the form has behind the bytes. */
#define PROCESSES(name, form, key, ...)                                                  \
    NVML(name, nvmlDevice_t device, unsigned int *n, form *out)                          \
    {                                                                                    \
        static struct processes list;                                                    \
        int rc = processes(__func__, device, key, n, &list);                             \
        for (unsigned i = 0; !rc && i < list.n; i++) {                                   \
            const form item = {list.p[i].pid, list.p[i].bytes, __VA_ARGS__};             \
            put_process(device, __func__, out, i, list.n, &item, sizeof item);           \
        }                                                                                \
        return rc;                                                                       \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, "processes")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, "graphics")

static unsigned long long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
}

NVML(nvmlDeviceGetProcessUtilization, nvmlDevice_t device,
     nvmlProcessUtilizationSample_t *out, unsigned int *n, unsigned long long last_seen)
{
    static struct processes list;
    unsigned int all = ~0u, age = 0;
    int rc = processes(__func__, device, "sm", &all, &list);
    get_unsigned(__func__, device, "smage", &age);
    unsigned long long at = now_us() - age;
    if (rc)
        return rc;
    if (!list.n || at <= last_seen) {
        *n = 0;
        return NOT_FOUND;
    }
    rc = !out || *n < list.n ? INSUFFICIENT_SIZE : OK;
    *n = list.n;
    unsigned int size = sizeof *out;
    get_unsigned(__func__, device, "smsize", &size);
    for (unsigned i = 0; !rc && i < list.n; i++) {
        const nvmlProcessUtilizationSample_t item = {
            .pid = list.p[i].pid, .timeStamp = at, .smUtil = (unsigned)list.p[i].bytes};
        memset((char *)out + i * size, 0, size);
        memcpy((char *)out + i * size, &item, sizeof item);
    }
    return rc;
}

/* The highest number of an event of the script, or the next one above `above` that the
 * set has asked for. */
static long next_event(const struct nvmlEventSet_st *set, nvmlEventData_t *out)
{
    size_t len;
    const char *p;
    long best = -1;
    for (int i = 0; (p = line_of("event", i, &len)); i++) {
        char uuid[96];
        long id;
        unsigned long long type, data;
        if (sscanf(p, "%ld %95s %llu %llu", &id, uuid, &type, &data) != 4)
            misuse("a bad line `event`");
        if (!out) {
            best = id > best ? id : best;
            continue;
        }
        if (id <= set->last_id || (best >= 0 && id >= best))
            continue;
        int index = -1;
        size_t n;
        for (int k = 0; k < MAX_CARDS && index < 0; k++) {
            const char *u = value_of(k, "uuid", &n);
            if (u && n == strlen(uuid) && !strncmp(u, uuid, n))
                index = k;
        }
        if (index >= 0 && !(set->types[index] & type))
            continue;
        best = id;
        out->device = index >= 0 ? handle_of(index) : NULL;
        out->eventType = type;
        out->eventData = data;
    }
    return best;
}

NVML(nvmlEventSetCreate, nvmlEventSet_t *out)
{
    int rc = trouble(__func__, -1);
    if (rc)
        return rc;
    *out = calloc(1, sizeof **out);
    (*out)->generation = g.generation;
    (*out)->last_id = next_event(*out, NULL);
    g.sets++;
    return OK;
}

static void check_set(nvmlEventSet_t set)
{
    if (!set || set->generation != g.generation)
        misuse("a set of events of another life");
}

/* Works whatever the driver does, as freeing does. */
NVML(nvmlEventSetFree, nvmlEventSet_t set)
{
    check_set(set);
    set->generation = 0;
    free(set);
    g.sets--;
    return OK;
}

NVML(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t device, unsigned long long *out)
{
    int index = index_of(device), rc = trouble(__func__, index);
    *out = 0;
    if (!rc)
        number(index, "events", out);
    return rc;
}

NVML(nvmlDeviceRegisterEvents, nvmlDevice_t device, unsigned long long types,
     nvmlEventSet_t set)
{
    int index = index_of(device), rc = trouble(__func__, index);
    unsigned long long has = 0;
    check_set(set);
    if (index >= INSTANCES)
        misuse("events of an instance");
    if (rc)
        return rc;
    number(index, "events", &has);
    if (types & ~has)
        return NOT_SUPPORTED;
    set->types[index] |= types;
    return OK;
}

NVML(nvmlEventSetWait_v2, nvmlEventSet_t set, nvmlEventData_t *out,
     unsigned int timeout_ms)
{
    const struct timespec pause = {0, 5000000};
    check_set(set);
    for (unsigned waited = 0;; waited += 5) {
        int rc = trouble(__func__, -1);
        long id = rc ? -1 : next_event(set, out);
        if (rc)
            return rc;
        if (id >= 0) {
            set->last_id = id;
            spill(out->device, out + 1);
            return OK;
        }
        if (waited >= timeout_ms)
            return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

#ifndef FAKE_NVML_OLD

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;
_Static_assert(sizeof(nvmlSetMemoryLimits_v1_t) == 24 &&
                   sizeof(nvmlGetMemoryLimits_v1_t) == 32,
               "ABI");

/* What both functions refuse. Else the account, locked, the cgroup of the folder and the card. */
static int open_limits(const char *function, nvmlDevice_t device, const char *folder,
                       char path[FAKE_PATH], char uuid[FAKE_UUID],
                       struct fake_limits **limits, int *fd)
{
    int index = index_of(device), rc = trouble(function, index);
    unsigned long long mig = 0, which[2];
    size_t len = 0;
    const char *driver = line_of("driver", 0, &len);
    if (rc)
        return rc;
    if (!driver || atoi(driver) < 615)
        return FUNCTION_NOT_FOUND;
    number(index, "mig", &mig);
    *limits = index >= INSTANCES || mig ? NULL : fake_limits_open(fd);
    if (!*limits)
        return NOT_SUPPORTED;
    rc = !folder                                                      ? INVALID_ARGUMENT
         : !fake_cgroup_of(folder, path) || !fake_folder(path, which) ? OPERATING_SYSTEM
                                                                      : OK;
    if (rc) {
        munmap(*limits, sizeof **limits);
        close(*fd);
        return rc;
    }
    const char *name = value_of(index, "uuid", &len);
    snprintf(uuid, FAKE_UUID, "%.*s", (int)len, name ? name : "");
    fake_limits_lock(*fd, F_WRLCK);
    fake_limits_expire(*limits);
    fake_limits_reap(*limits);
    return OK;
}

static int close_limits(struct fake_limits *limits, int fd, int rc)
{
    munmap(limits, sizeof *limits);
    close(fd); /* with its lock */
    return rc;
}

NVML(nvmlDeviceSetMemoryLimits_v1, nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *in)
{
    int fd;
    struct fake_limits *limits;
    char uuid[FAKE_UUID], path[FAKE_PATH];
    unsigned long long total = 0, below = 0;
    int rc = open_limits(__func__, device, in->nameSpace, path, uuid, &limits, &fd);
    if (rc)
        return rc;
    number(index_of(device), "total", &total);
    if (in->softLimit > in->hardLimit || in->softLimit > total ||
        (in->hardLimit > total && in->hardLimit != FAKE_NO_LIMIT))
        return close_limits(limits, fd, INVALID_ARGUMENT);
    if (in->hardLimit < fake_limits_used(limits, path, uuid) &&
        number(index_of(device), "below", &below))
        return close_limits(limits, fd, (int)below);
    fake_limits_set(limits, path, uuid, in->softLimit, in->hardLimit);
    return close_limits(limits, fd, OK);
}

NVML(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *out)
{
    int fd;
    struct fake_limits *limits;
    char uuid[FAKE_UUID], path[FAKE_PATH];
    int rc = open_limits(__func__, device, out->nameSpace, path, uuid, &limits, &fd);
    if (rc)
        return rc;
    const struct fake_limit *limit = fake_limits_find(limits, path, uuid);
    if (!limit)
        return close_limits(limits, fd, NOT_FOUND);
    out->softLimit = limit->soft > limit->below ? limit->soft : limit->below;
    out->hardLimit = limit->hard;
    out->currentUsed = fake_limits_used(limits, path, uuid);
    spill(device, out + 1);
    return close_limits(limits, fd, OK);
}

/* The limit of this process's own cgroup is its size of the card. */
static void limit_size(nvmlDevice_t device, nvmlMemory_v2_t *m)
{
    int fd;
    struct fake_limits *limits;
    char uuid[FAKE_UUID], path[FAKE_PATH], above[FAKE_PATH];
    if (!getenv("FAKE_LIMITS") ||
        open_limits("", device, fake_cgroup_root(), above, uuid, &limits, &fd))
        return;
    fake_own_cgroup(path);
    const struct fake_limit *limit = fake_limits_find(limits, path, uuid);
    if (limit && limit->hard < m->total) {
        unsigned long long used = fake_limits_used(limits, path, uuid);
        m->total = limit->hard;
        m->used = used;
        m->free = used < m->total ? m->total - used : 0;
    }
    close_limits(limits, fd, OK);
}

NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    nvmlMemory_v2_t m;
    if (out->version != 0x02000028)
        return VERSION_MISMATCH;
    int rc = memory(__func__, device, &m);
    if (!rc)
        limit_size(device, &m);
    m.version = out->version;
    *out = m;
    spill(device, out + 1);
    return rc;
}

NVML(nvmlDeviceGetGpuFabricInfoV, nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *out)
{
    unsigned int state = 0, status = 0;
    int rc = get_unsigned(__func__, device, "fabric", &state);
    get_unsigned(__func__, device, "fabricstatus", &status);
    if (out->version != 0x02000024)
        return VERSION_MISMATCH;
    *out = (nvmlGpuFabricInfo_v2_t){out->version,         "cluster", (int)status, 7,
                                    (unsigned char)state, 9};
    spill(device, out + 1);
    return rc;
}

static bool is_instance(int index)
{
    return index >= INSTANCES;
}

NVML(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *n)
{
    int rc = get_unsigned(__func__, device, "instances", n);
    if (rc == NOT_SUPPORTED)
        *n = is_instance(index_of(device)) ? 0 : 7;
    return rc == NOT_SUPPORTED ? OK : rc;
}

NVML(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int at,
     nvmlDevice_t *out)
{
    int index = index_of(device), rc = trouble(__func__, index);
    size_t len;
    unsigned int most = 0;
    nvmlDeviceGetMaxMigDeviceCount(device, &most);
    if (rc || at >= most)
        return rc ? rc : INVALID_ARGUMENT;
    for (int i = INSTANCES; line_of("instance", i - INSTANCES, &len); i++) {
        unsigned long long card = 0, position = 0;
        number(i, "card", &card);
        number(i, "at", &position);
        if (card == (unsigned)index && position == at) {
            *out = handle_of(i);
            return OK;
        }
    }
    return NOT_FOUND;
}

NVML(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t device, unsigned int *out)
{
    int index = index_of(device), rc = trouble(__func__, index);
    *out = index >= INSTANCES;
    return rc;
}

NVML(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned int *out)
{
    int index = index_of(device), rc = trouble(__func__, index);
    *out = (unsigned)index;
    return rc;
}

NUMBER(nvmlDeviceGetGpuInstanceId, "gi")
NUMBER(nvmlDeviceGetComputeInstanceId, "ci")

typedef struct {
    unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount,
        computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

NVML(nvmlDeviceGetAttributes_v2, nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    unsigned int mib = 0;
    int rc = get_unsigned(__func__, device, "mib", &mib);
    memset(out, 0, sizeof *out);
    out->memorySizeMB = mib;
    spill(device, out + 1);
    if (!rc)
        rc = get_unsigned(__func__, device, "slices", &out->gpuInstanceSliceCount);
    out->computeInstanceSliceCount = out->gpuInstanceSliceCount;
    get_unsigned(__func__, device, "cslices", &out->computeInstanceSliceCount);
    return rc;
}

NVML(nvmlDeviceGetRemappedRows, nvmlDevice_t device, unsigned int *corrected,
     unsigned int *uncorrected, unsigned int *pending, unsigned int *failed)
{
    unsigned int v = 0;
    int rc = get_unsigned(__func__, device, "remap", &v);
    *corrected = *uncorrected = 0;
    *pending = v == 1;
    *failed = v == 2;
    return rc;
}

NVML(nvmlDeviceGetFieldValues, nvmlDevice_t device, int n, nvmlFieldValue_t *values)
{
    int rc = trouble(__func__, index_of(device));
    for (int i = 0; !rc && i < n; i++) {
        unsigned int v = 0;
        values[i].nvmlReturn = values[i].fieldId == 230
                                   ? get_unsigned(__func__, device, "recovery", &v)
                                   : NOT_SUPPORTED;
        values[i].valueType = 1;
        values[i].value.ui = v;
    }
    spill(device, values + n);
    return rc;
}

NVML(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *mode, unsigned int *next)
{
    int rc = get_unsigned(__func__, device, "mig", mode);
    *next = *mode;
    return rc;
}

#define BOTH(name, key)                                                                  \
    PROCESSES(name##_v2, nvmlProcessInfo_v2_t, key, ~0u, ~0u)                            \
    PROCESSES(name##_v3, nvmlProcessInfo_v2_t, key, ~0u, ~0u)
BOTH(nvmlDeviceGetComputeRunningProcesses, "processes")
BOTH(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
BOTH(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

#endif
