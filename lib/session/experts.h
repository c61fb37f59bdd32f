/* SPDX-License-Identifier: MIT */
/*
 * Where the blobs of experts come from. Kernels find them through tables of device pointers; this
 * fills the tables:
 *
 *   in place   the device addresses host memory: pointers into the pack, set once
 *   callback   the same device, and the caller gives the blobs: asked for before each launch
 *   resident   the device has memory of its own: all experts are in the cache, and stay there
 *   streamed   the same, and not all are: the feed brings them, through ring and cache
 *
 * A session whose plan keeps all experts on the device is resident until its budget shrinks, and
 * again once it has got all memory of the cache back.
 */
#ifndef STRATA_SESSION_EXPERTS_H
#define STRATA_SESSION_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/prefill.h>
#include <strata/session.h>

#include "base/alloc.h"
#include "layout/layout.h"
#include "pack/pack.h"

struct strata__step;

typedef enum strata__expert_source {
    STRATA__SOURCE_IN_PLACE,
    STRATA__SOURCE_CALLBACK,
    STRATA__SOURCE_RESIDENT,
    STRATA__SOURCE_STREAMED
} strata__expert_source;

typedef struct strata__experts {
    uint32_t source; /* strata__expert_source */
    uint32_t count;  /* experts of a layer */
    bool locked;     /* the caller's memory is page-locked */
    strata_expert_fn expert_fn;
    void *user_data;
    uint64_t *profile; /* uses that were given to a session that counts none, or NULL */
} strata__experts;

/* Chooses the source, and fills the cache when the plan keeps all experts on the device. */
strata_status strata__experts_init(strata_session *session, const strata_session_options *options);
void strata__experts_finish(strata_session *session); /* streams idle; also half built */

/* How often each expert of each layer was used, or NULL: that is not known. */
const uint64_t *strata__experts_uses(const strata_session *session);

/*
 * Of a session whose plan keeps all experts on the device, after its cache was resized: the source
 * follows. Where all places are there, the missing experts are copied to them; what fails leaves
 * the session streaming. Between prompts.
 */
strata_status strata__experts_follow_cache(strata_session *session);

/* Fills the pointer tables of a work region and its host region, where they never change. */
strata_status strata__experts_fix_tables(const strata_session *session,
                                         const strata__layout_work *work, uint8_t *base,
                                         uint8_t *host_base);

/* Makes a prefill ready to hand out experts. */
strata_status strata__experts_prepare(strata_prefill *prefill);

/* A prompt of `chunks` chunks begins. */
strata_status strata__experts_begin(strata_prefill *prefill, uint64_t chunks);

/* It is over, in whatever way; is_idle: both streams are known to have done everything. */
void strata__experts_end(strata_prefill *prefill, bool is_idle);

/* Asks the caller for an expert. */
strata_status strata__experts_ask(const strata_session *session, uint32_t layer, uint32_t expert,
                                  strata_expert_blob *out);

/* Before a launch: the routed experts first to last of the step's layer have their pointers. */
strata_status strata__experts_acquire(struct strata__step *step, uint32_t first, uint32_t last);

#endif
