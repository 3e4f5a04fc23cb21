/* SPDX-License-Identifier: MIT */
/*
 * Definitions at the head of a trace: the resolved options, the process and its machine, and
 * models as they are added. What cannot be read is stored as NULL.
 */
#include "libtrace/definitions.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "libtrace/writer_internal.h"

/* The first line of a file that begins with @prefix, from after it; 0: there is none. */
static int read_line(const char *path, const char *prefix, char *ret_line, int line_bytes)
{
	FILE *file = fopen(path, "re");
	char line[512];
	int found = 0;

	while (file && !found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, prefix, strlen(prefix)) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(ret_line, (size_t)line_bytes, "%s", line + strlen(prefix));
		found = 1;
	}
	if (file)
		fclose(file);
	return found;
}

static int read_executable(char *ret_path, size_t path_bytes)
{
	ssize_t n = readlink("/proc/self/exe", ret_path, path_bytes - 1);

	if (n <= 0)
		return 0;
	ret_path[n] = '\0';
	return 1;
}

void mt_program_name(char *ret_name, size_t name_bytes)
{
	char path[MT_PATH_BYTES];
	const char *slash;

	if (!read_executable(path, sizeof(path)))
		snprintf(path, sizeof(path), "unknown");
	slash = strrchr(path, '/');
	snprintf(ret_name, name_bytes, "%s", slash ? slash + 1 : path);
}

static void make_uuid(char *ret_uuid, size_t uuid_bytes)
{
	unsigned char b[16];

	if (getrandom(b, sizeof(b), GRND_NONBLOCK) != (ssize_t)sizeof(b))
		memset(b, 0, sizeof(b));
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	snprintf(ret_uuid, uuid_bytes,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		 b[15]);
}

static int meta_number(struct mt_store *store, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return mt_store_meta(store, key, text);
}

static int write_meta(struct mt_writer *writer)
{
	static const char *const weight_formats[] = { "fp16", "bf16", "none" };
	const struct moetrace_session_opts *opts = &writer->session->opts;
	const struct mt_settings *settings = &writer->session->settings;
	struct mt_store *store = writer->store;

	mt_store_meta(store, "format", "moetrace");
	mt_store_meta(store, "moetrace_version", moetrace_version());
	mt_store_meta(store, "session_name", opts->session_name);
	mt_store_meta(store, "session_uuid", writer->session->uuid);
	meta_number(store, "part", writer->n_parts);
	mt_store_meta(store, "engine_name", opts->engine_name);
	mt_store_meta(store, "engine_version", opts->engine_version);
	mt_store_meta(store, "opt.weight_format", weight_formats[opts->weight_format]);
	meta_number(store, "opt.n_rings", opts->n_rings);
	meta_number(store, "opt.ring_bytes", opts->ring_bytes);
	meta_number(store, "opt.commit_interval_ms", opts->commit_interval_ms);
	meta_number(store, "opt.stop_timeout_ms", opts->stop_timeout_ms);
	meta_number(store, "opt.file_limit_bytes", writer->limit_bytes);
	meta_number(store, "opt.rotate_bytes", opts->rotate_bytes);
	meta_number(store, "opt.rotate_ns", opts->rotate_ns);
	mt_store_meta(store, "opt.socket_dir", opts->socket_dir);
	mt_store_meta(store, "opt.collectors", opts->collectors ? opts->collectors : "none");
	mt_store_meta(store, "opt.start", settings->start < 0 ? NULL : settings->start ? "1" : "0");
	mt_store_meta(store, "opt.mode", mt_mode_name(settings->mode));
	meta_number(store, "opt.experts_window_bytes", opts->experts_window_bytes);
	return meta_number(store, "opt.window_ns", opts->window_ns);
}

static int write_process(struct mt_store *store, const struct moetrace_session_opts *opts)
{
	const struct moetrace_rank *const ranks[] = { &opts->tp, &opts->pp, &opts->ep, &opts->dp };
	char host[256] = "";
	char boot_id[64];
	char executable[MT_PATH_BYTES];
	struct mt_process_row row = { .pid = getpid() };

	if (gethostname(host, sizeof(host) - 1) == 0)
		row.host = host;
	if (read_line("/proc/sys/kernel/random/boot_id", "", boot_id, sizeof(boot_id)))
		row.boot_id = boot_id;
	if (read_executable(executable, sizeof(executable)))
		row.executable = executable;
	for (int i = 0; i < 4; i++) {
		row.ranks[2 * i] = ranks[i]->n_ranks ? (int64_t)ranks[i]->rank : MT_NULL;
		row.ranks[2 * i + 1] = ranks[i]->n_ranks ? (int64_t)ranks[i]->n_ranks : MT_NULL;
	}
	return mt_store_process(store, &row);
}

