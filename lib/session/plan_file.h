/* SPDX-License-Identifier: MIT */
/* Saved plans in files. */
#ifndef STRATA_SESSION_PLAN_FILE_H
#define STRATA_SESSION_PLAN_FILE_H

#include "session/plan.h"

/* STRATA_ERR_IO names the file. */
strata_status strata__plan_save_path(const strata_plan *plan, const char *path);
strata_status strata__plan_load_path(strata__pack *pack, const char *path, strata_plan **out);

#endif
