/* SPDX-License-Identifier: MIT */
#include "session/saved.h"

#include <stddef.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/kv_pages.h"

enum {
    VERSION = 1,
    STAGING_BYTES = 1 << 20, /* of a batch, unless a page is larger */
    SAMPLE_BYTES = 256,      /* of a tensor */
    CHECKSUM_BYTES = 8
};

static const char magic[8] = {'s', 't', 'r', 'a', 't', 'a', 's', 'q'};

/* Beginning and middle: packs that differ in training alone differ there. */
static void add_sample(strata__checksum *sum, const strata__projection *projection)
{
    const uint8_t *data = projection->data;
    uint64_t bytes = projection->bytes, part = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;
    if (!data)
        return;
    strata__checksum_add(sum, data, part);
    strata__checksum_add(sum, data + (bytes - part) / 2, part);
}

static uint64_t weights_mark(const strata_session *session)
{
    strata__checksum sum;
    strata__checksum_init(&sum, 0);
    for (uint32_t i = 0; i < session->geometry->layers; ++i) {
        const strata__layer *layer = &session->layers[i];
        add_sample(&sum, &layer->k);
        add_sample(&sum, &layer->v);
        add_sample(&sum, &layer->attention_out);
        add_sample(&sum, layer->ffn == STRATA__FFN_EXPERTS ? &layer->expert_down : &layer->down);
    }
    return strata__checksum_value(&sum);
}

/* The layout has counted as many pages of every layer at least: no sum overflows. */
static uint64_t total_bytes(const strata_session *session, uint64_t tokens)
{
    uint64_t bytes = sizeof(strata__saved_header) + CHECKSUM_BYTES;
    uint64_t pages = strata__kv_pages(tokens, session->layout->page_tokens);
    for (uint32_t i = 0; i < session->geometry->layers; ++i)
        bytes += 2 * session->layout->layers[i].page_bytes * pages;
    return bytes;
}

static uint64_t header_checksum(const strata__saved_header *header)
{
    return strata__checksum_of(header, offsetof(strata__saved_header, checksum), 0);
}

void strata__saved_header_make(const strata_session *session, uint64_t tokens,
                               strata__saved_header *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->magic, magic, sizeof magic);
    out->version = VERSION;
    out->header_bytes = sizeof *out;
    out->pack = strata__pack_fingerprint(session->pack);
    out->weights = weights_mark(session);
    out->tokens = tokens;
    out->total_bytes = total_bytes(session, tokens);
    out->layers = session->geometry->layers;
    out->kv_format = session->layout->kv_format;
    out->page_tokens = session->layout->page_tokens;
    out->checksum = header_checksum(out);
}

static strata_status check_kind(const strata__saved_header *h, const char *name)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return strata__fail(STRATA_ERR_FORMAT, "%s: no saved sequence", name);
    if (h->version != VERSION)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "%s: a saved sequence of version %u; version %d is read", name,
                            h->version, VERSION);
    if (h->header_bytes != sizeof *h || h->reserved || h->checksum != header_checksum(h))
        return strata__fail(STRATA_ERR_FORMAT, "%s: the header of the saved sequence is damaged",
                            name);
    return STRATA_OK;
}

strata_status strata__saved_header_info(const strata__saved_header *header, const char *name,
                                        strata_state_info *out)
{
    strata_status status = check_kind(header, name);
    if (status != STRATA_OK)
        return status;
    out->kv_format = header->kv_format;
    out->tokens = header->tokens;
    out->total_bytes = header->total_bytes;
    out->page_tokens = header->page_tokens;
    out->layer_count = header->layers;
    return STRATA_OK;
}

static const char *kv_name(uint32_t format)
{
    static const char *const names[] = {"f16", "q8_0", "f32"};
    return format < sizeof names / sizeof names[0] ? names[format] : "an unknown format";
}

strata_status strata__saved_header_check(const strata_session *session,
                                         const strata__saved_header *header, const char *name)
{
    const strata__layout *layout = session->layout;
    strata__saved_header own;
    strata_status status = check_kind(header, name);
    if (status != STRATA_OK)
        return status;
    if (header->tokens > layout->context_tokens)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: the saved sequence has %llu tokens; the context is %llu", name,
                            (unsigned long long)header->tokens,
                            (unsigned long long)layout->context_tokens);
    strata__saved_header_make(session, header->tokens, &own);
    if (header->pack != own.pack || header->weights != own.weights || header->layers != own.layers)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: the sequence was saved with another pack", name);
    if (header->kv_format != own.kv_format)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: the saved sequence has its KV cache in %s, the session in %s",
                            name, kv_name(header->kv_format), kv_name(own.kv_format));
    if (header->page_tokens != own.page_tokens)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: the saved sequence has KV pages of %u tokens, the session of %u",
                            name, header->page_tokens, own.page_tokens);
    if (header->total_bytes != own.total_bytes)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the saved sequence tells %llu bytes, not %llu",
                            name, (unsigned long long)header->total_bytes,
                            (unsigned long long)own.total_bytes);
    return STRATA_OK;
}

