/* SPDX-License-Identifier: MIT */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static volatile sig_atomic_t seen;
static _Atomic(strata_session *) session_to_cancel;
static int depth;

/* Cancelling stores a flag: nothing here that a signal handler may not do. */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    seen = 1;
    strata_session_cancel(atomic_load(&session_to_cancel));
}

static void handle(void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGINT, &action, NULL);
}

void interrupt_catch(void)
{
    if (depth++ > 0)
        return;
    seen = 0;
    handle(on_interrupt, (int)SA_RESETHAND);
}

void interrupt_release(void)
{
    if (--depth == 0)
        handle(SIG_DFL, 0);
}

void interrupt_cancels(strata_session *session)
{
    atomic_store(&session_to_cancel, session);
}

bool interrupt_seen(void)
{
    return seen != 0;
}
