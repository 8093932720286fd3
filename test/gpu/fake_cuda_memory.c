/* SPDX-License-Identifier: Apache-2.0 */

/* The memory of the driver without a card beside cuMemAlloc: arrays, pools, handles and mappings,
 * what processes share, and graphs. See fake_cuda.c. */

#include "gpu/fake_cuda_objects.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- Arrays of 4 bytes for each element and channel -- */

struct array_desc {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array3d_desc {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
static int make_array(handle *array, unsigned long long bytes)
{
    WITH_CONTEXT;
    *array = make(ARRAY, current->device, bytes);
    if (*array)
        (*array)->of = whole(current);
    return leave(*array ? OK : OUT_OF_MEMORY);
}

/* NV12 has a plane of half the height, BC1 8 bytes for 4 x 4 elements. */
static unsigned long long elements(unsigned long long w, unsigned long long h,
                                   unsigned long long d, unsigned channels, int format)
{
    if (format == 0xb0 || format == 0x53)
        return w * h * 3 / 2;
    if (format == 0x91)
        return (w + 3) / 4 * ((h + 3) / 4) * 8;
    return 4 * channels * w * (h ? h : 1) * (d ? d : 1);
}

FN(cuArrayCreate_v2, (handle * a, const struct array_desc *d), (a, d))
{
    return make_array(a, elements(d->width, d->height, 1, d->channels, d->format));
}

FN(cuArray3DCreate_v2, (handle * a, const struct array3d_desc *d), (a, d))
{
    return make_array(a, (d->flags & 0xc0) ? 0
                                           : elements(d->width, d->height, d->depth,
                                                      d->channels, d->format));
}

FN(cuMipmappedArrayCreate, (handle * a, const struct array3d_desc *d, unsigned levels),
   (a, d, levels))
{
    unsigned long long bytes = 0;
    for (unsigned i = 0; i < levels; i++)
        bytes += elements(d->width >> i ? d->width >> i : 1, d->height >> i,
                          d->depth >> i, d->channels, d->format);
    return make_array(a, bytes);
}

static void end_bound(enum kind kind, dptr owner, dptr from, dptr to);

static int end_array(handle a)
{
    enter();
    if (!is(a, ARRAY))
        return leave(INVALID);
    end_bound(TILE, (dptr)(size_t)a, 0, ~0ull);
    end(a);
    return leave(OK);
}

FN(cuArrayDestroy, (handle a), (a))
{
    return end_array(a);
}

FN(cuMipmappedArrayDestroy, (handle a), (a))
{
    return end_array(a);
}

/* -- Pools -- */

struct pool_props {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};

static struct object *default_pool(int device)
{
    static struct object *pools[DEVICES];
    if (!pools[device])
        pools[device] = make(POOL, device, 0);
    return pools[device];
}

FN(cuMemPoolCreate, (handle * pool, const struct pool_props *props), (pool, props))
{
    enter();
    *pool = make(POOL, props->location.type == 1 ? props->location.id : NOWHERE, 0);
    return leave(OK);
}

static unsigned long long in_chunks(unsigned long long bytes)
{
    static unsigned long long chunk;
    const char *mib = getenv("FAKE_CUDA_CHUNK_MIB");
    if (!chunk)
        chunk = (mib ? strtoull(mib, NULL, 10) : 2) << 20;
    return (bytes + chunk - 1) / chunk * chunk;
}

static void shrink(struct object *pool, unsigned long long keep)
{
    unsigned long long need = in_chunks(pool->size);
    need = need < keep && keep < pool->bytes ? keep : need;
    if (need < pool->bytes)
        give(pool->device, pool->bytes - need);
    pool->bytes = need < pool->bytes ? need : pool->bytes;
    if (pool->destroyed && !pool->size)
        end(pool);
}

FN(cuMemPoolDestroy, (handle pool), (pool))
{
    enter();
    if (!is(pool, POOL))
        return leave(INVALID);
    pool->destroyed = true;
    shrink(pool, 0);
    return leave(OK);
}

FN(cuMemPoolTrimTo, (handle pool, size_t keep), (pool, keep))
{
    enter();
    if (!is(pool, POOL))
        return leave(INVALID);
    shrink(pool, keep);
    return leave(OK);
}

FN(cuMemPoolGetAttribute, (handle pool, int which, unsigned long long *value),
   (pool, which, value))
{
    enter();
    if (!is(pool, POOL) || (which != 5 && which != 7))
        return leave(INVALID);
    *value = which == 5 ? pool->bytes : pool->size;
    return leave(OK);
}

FN(cuDeviceGetMemPool, (handle * pool, int device), (pool, device))
{
    enter();
    *pool = default_pool(device);
    return leave(OK);
}

FN(cuDeviceGetDefaultMemPool, (handle * pool, int device), (pool, device))
{
    return impl_cuDeviceGetMemPool(pool, device);
}

struct location {
    int type, id;
};

FN(cuMemGetDefaultMemPool, (handle * pool, struct location *at, int type),
   (pool, at, type))
{
    return impl_cuDeviceGetMemPool(pool, at->type == 1 ? at->id : 1);
}

static int alloc_pooled(dptr *p, unsigned long long bytes, struct object *pool)
{
    if (!is(pool, POOL) || !bytes)
        return INVALID;
    unsigned long long need = in_chunks(pool->size + bytes);
    if (need > pool->bytes && take(pool->device, need - pool->bytes) != OK)
        return OUT_OF_MEMORY;
    pool->bytes = need > pool->bytes ? need : pool->bytes;
    struct object *o = make(POOLED, NOWHERE, bytes);
    if (!o)
        return OUT_OF_MEMORY;
    pool->size += bytes;
    o->of = pool;
    *p = o->address;
    return OK;
}

int free_pooled(dptr p)
{
    struct object *o = find(POOLED, p);
    if (!o)
        return INVALID;
    struct object *pool = o->of;
    pool->size -= o->bytes;
    end(o);
    if (pool->destroyed)
        shrink(pool, 0);
    return OK;
}

/* The graph of the stream (void *)1, while it is captured, and its last node. */
static struct object *captured, *last_node;

/* A node after another one uses the memory that is free by then; one without counts for itself.
 * place: what is free; limits[0]: what the graph takes. */
static struct object *add_node(struct object *graph, struct object *from,
                               unsigned long long bytes, dptr freed)
{
    struct object *gone = freed ? find(NODE, freed) : NULL,
                  *o = make(NODE, NOWHERE, bytes);
    o->of = graph;
    o->owner = (dptr)(size_t)from;
    if (gone)
        graph->place += gone->bytes;
    unsigned long long again = !from ? 0 : bytes < graph->place ? bytes : graph->place;
    graph->place -= again;
    graph->limits[0] += bytes - again;
    return o;
}

static int dependencies(handle node, handle *from, size_t *n)
{
    size_t is = node->owner != 0;
    if (from && *n)
        *from = (handle)(size_t)node->owner;
    *n = from && *n < is ? *n : is;
    return OK;
}

/* The edge to a kernel that starts early carries data. */
FN(cuGraphNodeGetDependencies, (handle node, handle *from, size_t *n), (node, from, n))
{
    return node->dependent ? LOSSY_QUERY : dependencies(node, from, n);
}

FN(cuGraphNodeGetDependencies_v2, (handle node, handle *from, dptr *edges, size_t *n),
   (node, from, edges, n))
{
    return node->dependent && from && !edges ? LOSSY_QUERY : dependencies(node, from, n);
}

/* A captured kernel. */
static int launch(void *stream, bool dependent)
{
    enter();
    if (stream == (void *)1 && captured) {
        last_node = add_node(captured, last_node, 0, 0);
        last_node->dependent = dependent;
    }
    return leave(OK);
}

FN(cuLaunchKernel,
   (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, void *stream, void **params, void **extra),
   (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
{
    return launch(stream, false);
}

/* With the attribute of a programmatic dependency, whatever it is asked for. */
struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned n;
};

FN(cuLaunchKernelEx,
   (const struct launch_config *c, void *f, void **params, void **extra),
   (c, f, params, extra))
{
    return launch(c->stream, true);
}

static int alloc_async(dptr *p, size_t bytes, handle pool, void *stream)
{
    sched_yield(); /* another thread may use the memory that this one expects to be free */
    struct object *context = (size_t)stream > 2 ? ((handle)stream)->of : current;
    if (!context)
        return INVALID_CONTEXT;
    enter();
    if (stream == (void *)1 && captured) {
        int device = pool ? pool->device : context->device;
        last_node = add_node(captured, last_node, device ? 0 : bytes, 0);
        *p = last_node->address;
        return leave(OK);
    }
    return leave(alloc_pooled(p, bytes, pool ? pool : default_pool(context->device)));
}

#define STREAM_FNS(suffix)                                                               \
    FN(cuMemAllocAsync##suffix, (dptr * p, size_t bytes, void *stream),                  \
       (p, bytes, stream))                                                               \
    {                                                                                    \
        return alloc_async(p, bytes, NULL, stream);                                      \
    }                                                                                    \
    FN(cuMemAllocFromPoolAsync##suffix,                                                  \
       (dptr * p, size_t bytes, handle pool, void *stream), (p, bytes, pool, stream))    \
    {                                                                                    \
        return pool ? alloc_async(p, bytes, pool, stream) : INVALID;                     \
    }                                                                                    \
    FN(cuMemFreeAsync##suffix, (dptr p, void *stream), (p, stream))                      \
    {                                                                                    \
        enter();                                                                         \
        struct object *o = find(LINEAR, p);                                              \
        if (!o && stream == (void *)1 && captured) {                                     \
            last_node = add_node(captured, last_node, 0, p);                             \
            return leave(OK);                                                            \
        }                                                                                \
        if (!o)                                                                          \
            return leave(free_pooled(p));                                                \
        end(o);                                                                          \
        return leave(OK);                                                                \
    }                                                                                    \
    FN(cuStreamSynchronize##suffix, (void *stream), (stream))                            \
    {                                                                                    \
        return impl_cuCtxSynchronize();                                                  \
    }                                                                                    \
    FN(cuStreamGetCaptureInfo_v2##suffix,                                                \
       (void *stream, int *status, unsigned long long *id, handle *graph,                \
        const handle **nodes, size_t *n),                                                \
       (stream, status, id, graph, nodes, n))                                            \
    {                                                                                    \
        *status = stream == (void *)1 && captured;                                       \
        *graph = captured;                                                               \
        *nodes = &last_node;                                                             \
        *n = last_node != NULL;                                                          \
        return captured && last_node && last_node->dependent ? LOSSY_QUERY : OK;         \
    }                                                                                    \
    FN(cuStreamGetCaptureInfo_v3##suffix,                                                \
       (void *stream, int *status, unsigned long long *id, handle *graph,                \
        const handle **nodes, const void **edges, size_t *n),                            \
       (stream, status, id, graph, nodes, edges, n))                                     \
    {                                                                                    \
        *status = stream == (void *)1 && captured;                                       \
        *graph = captured;                                                               \
        *nodes = &last_node;                                                             \
        *edges = NULL;                                                                   \
        *n = last_node != NULL;                                                          \
        return OK;                                                                       \
    }

FN(cuCtxSynchronize, (void), ())
{
    enter();
    for (int i = 0; i < tops[POOL]; i++)
        if (objects[i].kind == POOL)
            shrink(&objects[i], 0);
    return leave(OK);
}

FN(cuEventSynchronize, (void *event), (event))
{
    return impl_cuCtxSynchronize();
}

STREAM_FNS()
STREAM_FNS(_ptsz)

/* -- Virtual memory management -- */

struct memory_prop {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    void *win32;
    unsigned char flags[8];
};

FN(cuMemCreate,
   (dptr * h, size_t bytes, const struct memory_prop *prop, unsigned long long flags),
   (h, bytes, prop, flags))
{
    NEEDS_INIT;
    enter();
    struct object *o =
        make(MEMORY, prop->location.type == 1 ? prop->location.id : NOWHERE, bytes);
    *h = o ? o->address : 0;
    if (o)
        o->location = prop->location.type == 1 ? prop->location.id + 1 : -1;
    return leave(o ? OK : OUT_OF_MEMORY);
}

FN(cuMemGetAllocationPropertiesFromHandle, (struct memory_prop * prop, dptr h), (prop, h))
{
    enter();
    struct object *o = find(MEMORY, h);
    if (!o || !o->location) /* as a multicast object */
        return leave(INVALID);
    *prop = (struct memory_prop){
        .type = 1,
        .location = {o->location > 0 ? 1 : 2, o->location > 0 ? o->location - 1 : 0}};
    return leave(OK);
}

/* A version of the future, with parameters of its own. */
FN(cuMemCreate_v2, (size_t bytes, dptr *h), (bytes, h))
{
    NEEDS_INIT;
    enter();
    struct object *o = make(MEMORY, 0, bytes);
    *h = o ? o->address : 0;
    return leave(o ? OK : OUT_OF_MEMORY);
}

static void drop_memory(struct object *o)
{
    if (o->refs || o->maps)
        return;
    end_bound(BINDING, o->address, 0, ~0ull);
    end(o);
}

static void end_bound(enum kind kind, dptr owner, dptr from, dptr to)
{
    for (int i = 0; i < tops[kind]; i++)
        if (objects[i].kind == kind && objects[i].owner == owner &&
            objects[i].place >= from && objects[i].place < to) {
            struct object *memory = objects[i].of;
            end(&objects[i]);
            memory->maps--;
            drop_memory(memory);
        }
}

static int bind(enum kind kind, dptr owner, dptr place, struct object *memory)
{
    struct object *o = memory ? make(kind, NOWHERE, 0) : NULL;
    if (!o)
        return INVALID;
    o->owner = owner;
    o->place = place;
    o->of = memory;
    memory->maps++;
    return OK;
}

FN(cuMulticastCreate, (dptr * h, void *prop), (h, prop))
{
    enter();
    *h = make(MEMORY, NOWHERE, 0)->address;
    return leave(OK);
}

FN(cuMulticastAddDevice, (dptr h, int device), (h, device))
{
    return OK;
}

FN(cuMulticastBindMem,
   (dptr mc, size_t at, dptr h, size_t from, size_t n, unsigned long long flags),
   (mc, at, h, from, n, flags))
{
    enter();
    return leave(bind(BINDING, mc, at, find(MEMORY, h)));
}

FN(cuMulticastBindAddr, (dptr mc, size_t at, dptr p, size_t n, unsigned long long flags),
   (mc, at, p, n, flags))
{
    enter();
    struct object *mapping = find(MAPPING, p);
    return leave(bind(BINDING, mc, at, mapping ? mapping->of : NULL));
}

FN(cuMulticastUnbind, (dptr mc, int device, size_t at, size_t n), (mc, device, at, n))
{
    enter();
    end_bound(BINDING, mc, at, at + n);
    return leave(OK);
}

struct map_info {
    int type;
    handle array;
    dptr place[5];
    int operation, handle_type;
    dptr h;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
};

/* A tile is known by its level and offset. */
FN(cuMemMapArrayAsync, (struct map_info * list, unsigned n, void *stream),
   (list, n, stream))
{
    int rc = OK;
    enter();
    for (unsigned i = 0; i < n && rc == OK; i++) {
        dptr array = (dptr)(size_t)list[i].array, place = list[i].place[1];
        end_bound(TILE, array, place, place + 1);
        if (list[i].operation == 1)
            rc = bind(TILE, array, place, find(MEMORY, list[i].h));
    }
    return leave(rc);
}

FN(cuMemMapArrayAsync_ptsz, (struct map_info * list, unsigned n, void *stream),
   (list, n, stream))
{
    return impl_cuMemMapArrayAsync(list, n, stream);
}

/* What is shared is a file, with its size and location as text. */
static int share(struct object *o)
{
    if (o->fd <= 0 && (o->fd = memfd_create("memory", MFD_CLOEXEC)) >= 0)
        dprintf(o->fd, "%llu %d", o->bytes, o->location);
    return o->fd;
}

static struct object *import(const char *path, enum kind kind)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    char text[32] = "";
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct object *o = fd < 0 ? NULL : make(kind, NOWHERE, 0);
    if (!o || fcntl(fd, F_OFD_SETLK, &l) || pread(fd, text, sizeof text - 1, 0) < 0)
        return NULL;
    o->fd = fd;
    sscanf(text, "%llu %d", &o->size, &o->location);
    return o;
}

FN(cuMemExportToShareableHandle, (int *fd, dptr h, int type, unsigned long long flags),
   (fd, h, type, flags))
{
    enter();
    struct object *o = find(MEMORY, h);
    *fd = o ? fcntl(share(o), F_DUPFD_CLOEXEC, 0) : -1;
    return leave(*fd >= 0 ? OK : INVALID);
}

FN(cuMemImportFromShareableHandle, (dptr * h, void *fd, int type), (h, fd, type))
{
    char path[64];
    enter();
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)(size_t)fd);
    struct object *o = import(path, MEMORY);
    *h = o ? o->address : 0;
    return leave(o ? OK : INVALID);
}

FN(cuIpcGetMemHandle, (char *handle64, dptr p), (handle64, p))
{
    enter();
    struct object *o = find(LINEAR, p);
    if (o)
        snprintf(handle64, 64, "/proc/%d/fd/%d", (int)getpid(), share(o));
    return leave(o ? OK : INVALID);
}

struct ipc_handle {
    char bytes[64];
};

FN(cuIpcOpenMemHandle_v2, (dptr * p, struct ipc_handle handle64, unsigned flags),
   (p, handle64, flags))
{
    enter();
    struct object *o = import(handle64.bytes, OPENED);
    *p = o ? o->address : 0;
    return leave(o ? OK : INVALID);
}

FN(cuIpcOpenMemHandle, (dptr * p, struct ipc_handle handle64, unsigned flags),
   (p, handle64, flags))
{
    return impl_cuIpcOpenMemHandle_v2(p, handle64, flags);
}

FN(cuIpcCloseMemHandle, (dptr p), (p))
{
    enter();
    struct object *o = find(OPENED, p);
    if (!o)
        return leave(INVALID);
    end(o);
    return leave(OK);
}

FN(cuMemGetAddressRange_v2, (dptr * base, size_t *size, dptr p), (base, size, p))
{
    enter();
    for (int i = 0; i < tops[NONE]; i++) {
        const struct object *o = &objects[i];
        unsigned long long n =
            o->kind == OPENED || o->kind == MAPPING ? o->size : o->bytes;
        if ((o->kind == LINEAR || o->kind == OPENED || o->kind == MAPPING) &&
            !o->zombie && p >= o->address && p - o->address < n) {
            *base = o->address;
            *size = n;
            return leave(OK);
        }
    }
    return leave(INVALID);
}

FN(cuMemRelease, (dptr h), (h))
{
    enter();
    struct object *o = find(MEMORY, h);
    if (!o || !o->refs)
        return leave(INVALID);
    o->refs--;
    drop_memory(o);
    return leave(OK);
}

FN(cuMemMap, (dptr at, size_t bytes, size_t offset, dptr h, unsigned long long flags),
   (at, bytes, offset, h, flags))
{
    enter();
    struct object *o = find(MEMORY, h), *m = o ? make(MAPPING, NOWHERE, 0) : NULL;
    if (!m)
        return leave(INVALID);
    m->size = bytes;
    m->address = at;
    m->of = o;
    o->maps++;
    return leave(OK);
}

FN(cuMemUnmap, (dptr at, size_t bytes), (at, bytes))
{
    enter();
    struct object *whole = find(MAPPING, at); /* the usual case, and quick */
    bool one = whole && whole->size >= bytes;
    int from = one ? (int)(whole - objects) : 0;
    for (int i = from; i < (one ? from + 1 : tops[MAPPING]); i++)
        if (objects[i].kind == MAPPING && objects[i].address >= at &&
            objects[i].address < at + bytes) {
            struct object *o = objects[i].of;
            end(&objects[i]);
            o->maps--;
            drop_memory(o);
        }
    return leave(OK);
}

FN(cuMemRetainAllocationHandle, (dptr * h, void *at), (h, at))
{
    enter();
    struct object *m = find(MAPPING, (dptr)(size_t)at);
    if (!m)
        return leave(INVALID);
    m->of->refs++;
    *h = m->of->address;
    return leave(OK);
}

/* -- Graphs -- */

struct alloc_node {
    struct pool_props pool;
    const void *access;
    size_t n_access, bytes;
    dptr pointer;
};
struct node_params {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        struct {
            handle graph;
            int ownership; /* 1: moved */
        } child;
        long long room[29];
    };
    long long reserved2;
};

FN(cuGraphCreate, (handle * graph, unsigned flags), (graph, flags))
{
    enter();
    *graph = make(GRAPH, NOWHERE, 0);
    return leave(OK);
}

FN(cuStreamBeginCapture, (void *stream), (stream))
{
    enter();
    captured = make(GRAPH, NOWHERE, 0);
    last_node = NULL;
    return leave(OK);
}

FN(cuStreamBeginCapture_v2, (void *stream, int mode), (stream, mode))
{
    return impl_cuStreamBeginCapture(stream);
}

FN(cuStreamEndCapture, (void *stream, handle *graph), (stream, graph))
{
    *graph = captured;
    captured = NULL;
    return OK;
}

FN(cuGraphAddMemAllocNode,
   (handle * node, handle graph, const handle *from, size_t n, struct alloc_node *params),
   (node, graph, from, n, params))
{
    enter();
    *node = add_node(graph, n ? *from : NULL, params->bytes, 0);
    params->pointer = (*node)->address;
    return leave(OK);
}

FN(cuGraphAddMemFreeNode,
   (handle * node, handle graph, const handle *from, size_t n, dptr p),
   (node, graph, from, n, p))
{
    enter();
    *node = add_node(graph, n ? *from : NULL, 0, p);
    return leave(OK);
}

FN(cuGraphAddNode,
   (handle * node, handle graph, const handle *from, size_t n,
    struct node_params *params),
   (node, graph, from, n, params))
{
    if (params->type == 10)
        return impl_cuGraphAddMemAllocNode(node, graph, from, n, &params->alloc);
    if (params->type != 4 || params->child.ownership != 1)
        return INVALID;
    enter();
    *node = add_node(graph, n ? *from : NULL, 0, 0);
    handle child = params->child.graph;
    for (int i = 0; i < tops[NODE]; i++)
        if (objects[i].kind == NODE && objects[i].of == child)
            objects[i].of = graph;
    graph->limits[0] += child->limits[0];
    graph->place += child->place;
    end(child); /* nobody may use its handle again */
    return leave(OK);
}

FN(cuGraphAddNode_v2,
   (handle * node, handle graph, const handle *from, const void *edges, size_t n,
    struct node_params *params),
   (node, graph, from, edges, n, params))
{
    return impl_cuGraphAddNode(node, graph, from, n, params);
}

FN(cuGraphDestroy, (handle graph), (graph))
{
    enter();
    for (int i = 0; i < tops[NODE]; i++)
        if (objects[i].kind == NODE && objects[i].of == graph)
            end(&objects[i]);
    end(graph);
    return leave(OK);
}

/* An executable graph holds the size of its nodes, and takes it at the first launch. */
static int instantiate(handle *exec, handle graph)
{
    enter();
    *exec = make(EXEC, NOWHERE, 0);
    (*exec)->size = graph->limits[0];
    (*exec)->place = graph->place; /* at its end this much is free */
    return leave(OK);
}

FN(cuGraphInstantiate, (handle * e, handle g, handle *node, char *log, size_t n),
   (e, g, node, log, n))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiate_v2, (handle * e, handle g, handle *node, char *log, size_t n),
   (e, g, node, log, n))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithFlags, (handle * e, handle g, unsigned long long flags),
   (e, g, flags))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithParams, (handle * e, handle g, void *params), (e, g, params))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithParams_ptsz, (handle * e, handle g, void *params),
   (e, g, params))
{
    return instantiate(e, g);
}