static int write_host_device(struct mt_store *store)
{
	char name[256];
	const char *at = name;
	cpu_set_t processors;
	int64_t n_processors = MT_NULL;

	if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
		n_processors = CPU_COUNT(&processors);
	if (!read_line("/proc/cpuinfo", "model name", name, sizeof(name)))
		return mt_store_device(store, "host", NULL, NULL, n_processors);
	return mt_store_device(store, "host", at + strspn(at, " \t:"), NULL, n_processors);
}

static int write_model(struct mt_writer *writer, uint32_t model_index)
{
	const struct mt_model *model = writer->session->models[model_index];
	int status = mt_store_model(writer->store, model->model_id, &model->info);

	for (uint32_t i = 0; !status && i < model->n_layers; i++)
		status = mt_store_layer(writer->store, model->layers[i].layer_id, model->model_id,
					(int64_t)model->info.first_moe_ordinal + i,
					&model->layer_infos[i]);
	return status;
}

static int write_map(struct mt_writer *writer, struct mt_expert_map *map)
{
	const struct mt_model *model = writer->session->models[map->model];
	struct mt_map_row row = {
		.epoch = map->epoch,
		.set_ns = (int64_t)map->set_ns,
		.n_slots = map->n_slots,
		.n_ranks = map->n_ranks ? (int64_t)map->n_ranks : MT_NULL,
	};
	int status = MOETRACE_OK;

	for (uint32_t i = 0; !status && i < map->n_layers; i++) {
		row.layer_id = model->layers[i].layer_id;
		row.slot_experts = map->slot_experts + (uint64_t)i * map->n_slots;
		status = mt_store_expert_map(writer->store, &row);
	}
	map->is_written = 1;
	return status;
}

/* Maps of all epochs that passes may still name. */
static int write_maps(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t model = 0; model < writer->n_models_written; model++)
		for (uint32_t i = 0; !status && i < MT_KEPT_MAPS; i++) {
			struct mt_expert_map *map = writer->assembly.maps.maps[model][i];

			if (map && !map->is_written)
				status = write_map(writer, map);
		}
	return status;
}

static int write_sources(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; i < writer->n_sources && !status; i++) {
		struct mt_writer_source *source = &writer->sources[i];
		char key[64];

		if (source->is_written)
			continue;
		source->is_written = 1;
		snprintf(key, sizeof(key), "source.%s", source->name);
		status = mt_store_meta(writer->store, key, source->state);
	}
	return status;
}

int mt_writer_define_strings(struct mt_writer *writer)
{
	struct mt_strings *strings = &writer->session->strings;
	uint32_t n = mt_strings_count(strings);
	int status = MOETRACE_OK;

	while (!status && writer->n_strings_written < n) {
		uint32_t number = ++writer->n_strings_written;
		const struct mt_string *string = mt_strings_at(strings, number);

		status = mt_store_string(writer->store, number, string->value,
					 mt_role_name(string->role),
					 string->flags & MOETRACE_KERNEL_MOVES_DATA);
	}
	return status;
}

int mt_writer_define_missing(struct mt_writer *writer)
{
	int status = write_sources(writer);

	if (!status)
		status = mt_writer_write_gpus(writer);

	while (!status && writer->n_models_written < writer->load.n_models)
		status = write_model(writer, writer->n_models_written++);
	while (!status && writer->n_rules_written < writer->n_rules) {
		uint32_t i = writer->n_rules_written++;

		status = mt_store_rule(writer->store, i + 1, writer->rules[i]);
	}
	return status ? status : write_maps(writer);
}

static int write_version(struct mt_writer *writer, const struct mt_version *version)
{
	char key[48];

	snprintf(key, sizeof(key), "version.%s", version->what);
	mt_versions_set(&writer->versions_written, version->what, version->version);
	return mt_store_meta(writer->store, key, version->version);
}

int mt_writer_write_versions(struct mt_writer *writer)
{
	struct mt_versions *found = &writer->versions;
	const struct mt_versions *written = &writer->versions_written;
	int status = MOETRACE_OK;

	mt_versions_look(found);
	mt_collect_versions_get(writer->session->collect, found);
	for (uint32_t i = 0; !status && i < found->n; i++)
		if (i >= written->n ||
		    strcmp(written->entries[i].version, found->entries[i].version) != 0)
			status = write_version(writer, &found->entries[i]);
	return status;
}

