/* SPDX-License-Identifier: MIT */
/* Memory and copies of the delaying test device. */
#include "device/delaying_device.h"

#include <string.h>

#include "base/error.h"

enum { POISON = 0xff, DEFAULT_ALIGNMENT = 256 };

static const uint64_t default_memory_bytes = 1u << 30;

static const strata__allocator *allocator_of(const delaying_device *d)
{
    return &d->base.context->allocator;
}

bool strata__delaying_fault_hit(delaying_device *d, uint32_t kind)
{
    if (kind != STRATA__FAULT_LOST)
        d->usage.calls++;
    if (!(d->faults & kind))
        return false;
    if (d->countdown > 1) {
        d->countdown--;
        return false;
    }
    if (!d->for_good)
        d->faults = 0;
    d->usage.faults++;
    return true;
}

strata_status strata__delaying_alive(delaying_device *d)
{
    return d->lost ? strata__fail(STRATA_ERR_DEVICE_LOST, "delaying: the device was lost")
                   : STRATA_OK;
}

const delaying_block *strata__delaying_find(const delaying_device *d, const void *at,
                                            uint64_t bytes, bool *out_cut)
{
    const uint8_t *first = at;
    const delaying_block *found = NULL;
    *out_cut = false;
    for (uint64_t i = 0; i < d->block_count; ++i) {
        const delaying_block *b = &d->blocks[i];
        bool has_all = first >= b->base && first + bytes <= b->base + b->bytes;
        /* Memory that was allocated here is what it is, also within registered pages. */
        if (has_all && b->kind != BLOCK_REGISTERED)
            found = b;
        else if (has_all && !found)
            found = b;
        else if (!has_all && first < b->base + b->bytes && first + bytes > b->base)
            *out_cut = true;
    }
    if (found && found->kind != BLOCK_REGISTERED)
        *out_cut = false;
    return found;
}

strata_status strata__delaying_add_block(delaying_device *d, void *base, uint64_t bytes,
                                         uint32_t kind)
{
    if (d->block_count == d->block_capacity) {
        uint64_t capacity = d->block_capacity ? 2 * d->block_capacity : 16;
        delaying_block *blocks = strata__calloc(allocator_of(d), capacity, sizeof *blocks);
        if (!blocks)
            return strata__fail_memory(capacity * sizeof *blocks, "the list of memory");
        if (d->blocks)
            memcpy(blocks, d->blocks, d->block_count * sizeof *blocks);
        strata__free(allocator_of(d), d->blocks, d->block_capacity * sizeof *blocks);
        d->blocks = blocks;
        d->block_capacity = capacity;
    }
    d->blocks[d->block_count++] = (delaying_block){base, bytes, kind};
    return STRATA_OK;
}

uint64_t strata__delaying_drop_block(delaying_device *d, const void *base, uint32_t kind)
{
    for (uint64_t i = 0; i < d->block_count; ++i) {
        delaying_block b = d->blocks[i];
        if (b.base == base && b.kind == kind) {
            d->blocks[i] = d->blocks[--d->block_count];
            return b.bytes;
        }
    }
    return 0;
}

static void destroy(strata__device *device)
{
    delaying_device *d = delaying_of(device);
    strata_context *context = device->context;
    strata__delaying_free_streams(d);
    strata__free(&context->allocator, d->blocks, d->block_capacity * sizeof *d->blocks);
    pthread_mutex_destroy(&d->lock);
    strata__free(&context->allocator, d, sizeof *d);
    strata__context_release(context);
}

static strata_status enter(strata__device *device, void *out_saved)
{
    (void)device;
    (void)out_saved;
    return STRATA_OK;
}

static void leave(strata__device *device, const void *saved)
{
    (void)device;
    (void)saved;
}

static strata_status memory_free_bytes(strata__device *device, uint64_t *out_bytes)
{
    delaying_device *d = delaying_of(device);
    pthread_mutex_lock(&d->lock);
    *out_bytes = device->facts.memory_bytes - d->usage.device_bytes;
    pthread_mutex_unlock(&d->lock);
    return STRATA_OK;
}

/* Memory of either kind, filled with what nobody wrote. */
static strata_status take(delaying_device *d, uint64_t bytes, uint32_t kind, void **out)
{
    strata_status status;
    void *memory = strata__alloc_aligned(allocator_of(d), bytes, d->base.facts.alignment_bytes);
    if (!memory)
        return strata__fail_memory(bytes, "memory of the delaying device");
    status = strata__delaying_add_block(d, memory, bytes, kind);
    if (status != STRATA_OK) {
        strata__free(allocator_of(d), memory, bytes);
        return status;
    }
    memset(memory, POISON, bytes);
    *out = memory;
    return STRATA_OK;
}