static unsigned long long graph_held;  /* by all executable graphs */
static unsigned long long graph_idle;  /* of it by ended ones */
static unsigned long long stream_held; /* of it by those that free what they take */
static unsigned long long stream_room; /* of that for the last stream */
static void *last_stream;

FN(cuGraphLaunch, (handle exec, void *stream), (exec, stream))
{
    enter();
    unsigned long long again = exec->size - (exec->size < exec->place ? 0 : exec->place);
    unsigned long long need = exec->launched ? 0 : exec->size;
    if (stream != last_stream)
        stream_room = 0; /* it can run at the same time */
    last_stream = stream;
    if (again == 0) /* frees all of it: one after the other use the same memory */
        need = exec->size > stream_room ? exec->size - stream_room : 0;
    if (take(0, need) != OK)
        return leave(OUT_OF_MEMORY);
    graph_held += need;
    stream_held += again == 0 ? need : 0;
    stream_room += again == 0 ? need : 0;
    exec->launched = again != 0;
    return leave(OK);
}

FN(cuGraphExecDestroy, (handle exec), (exec))
{
    enter();
    if (exec->launched)
        graph_idle += exec->size;
    end(exec);
    return leave(OK);
}

FN(cuDeviceGraphMemTrim, (int device), (device))
{
    enter();
    give(0, graph_idle + stream_held);
    graph_held -= graph_idle + stream_held;
    graph_idle = stream_held = stream_room = 0;
    return leave(OK);
}

FN(cuDeviceGetGraphMemAttribute, (int device, int which, unsigned long long *value),
   (device, which, value))
{
    enter();
    *value = graph_held;
    return leave(which == 2 ? OK : INVALID);
}

/* -- Memory that is not counted twice, or is not the device's -- */

FN(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags), (p, bytes, flags))
{
    *p = malloc(bytes);
    return OK;
}
