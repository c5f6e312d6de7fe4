/*
 * Headrace: finds the stalls in DNN training and removes them.
 * This header includes the whole public C API, one noun per header.
 */
#ifndef HEADRACE_HEADRACE_H
#define HEADRACE_HEADRACE_H

#include <headrace/agent.h>
#include <headrace/base.h>
#include <headrace/cache.h>
#include <headrace/coco.h>
#include <headrace/dataset.h>
#include <headrace/form.h>
#include <headrace/loader.h>
#include <headrace/masks.h>
#include <headrace/memory.h>
#include <headrace/meter.h>
#include <headrace/order.h>
#include <headrace/pack.h>
#include <headrace/plan.h>
#include <headrace/prepare.h>
#include <headrace/producer.h>
#include <headrace/recipe.h>
#include <headrace/replay.h>
#include <headrace/rows.h>
#include <headrace/sound.h>
#include <headrace/stalls.h>
#include <headrace/storage.h>

#endif
