# SPDX-License-Identifier: MIT
"""Faults of streaming and of sequences, as replacements in the sources; the tests must catch each.

A mutant is a file, a text that occurs in it once, and what takes its place.
"""

RING = "lib/session/ring.c"
FEED = "lib/session/feed.c"
LIST = "lib/session/feed_list.c"
LOAN = "lib/session/loan.c"
STAGING = "lib/session/staging.c"
TIER = "lib/session/host_tier.c"
KV = "lib/session/kv.c"
SAVED = "lib/session/saved.c"
DECODE = "lib/session/decode.c"
DECODE_STEP = "lib/session/decode_step.c"
DECODE_CACHE = "lib/session/decode_cache.c"
DECODE_EXPERTS = "lib/session/decode_experts.c"
DECODE_GRAPH = "lib/session/decode_graph.c"
EXPERTS = "lib/session/experts.c"
BUDGET = "lib/session/budget.c"
CACHE = "lib/session/cache.c"
SESSION = "lib/session/session.c"

MUTANTS = {
    "kernels do not wait for copies": (
        RING,
        "status = ring->device->ops->stream_wait(ring->device, ring->kernels, slot->ready);",
        "status = STRATA_OK;"),
    "copies do not wait for readers": (
        RING,
        "status = ring->device->ops->stream_wait(ring->device, ring->copies, slot->used);",
        "status = STRATA_OK;"),
    "ready is recorded before the copies": (
        FEED,
        "    status = enqueue(feed, piece, list);\n",
        "    if (list->count)\n"
        "        status = strata__ring_copied(&feed->ring, &piece->ring, list->bytes);\n"
        "    if (status == STRATA_OK)\n"
        "        status = enqueue(feed, piece, list);\n"
        "    if (status == STRATA_OK) {\n"
        "        strata__feed_mark(feed, piece, STRATA__BLOB_COPYING);\n"
        "        piece->state = STRATA__FEED_SENT;\n"
        "        piece->buffer = NULL;\n"
        "        *out_sent = true;\n"
        "        return STRATA_OK;\n"
        "    }\n"),
    "a slot is free while it is read": (
        RING,
        "            if (slot->state != STRATA__RING_FREE)\n                return false;\n",
        "            if (slot->state == STRATA__RING_COPYING)\n                return false;\n"),
    "used is recorded before the launch": (
        RING,
        "        slot->state = STRATA__RING_IN_USE;\n",
        "        slot->state = STRATA__RING_IN_USE;\n"
        "    if (status == STRATA_OK)\n"
        "        status = ring->device->ops->event_record(ring->device, slot->used, "
        "ring->kernels);\n"
        "    slot->read = true;\n",
        RING,
        "        status = ring->device->ops->event_record(ring->device, slot->used, "
        "ring->kernels);\n        slot->read = true;\n    }\n    if (status == STRATA_OK) {\n",
        "        status = STRATA_OK;\n    }\n    if (status == STRATA_OK) {\n"),
    "the event of a reader is recorded too late": (
        RING,
        "        status = ring->device->ops->event_record(ring->device, slot->used, "
        "ring->kernels);\n",
        "        if (slot->tenant % 2)\n"
        "            status = ring->device->ops->event_record(ring->device, slot->used, "
        "ring->kernels);\n"),
    "residency is published before the copy": (
        FEED,
        "    strata__feed_mark(feed, piece, STRATA__BLOB_COPYING);\n",
        "    strata__feed_mark(feed, piece, STRATA__BLOB_PRESENT);\n"),
    "blobs that nothing waited for are called present": (
        FEED,
        "        if (cached)\n            status = use_piece(feed, piece);\n",
        "        if (cached)\n            strata__feed_mark(feed, piece, STRATA__BLOB_PRESENT);\n"),
    "refill writes to a range that is lent": (
        LOAN,
        "    status = strata__loan_quiet(loan);\n",
        ""),
    "refill is published before it is copied": (
        LOAN,
        "    uint64_t copied = atomic_load_explicit(&loan->copied, memory_order_acquire);\n",
        "    uint64_t copied = loan->count;\n"),
    "a loan that is handed out keeps its blobs": (
        LOAN,
        "    strata__loan_clear(loan);\n    /* The range",
        "    /* The range"),
    "copies overtake what is moved out of the loan": (
        LOAN,
        "        status = ops->stream_wait(session->device, session->copies, loan->moved);\n",
        "        status = STRATA_OK;\n"),
    "a staging buffer is filled before it is empty": (
        STAGING,
        "        if (done || state == STRATA__STAGING_FREE)\n",
        "        if (done || state == STRATA__STAGING_FREE || state == STRATA__STAGING_EMPTYING)\n"),
    "a staging buffer is sent before it is full": (
        STAGING,
        "    full = buffer->state == STRATA__STAGING_FULL;\n",
        "    full = true;\n",
        STAGING,
        "    while (wait && buffer->state == STRATA__STAGING_POSTED)\n",
        "    while (false)\n"),
    "pieces straddle the end of the ring": (
        RING,
        "    if (bytes > ring_bytes - offset)\n        offset = 0;\n",
        "    if (offset >= ring_bytes)\n        offset = 0;\n"),
    "unrouted blobs are dropped by the wrong routing": (
        FEED,
        "    return is_present ? feed->offsets : NULL;\n",
        "    (void)is_present;\n    return feed->offsets;\n"),
    "launches before a piece are not released": (
        FEED,
        "    strata_status status = strata__feed_release(feed, feed->pieces[from].first);\n",
        "    strata_status status = STRATA_OK;\n"),
    "a launch takes more than the ring holds": (
        FEED,
        "feed->launch_bytes = ring->bytes / 2;",
        "feed->launch_bytes = 2 * ring->bytes;"),
    "what is routed and was left out does not follow": (
        FEED,
        "        feed->pieces[i].rest = has_rest(feed, &feed->pieces[i]);\n",
        "        feed->pieces[i].rest = false;\n"),
    "a piece whose blobs are to follow has no place in the ring": (
        FEED,
        "    return !routing_of(feed, feed->sent_pieces) || is_in_ring(feed, list) ?",
        "    return is_in_ring(feed, list) ?"),
    "kernels do not wait for what followed": (
        FEED,
        "        status = strata__ring_use(&feed->ring, &piece->more);\n",
        "        status = STRATA_OK;\n"),
    "an aborted prompt leaves the ring as it was": (
        FEED,
        "    strata__ring_reset(&feed->ring);\n",
        "    (void)0;\n"),
    "memory is used while it is being page-locked": (
        TIER,
        "    span.state = atomic_load_explicit(&piece->state, memory_order_acquire);\n",
        "    span.state = STRATA__TIER_UNPINNED;\n"),
    "a shared page is appended to": (
        KV,
        "           kv->page_users[row_of(kv, sequence)[length / kv->page_tokens]] > 1;\n",
        "           kv->page_users[row_of(kv, sequence)[length / kv->page_tokens]] > 65535;\n"),
    "a page is free while another sequence has it": (
        KV,
        "    if (--kv->page_users[page] == 0)\n",
        "    --kv->page_users[page];\n"),
    "the table of a copied page is not uploaded": (
        KV,
        "            *shared = (int32_t)page;\n            kv->changed = true;\n",
        "            *shared = (int32_t)page;\n"),
    "pages are saved before they were copied": (
        SAVED,
        "    end = device->ops->stream_synchronize(device, stream);\n",
        "    end = STRATA_OK;\n"),
    "staging memory is filled while it is read": (
        SAVED,
        "    return status == STRATA_OK ? device->ops->stream_synchronize(device, stream) : "
        "status;\n",
        "    return status;\n"),
    "an admitted expert is published before its copies are done": (
        DECODE_CACHE,
        "        if (status == STRATA_OK && done)\n            take_batch(session, true);\n",
        "        if (status == STRATA_OK)\n            take_batch(session, true);\n"),
    "steps find the old tenant while its place is overwritten": (
        DECODE_CACHE,
        "    show(session, v->first + old);\n",
        ""),
    "the event of a batch is recorded before its copies": (
        DECODE_CACHE,
        "    status = admit_all(session, &left);\n",
        "    status = session->device->ops->event_record(session->device, left.batch->done,\n"
        "                                                session->copies);\n"
        "    if (status == STRATA_OK)\n"
        "        status = admit_all(session, &left);\n",
        DECODE_CACHE,
        "    if (status == STRATA_OK || status == STRATA_ERR_STATE)\n",
        "    if (status == STRATA_ERR_STATE)\n"),
    "a failed copy is called present": (
        DECODE_CACHE,
        "status == STRATA_OK && c->count > 1",
        "status == STRATA_OK"),
    "an expert has two places": (
        DECODE_CACHE,
        "    cache->places[v->first + old] = NULL;\n",
        ""),
    "a prompt begins while experts are on their way": (
        EXPERTS,
        "    status = strata__decode_settle(session);\n",
        "    status = STRATA_OK;\n",
        BUDGET,
        "    status = strata__decode_settle(session);\n    if (status",
        "    status = STRATA_OK;\n    if (status"),
    "the next step does not look at what a prompt left": (
        EXPERTS,
        "is_idle);\n    strata__decode_forget(session);\n",
        "is_idle);\n"),
    "the next step does not look at what a budget changed": (
        EXPERTS,
        "        return STRATA_OK;\n    strata__decode_forget(session);\n",
        "        return STRATA_OK;\n"),
    "experts that come back are not waited for": (
        EXPERTS,
        "        status = session->device->ops->stream_synchronize(session->device, "
        "session->stream);\n",
        "        status = STRATA_OK;\n"),
    "a refill goes on where prompts borrow again": (
        EXPERTS,
        "strata_status status = strata__loan_quiet(&session->loan);",
        "strata_status status = STRATA_OK;"),
    "what a refill has left comes to the next prompt": (
        LOAN,
        "    status = strata__loan_quiet(loan);\n",
        "    strata__loan_settle(loan);\n"),
    "places are left over when a segment comes back": (
        CACHE,
        "        if (places[e] >= base && places[e] < end)\n            continue;\n",
        "        continue;\n"),
    "a step does not meet the budget": (
        DECODE_STEP,
        "    if (!strata__budget_is_met(session))\n",
        "    if (0)\n"),
    "a call begins while a stream that could not be waited for runs": (
        SESSION,
        "status == STRATA_OK && session->is_unsettled",
        "0"),
    "the table of experts is not uploaded": (
        DECODE_EXPERTS,
        "    if (x->first_dirty == x->end_dirty)\n        return STRATA_OK;\n    offset",
        "    if (x->first_dirty <= x->end_dirty)\n        return STRATA_OK;\n    offset"),
    "an address in the ring outlives its step": (
        DECODE_CACHE,
        "            strata__decode_experts_forget(session, layer, e);\n",
        ""),
    "a launch takes more experts than the ring holds": (
        DECODE_EXPERTS,
        "        if (left-- == 0)\n            break;\n",
        "        if (left-- == 0)\n            left = 0;\n"),
    "a table that could not be sent counts as sent": (
        EXPERTS,
        "        prefill->feed.generation = 0;\n",
        "        ;\n"),
    "a kept loan is not back before a step": (
        DECODE_STEP,
        "    strata__loan_return(&session->loan, true);\n",
        ""),
    "a recording serves steps of another shape": (
        DECODE_GRAPH,
        "    return a->rows == b->rows && ",
        "    return "),
    "a failed step keeps its tokens": (
        DECODE,
        "(status == STRATA_OK ? part->rows : 0)",
        "part->rows"),
    "the caller's memory is asked for again while it is copied to the cache": (
        DECODE_STEP,
        "    status = session->experts.expert_fn ? strata__decode_cache_settle(session)\n"
        "                                        : strata__decode_cache_publish(session);\n",
        "    status = strata__decode_cache_publish(session);\n"),
}