strata_status strata__saved_walk_begin(strata__saved_walk *walk, strata_session *session,
                                       uint32_t sequence, uint64_t tokens)
{
    uint64_t page_tokens = session->layout->page_tokens, all = total_bytes(session, tokens);
    uint64_t bytes = all < STAGING_BYTES ? all : STAGING_BYTES;
    memset(walk, 0, sizeof *walk);
    walk->session = session;
    walk->sequence = sequence;
    walk->pages = (uint32_t)strata__kv_pages(tokens, page_tokens);
    walk->last_rows = (uint32_t)(tokens - (walk->pages ? walk->pages - 1 : 0) * page_tokens);
    for (uint32_t i = 0; i < session->geometry->layers; ++i)
        if (session->layout->layers[i].page_bytes > bytes)
            bytes = session->layout->layers[i].page_bytes;
    return strata__region_alloc_host(&walk->staging, session->device, bytes,
                                     "the way of a saved sequence");
}

/* Pages that are neighbours on both sides. */
typedef struct run {
    uint8_t *device;
    uint8_t *host;
    uint64_t bytes;
    uint64_t page_bytes;
    uint32_t layer;
    bool has_last; /* the last page of the sequence is its last */
} run;

/* The next run that fits behind `used` bytes of the staging memory; false: none does. */
static bool next_run(strata__saved_walk *walk, uint64_t used, run *out)
{
    const strata_session *session = walk->session;
    const int32_t *row = session->kv.table + (uint64_t)walk->sequence * session->kv.table_stride;
    const strata__layout_place *place;
    int32_t first;
    uint32_t count = 0;
    if (!walk->pages || walk->layer == session->geometry->layers)
        return false;
    place = &session->layout->layers[walk->layer];
    first = row[walk->page];
    while (walk->page + count < walk->pages && row[walk->page + count] == first + (int32_t)count &&
           (count + 1) * place->page_bytes <= walk->staging.bytes - used)
        ++count;
    if (!count)
        return false;
    out->device = session->memory.base + (walk->side ? place->v_offset : place->k_offset) +
                  (uint64_t)first * place->page_bytes;
    out->host = walk->staging.base + used;
    out->bytes = count * place->page_bytes;
    out->page_bytes = place->page_bytes;
    out->layer = walk->layer;
    walk->page += count;
    out->has_last = walk->page == walk->pages;
    if (out->has_last) {
        walk->page = 0;
        walk->layer += walk->side;
        walk->side = !walk->side;
    }
    return true;
}

uint64_t strata__saved_batch_bytes(const strata__saved_walk *walk)
{
    strata__saved_walk ahead = *walk;
    uint64_t used = 0;
    run r;
    while (next_run(&ahead, used, &r))
        used += r.bytes;
    return used;
}

/* Zeroes the rows of a page that hold no token. */
static void clear_rest(const strata__saved_walk *walk, const run *r)
{
    const strata_session *session = walk->session;
    const strata__layer *layer = &session->layers[r->layer];
    uint64_t page_tokens = session->layout->page_tokens, rows = walk->last_rows;
    uint64_t head_bytes = r->page_bytes / layer->kv_heads, row_bytes = head_bytes / page_tokens;
    uint64_t scale_bytes = 0;
    uint8_t *head = r->host + r->bytes - r->page_bytes;
    if (session->layout->kv_format == STRATA__LAYOUT_KV_Q8_0) {
        scale_bytes = row_bytes - layer->head_size;
        row_bytes = layer->head_size;
    }
    for (uint32_t i = 0; i < layer->kv_heads; ++i, head += head_bytes) {
        uint8_t *scales = head + page_tokens * row_bytes;
        memset(head + rows * row_bytes, 0, (page_tokens - rows) * row_bytes);
        memset(scales + rows * scale_bytes, 0, (page_tokens - rows) * scale_bytes);
    }
}

strata_status strata__saved_batch_read(strata__saved_walk *walk)
{
    strata__device *device = walk->session->device;
    strata__stream *stream = walk->session->stream;
    strata__saved_walk again = *walk;
    strata_status status = STRATA_OK, end;
    uint64_t used = 0;
    run r;
    for (; status == STRATA_OK && next_run(walk, used, &r); used += r.bytes)
        status = device->ops->copy(device, stream, r.host, r.device, r.bytes);
    if (status != STRATA_OK)
        return status;
    end = device->ops->stream_synchronize(device, stream);
    if (end != STRATA_OK)
        return end;
    for (used = 0; next_run(&again, used, &r); used += r.bytes)
        if (r.has_last)
            clear_rest(&again, &r);
    return STRATA_OK;
}

strata_status strata__saved_batch_write(strata__saved_walk *walk)
{
    strata__device *device = walk->session->device;
    strata__stream *stream = walk->session->stream;
    strata_status status = STRATA_OK;
    uint64_t used = 0;
    run r;
    for (; status == STRATA_OK && next_run(walk, used, &r); used += r.bytes)
        status = device->ops->copy(device, stream, r.device, r.host, r.bytes);
    return status == STRATA_OK ? device->ops->stream_synchronize(device, stream) : status;
}
