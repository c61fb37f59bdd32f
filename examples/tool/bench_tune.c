/* SPDX-License-Identifier: MIT */
#include "bench_tune.h"

#include <string.h>

#include "file.h"
#include "json.h"
#include "tool.h"

static void write_costs_json(const char *device, const char *path, const char *text,
                             const failure *unsaved)
{
    json_writer writer;
    json_start(&writer, stdout);
    json_object(&writer, NULL);
    json_string(&writer, "device", device);
    json_string(&writer, "file", path);
    json_string(&writer, "costs", text);
    failure_json(&writer, unsaved);
    json_end(&writer);
}

int bench_tune(const char *device, const char *path, bool json)
{
    static char text[STRATA_COSTS_MOST_BYTES];
    bool standard = strcmp(path, "-") == 0;
    failure unsaved = {0};
    file_fault fault;
    strata_context *context = NULL;
    uint64_t bytes = 0;
    strata_status status;
    device = device ? device : "cpu";
    if (!standard && !file_can_create(path, &fault))
        return tool_refuse(fault.status, json, "%s: %s", path, fault.text);
    status = strata_context_create(NULL, &context);
    if (status == STRATA_OK)
        status = strata_costs_measure(context, device, text, sizeof text, &bytes);
    strata_context_destroy(context);
    if (status != STRATA_OK)
        return tool_fail("cannot measure costs", status, json);
    if (!standard && !file_save(path, text, strlen(text), &fault))
        failure_of_tool(&unsaved, fault.status, "%s: %s", path, fault.text);
    if (json)
        write_costs_json(device, path, text, &unsaved);
    else if (standard || unsaved.status != STRATA_OK)
        fputs(text, stdout);
    else
        printf("the costs of %s were written to %s\n", device, path);
    return unsaved.status == STRATA_OK ? TOOL_OK : TOOL_FAILED;
}