static strata_status alloc(strata__device *device, uint64_t bytes, const char *what, void **out)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    if (status == STRATA_OK && (strata__delaying_fault_hit(d, STRATA__FAULT_ALLOC) ||
                                bytes > device->facts.memory_bytes - d->usage.device_bytes))
        status =
            strata__fail(STRATA_ERR_DEVICE_MEMORY, "delaying: cannot allocate %llu bytes for %s",
                         (unsigned long long)bytes, what);
    if (status == STRATA_OK)
        status = take(d, bytes, BLOCK_DEVICE, out);
    if (status == STRATA_OK)
        d->usage.device_bytes += bytes;
    if (d->usage.device_bytes > d->usage.device_peak_bytes)
        d->usage.device_peak_bytes = d->usage.device_bytes;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static strata_status host_alloc(strata__device *device, uint64_t bytes, const char *what,
                                void **out)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    if (status == STRATA_OK && strata__delaying_fault_hit(d, STRATA__FAULT_HOST_ALLOC))
        status = strata__fail(STRATA_ERR_NO_MEMORY, "delaying: cannot page-lock %llu bytes for %s",
                              (unsigned long long)bytes, what);
    if (status == STRATA_OK)
        status = take(d, bytes, BLOCK_HOST, out);
    if (status == STRATA_OK)
        d->usage.host_bytes += bytes;
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* Memory is given back once everything has run, as drivers do. */
static void give_back(delaying_device *d, void *pointer, uint64_t bytes, uint32_t kind,
                      uint64_t *counted)
{
    if (!pointer)
        return;
    pthread_mutex_lock(&d->lock);
    strata__delaying_run_all(d);
    strata__delaying_drop_block(d, pointer, kind);
    *counted -= bytes;
    memset(pointer, POISON, bytes);
    pthread_mutex_unlock(&d->lock);
    strata__free(allocator_of(d), pointer, bytes);
}

static void release(strata__device *device, void *pointer, uint64_t bytes)
{
    delaying_device *d = delaying_of(device);
    give_back(d, pointer, bytes, BLOCK_DEVICE, &d->usage.device_bytes);
}

static void host_free(strata__device *device, void *pointer, uint64_t bytes)
{
    delaying_device *d = delaying_of(device);
    give_back(d, pointer, bytes, BLOCK_HOST, &d->usage.host_bytes);
}

static strata_status host_register(strata__device *device, const void *pointer, uint64_t bytes)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    bool cut;
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    if (status == STRATA_OK && strata__delaying_fault_hit(d, STRATA__FAULT_REGISTER))
        status = strata__fail(STRATA_ERR_NO_MEMORY, "delaying: %llu bytes cannot be page-locked",
                              (unsigned long long)bytes);
    if (status == STRATA_OK && (strata__delaying_find(d, pointer, bytes, &cut) || cut))
        status = strata__fail(STRATA_ERR_DRIVER, "delaying: memory is page-locked already");
    if (status == STRATA_OK)
        status = strata__delaying_add_block(d, (void *)(uintptr_t)pointer, bytes, BLOCK_REGISTERED);
    if (status == STRATA_OK)
        d->usage.registered_bytes += bytes;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static void host_unregister(strata__device *device, const void *pointer)
{
    delaying_device *d = delaying_of(device);
    pthread_mutex_lock(&d->lock);
    strata__delaying_run_all(d);
    d->usage.registered_bytes -= strata__delaying_drop_block(d, pointer, BLOCK_REGISTERED);
    pthread_mutex_unlock(&d->lock);
}

/* What a copy reads now, because it may change once the call has returned. */
static strata_status take_snapshot(delaying_device *d, delaying_op *op)
{
    op->snapshot = strata__alloc(allocator_of(d), op->bytes);
    if (!op->snapshot)
        return strata__fail_memory(op->bytes, "a copy");
    memcpy(op->snapshot, op->source, op->bytes);
    return STRATA_OK;
}

/* With the lock held. */
static strata_status enqueue_copy(delaying_device *d, delaying_stream *stream, void *target,
                                  const void *source, uint64_t bytes)
{
    bool cut_source, cut_target;
    const delaying_block *from = strata__delaying_find(d, source, bytes, &cut_source);
    const delaying_block *to = strata__delaying_find(d, target, bytes, &cut_target);
    strata_status status = STRATA_OK;
    delaying_op *op;
    if (cut_source || cut_target)
        return strata__fail(STRATA_ERR_INTERNAL, "delaying: a copy %s its memory by some bytes",
                            cut_source ? "reads beyond" : "writes beyond");
    if (!(from && from->kind == BLOCK_DEVICE) && !(to && to->kind == BLOCK_DEVICE))
        return strata__fail(STRATA_ERR_INTERNAL, "delaying: a copy from host to host memory");
    op = strata__delaying_op(d, OP_COPY);
    if (!op)
        return strata__fail_memory(sizeof *op, "a copy");
    op->target = target;
    op->source = source;
    op->bytes = bytes;
    if (!from)
        status = take_snapshot(d, op);
    if (status != STRATA_OK) {
        strata__delaying_op_free(d, op);
        return status;
    }
    status = strata__delaying_push(stream, op);
    if (status == STRATA_OK && !to)
        strata__delaying_run(d, stream, stream->done + stream->count);
    return status;
}

