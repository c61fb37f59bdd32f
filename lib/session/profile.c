/* SPDX-License-Identifier: MIT */
#include "session/profile.h"

#include <string.h>

#include "base/error.h"
#include "session/state.h"

enum { VERSION = 1 };

typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t layers;
    uint32_t experts;
    uint32_t reserved;
    uint64_t fingerprint; /* of the pack */
} header;

static const char magic[8] = {'s', 't', 'r', 'a', 't', 'a', 'p', 'f'};

static header header_of(const strata_session *session)
{
    header h = {.version = VERSION};
    memcpy(h.magic, magic, sizeof magic);
    h.layers = session->geometry->layers;
    h.experts = session->geometry->experts;
    h.fingerprint = strata__pack_fingerprint(session->pack);
    return h;
}

uint64_t strata__profile_save(const strata_session *session, void *out, uint64_t capacity)
{
    const header h = header_of(session);
    uint64_t values = (uint64_t)h.layers * h.experts * sizeof(uint64_t);
    const uint64_t *uses = strata__experts_uses(session);
    uint8_t *to = out;
    if (!to || capacity < sizeof h + values)
        return sizeof h + values;
    memcpy(to, &h, sizeof h);
    if (uses)
        memcpy(to + sizeof h, uses, values);
    else
        memset(to + sizeof h, 0, values);
    return sizeof h + values;
}

strata_status strata__profile_load(const strata_session *session, const void *data, uint64_t bytes,
                                   uint64_t **out)
{
    const header expected = header_of(session);
    uint64_t values = (uint64_t)expected.layers * expected.experts * sizeof **out;
    header h;
    *out = NULL;
    if (bytes < sizeof h)
        return strata__fail(STRATA_ERR_FORMAT, "profile: %llu bytes are cut off",
                            (unsigned long long)bytes);
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != VERSION)
        return strata__fail(STRATA_ERR_FORMAT, "profile: no profile of this version");
    if (h.fingerprint != expected.fingerprint || h.layers != expected.layers ||
        h.experts != expected.experts)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "profile: it was made for another pack");
    if (bytes != sizeof h + values)
        return strata__fail(STRATA_ERR_FORMAT, "profile: it has %llu bytes, not %llu",
                            (unsigned long long)bytes, (unsigned long long)(sizeof h + values));
    *out = strata__alloc(&session->context->allocator, values);
    if (!*out)
        return strata__fail_memory(values, "the profile");
    memcpy(*out, (const uint8_t *)data + sizeof h, values);
    return STRATA_OK;
}
