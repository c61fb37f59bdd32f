/* SPDX-License-Identifier: MIT */
#include "session/decode_graph.h"

#include <string.h>

#include "session/state.h"

enum { LEAST_BOUND = 1024 };

void strata__decode_graphs_finish(strata_session *session)
{
    strata__decode_graphs *g = &session->decode.graphs;
    for (int i = 0; i < STRATA__DECODE_GRAPHS; ++i)
        if (g->entries[i].graph)
            session->device->ops->graph_destroy(session->device, g->entries[i].graph);
    memset(g, 0, sizeof *g);
}

uint64_t strata__decode_kv_bound(uint64_t positions)
{
    uint64_t bound = LEAST_BOUND;
    while (bound < positions)
        bound *= 2;
    return bound;
}

static bool is_same(const strata__graph_shape *a, const strata__graph_shape *b)
{
    return a->rows == b->rows && a->parts == b->parts && a->logits_mode == b->logits_mode &&
           a->kv_bound == b->kv_bound;
}

strata__device_graph *strata__decode_graph_find(strata_session *session,
                                                const strata__graph_shape *shape)
{
    strata__decode_graphs *g = &session->decode.graphs;
    for (int i = 0; i < STRATA__DECODE_GRAPHS; ++i) {
        strata__decode_graph *entry = &g->entries[i];
        if (!entry->graph || !is_same(&entry->shape, shape))
            continue;
        entry->last_use = ++g->uses;
        return entry->graph;
    }
    return NULL;
}

void strata__decode_graph_keep(strata_session *session, const strata__graph_shape *shape,
                               strata__device_graph *graph)
{
    strata__decode_graphs *g = &session->decode.graphs;
    strata__decode_graph *oldest = &g->entries[0];
    for (int i = 1; i < STRATA__DECODE_GRAPHS; ++i)
        if (g->entries[i].last_use < oldest->last_use)
            oldest = &g->entries[i];
    if (oldest->graph)
        session->device->ops->graph_destroy(session->device, oldest->graph);
    *oldest = (strata__decode_graph){graph, *shape, ++g->uses};
}