strata_status strata__delaying_copy_many(strata__device *device, strata__stream *stream,
                                         const strata__copies *copies)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    if (status == STRATA_OK && strata__delaying_fault_hit(d, STRATA__FAULT_COPY))
        status = strata__fail(STRATA_ERR_DRIVER, "delaying: a copy was made to fail");
    for (uint64_t i = 0; i < copies->count && status == STRATA_OK; ++i)
        if (copies->bytes[i])
            status = enqueue_copy(d, (delaying_stream *)stream, copies->targets[i],
                                  copies->sources[i], copies->bytes[i]);
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_copy(strata__device *device, strata__stream *stream, void *target,
                                    const void *source, uint64_t bytes)
{
    const strata__copies one = {&target, &source, &bytes, 1};
    return strata__delaying_copy_many(device, stream, &one);
}

strata_status strata__delaying_fill(strata__device *device, strata__stream *stream, void *target,
                                    uint8_t byte, uint64_t bytes)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    delaying_op *op;
    bool cut;
    if (!bytes)
        return STRATA_OK;
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    if (status == STRATA_OK && !strata__delaying_find(d, target, bytes, &cut))
        status = strata__fail(STRATA_ERR_INTERNAL, "delaying: a fill writes beyond its memory");
    op = status == STRATA_OK ? strata__delaying_op(d, OP_FILL) : NULL;
    if (op) {
        op->target = target;
        op->byte = byte;
        op->bytes = bytes;
        status = strata__delaying_push((delaying_stream *)stream, op);
    } else if (status == STRATA_OK) {
        status = strata__fail_memory(sizeof *op, "a fill");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static const strata__device_ops delaying_ops = {
    .destroy = destroy,
    .enter = enter,
    .leave = leave,
    .memory_free_bytes = memory_free_bytes,
    .alloc = alloc,
    .free = release,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream_create = strata__delaying_stream_create,
    .stream_wrap = strata__delaying_stream_wrap,
    .stream_destroy = strata__delaying_stream_destroy,
    .stream_synchronize = strata__delaying_stream_synchronize,
    .event_create = strata__delaying_event_create,
    .event_destroy = strata__delaying_event_destroy,
    .event_record = strata__delaying_event_record,
    .event_query = strata__delaying_event_query,
    .event_synchronize = strata__delaying_event_synchronize,
    .event_elapsed_ns = strata__delaying_event_elapsed_ns,
    .stream_wait = strata__delaying_stream_wait,
    .copy = strata__delaying_copy,
    .copy_many = strata__delaying_copy_many,
    .fill = strata__delaying_fill,
    .capture_begin = strata__delaying_capture_begin,
    .capture_end = strata__delaying_capture_end,
    .graph_launch = strata__delaying_graph_launch,
    .graph_destroy = strata__delaying_graph_destroy,
};

strata_status strata__delaying_device_open(strata_context *context,
                                           const strata__delaying_options *options,
                                           strata__device **out)
{
    delaying_device *d = strata__calloc(&context->allocator, 1, sizeof *d);
    strata__device_facts *facts;
    if (!d)
        return strata__fail_memory(sizeof *d, "the delaying device");
    pthread_mutex_init(&d->lock, NULL);
    d->policy = options->policy;
    d->random = (options->seed + 1) * 0x9e3779b97f4a7c15ull;
    d->eagerness = options->seed % 8;
    d->base.ops = &delaying_ops;
    d->base.context = strata__context_retain(context);
    facts = &d->base.facts;
    facts->kind = STRATA__DEVICE_DELAYING;
    facts->multiprocessors = 1;
    facts->memory_bytes = options->memory_bytes ? options->memory_bytes : default_memory_bytes;
    facts->memory_free_bytes = facts->memory_bytes;
    facts->reads_locked = !options->no_reads;
    facts->graphs = options->graphs;
    facts->alignment_bytes =
        options->alignment_bytes ? options->alignment_bytes : DEFAULT_ALIGNMENT;
    memcpy(facts->name, "delaying", sizeof "delaying");
    *out = &d->base;
    return STRATA_OK;
}

void strata__delaying_fail(strata__device *device, uint32_t faults, uint64_t countdown,
                           uint32_t for_good)
{
    delaying_device *d = delaying_of(device);
    pthread_mutex_lock(&d->lock);
    d->faults = faults;
    d->countdown = countdown;
    d->for_good = for_good;
    pthread_mutex_unlock(&d->lock);
}

void strata__delaying_usage_get(strata__device *device, strata__delaying_usage *out)
{
    delaying_device *d = delaying_of(device);
    pthread_mutex_lock(&d->lock);
    *out = d->usage;
    pthread_mutex_unlock(&d->lock);
}
