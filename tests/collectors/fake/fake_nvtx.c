/* SPDX-License-Identifier: MIT */
/*
 * A tool that listens to NVTX, for tests: it appends a line to the file that FAKE_NVTX_LOG names for
 * everything that it hears. With FAKE_NVTX=refuses it does not want to listen.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

#pragma GCC visibility push(default)
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
#pragma GCC visibility pop

enum { MAX_NAMES = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char names[MAX_NAMES][64];
static size_t n_names;
static uint64_t n_ranges;

static void say(const char *what, const char *name, uint64_t number, uint64_t payload)
{
	const char *path = getenv("FAKE_NVTX_LOG");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "%s %s %llu %llu\n", what, name, (unsigned long long)number,
		(unsigned long long)payload);
	fclose(file);
}

/* Handles are addresses of what they stand for. */
static nvtxDomainHandle_t domain_create(const char *name)
{
	say("domain", name, 0, 0);
	return (nvtxDomainHandle_t)(void *)names;
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *name)
{
	char *to;

	pthread_mutex_lock(&lock);
	to = names[n_names++ % MAX_NAMES];
	snprintf(to, sizeof(names[0]), "%s", name);
	pthread_mutex_unlock(&lock);
	return (void *)domain == (void *)names ? (nvtxStringHandle_t)(void *)to : NULL;
}

static const char *name_of(const nvtxEventAttributes_t *event)
{
	if (event->messageType != NVTX_MESSAGE_TYPE_REGISTERED || !event->message.registered)
		return "?";
	return (const char *)(void *)event->message.registered;
}

static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
	uint64_t number;

	(void)domain;
	pthread_mutex_lock(&lock);
	number = ++n_ranges;
	say("begin", name_of(event), number, event->payload.ullValue);
	pthread_mutex_unlock(&lock);
	return number;
}

static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t range)
{
	(void)domain;
	pthread_mutex_lock(&lock);
	say("end", "-", range, 0);
	pthread_mutex_unlock(&lock);
}

static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
	(void)domain;
	pthread_mutex_lock(&lock);
	say("mark", name_of(event), 0, event->payload.ullValue);
	pthread_mutex_unlock(&lock);
}

static void put(NvtxFunctionTable table, unsigned int n, unsigned int id, const void *function)
{
	if (id < n && table[id])
		memcpy(table[id], function, sizeof(NvtxFunctionPointer));
}

#define PUT(id, function)                                                                      \
	put(table, n, NVTX_CBID_CORE2_##id,                                                    \
	    &(NvtxFunctionPointer){ (NvtxFunctionPointer)(void (*)(void))(function) })

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
	const char *wrong = getenv("FAKE_NVTX");
	const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table = NULL;
	unsigned int n = 0;

	if ((wrong && strcmp(wrong, "refuses") == 0) || !callbacks ||
	    !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n) || !table)
		return 0;
	PUT(DomainCreateA, domain_create);
	PUT(DomainRegisterStringA, register_string);
	PUT(DomainRangeStartEx, range_start);
	PUT(DomainRangeEnd, range_end);
	PUT(DomainMarkEx, mark);
	return 1;
}