int mt_writer_define_all(struct mt_writer *writer)
{
	struct mt_store *store = writer->store;

	writer->n_models_written = 0;
	writer->n_rules_written = 0;
	writer->n_strings_written = 0;
	for (uint32_t i = 0; i < writer->n_sources; i++)
		writer->sources[i].is_written = 0;
	writer->n_gpus_written = 0;
	writer->versions_written.n = 0;
	writer->n_shapes = 0;
	memset(writer->has_graph, 0, sizeof(writer->has_graph));
	for (uint32_t i = 0; i < MOETRACE_MAX_MODELS * MT_KEPT_MAPS; i++) {
		struct mt_expert_map *map =
			writer->assembly.maps.maps[i / MT_KEPT_MAPS][i % MT_KEPT_MAPS];

		if (map)
			map->is_written = 0;
	}
	mt_store_begin(store);
	write_meta(writer);
	write_process(store, &writer->session->opts);
	write_host_device(store);
	if (mt_store_is_network(store))
		mt_store_diagnostic(store, ++writer->last_diagnostic_id, 0, "warning", "store",
				    "the file is on a network file system: it is locked for this "
				    "process, and cannot be read while it is recorded",
				    1);
	return mt_writer_define_missing(writer);
}

int mt_writer_define(struct mt_writer *writer)
{
	struct mt_store *store = writer->store;
	int status = mt_ledger_open(&writer->ledger, store);

	mt_load_open(&writer->load, store);
	mt_assembly_open(&writer->assembly, writer->session, store, &writer->ledger, &writer->load);
	writer->assembly.tied = &writer->tied;
	/* Numbers below are those of the kinds of misuse. */
	writer->last_diagnostic_id = MT_N_MISUSE;
	writer->said.diagnostic_id = 0;
	writer->limit_bytes = writer->session->opts.file_limit_bytes;
	make_uuid(writer->session->uuid, sizeof(writer->session->uuid));
	if (!status)
		status = mt_writer_define_all(writer);
	if (!status)
		status = mt_writer_commit(writer);
	if (status) {
		snprintf(writer->open_error, sizeof(writer->open_error), "%s",
			 status == MOETRACE_E_NOMEM ? "out of memory" : mt_store_error(store));
		mt_store_discard(store);
	}
	return status;
}

int mt_writer_add_rule(struct mt_writer *writer, struct mt_message *message)
{
	char **rules = realloc(writer->rules, (writer->n_rules + 1ul) * sizeof(*rules));

	if (!rules)
		return MOETRACE_E_NOMEM;
	writer->rules = rules;
	rules[writer->n_rules++] = message->text;
	message->text = NULL;
	return mt_writer_define_missing(writer);
}

static void take_text(char **to, char **from)
{
	free(*to);
	*to = *from;
	*from = NULL;
}

int mt_writer_add_source(struct mt_writer *writer, struct mt_message *message)
{
	struct mt_writer_source *source = writer->sources;
	struct mt_writer_source *end = source + writer->n_sources;

	while (source < end && strcmp(source->name, message->text) != 0)
		source++;
	if (source == end && writer->n_sources == MT_MAX_SOURCES)
		return MOETRACE_OK;
	writer->n_sources += source == end;
	take_text(&source->name, &message->text);
	take_text(&source->state, &message->text2);
	source->is_written = 0;
	return mt_writer_define_missing(writer);
}

int mt_writer_add_gpu(struct mt_writer *writer, struct mt_message *message)
{
	uint32_t index;
	int status = mt_writer_gpu(writer, message->text, message->text2, &index);

	if (status)
		return status;
	writer->attached[message->state].gpu_id = MT_HOST_DEVICE_ID + 1 + (int64_t)index;
	writer->assembly.gpu_ids[message->state] = writer->attached[message->state].gpu_id;
	return MOETRACE_OK;
}

int mt_writer_add_clock(struct mt_writer *writer, struct mt_message *message)
{
	writer->attached[message->state].clock = (struct mt_clock_reading){
		.clock = MT_CLOCK_GPU_TIMER,
		.session_ns = message->source,
		.clock_ns = message->number,
		.uncertainty_ns = message->request,
	};
	return writer->flight.recording_id && !writer->flight.is_writing ?
		       MOETRACE_OK :
		       mt_writer_write_kept_clocks(writer);
}

int mt_writer_write_kept_clocks(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; i < MOETRACE_CUDA_MAX_DEVICES && !status; i++) {
		struct mt_writer_attached *attached = &writer->attached[i];

		if (attached->clock.session_ns && attached->gpu_id)
			status = mt_store_device_clock(writer->store, attached->gpu_id,
						       &attached->clock);
		attached->clock.session_ns = 0;
	}
	return status;
}

int mt_writer_add_model(struct mt_writer *writer, uint32_t model_index)
{
	int status = mt_load_model_add(&writer->load, writer->session->models[model_index]);

	return status ? status : mt_writer_define_missing(writer);
}

int mt_writer_add_map(struct mt_writer *writer, struct mt_message *message)
{
	struct mt_expert_map *map = message->map;

	message->map = NULL;
	map->set_ns = message->time_ns;
	map->is_written = 0;
	mt_expert_maps_put(&writer->assembly.maps, map);
	return mt_writer_define_missing(writer);
}
