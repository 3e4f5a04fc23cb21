/* SPDX-License-Identifier: MIT */
/*
 * The inputs of the command, none of which it ever replaces. They are only looked at by name: closing
 * a descriptor would drop this process's locks on a trace that it has open. The list lives as long as
 * the command; if there is no memory for it, everything is taken for an input.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/out_file.h"

struct input {
	char *path;
	struct input *next;
};

static struct input *inputs;
static bool is_list_lost;

/* A trace, and what SQLite keeps beside it. */
static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};

static bool input_add(char *path)
{
	struct input *input;

	for (input = inputs; path && input; input = input->next) {
		if (strcmp(input->path, path) != 0)
			continue;
		free(path);
		return true;
	}
	input = path ? malloc(sizeof(*input)) : NULL;
	if (!input) {
		free(path);
		return false;
	}
	*input = (struct input){.path = path, .next = inputs};
	inputs = input;
	return true;
}

void mt_out_file_input(const char *path)
{
	char *real = realpath(path, NULL);

	/* What SQLite keeps lies beside the file itself, not beside a link to it. */
	if (!input_add(strdup(path)) || (real && !input_add(real)))
		is_list_lost = true;
}

/* The folder of @path, which need not exist itself. */
static bool folder_stat(const char *path, struct stat *ret_info)
{
	const char *slash = strrchr(path, '/');
	size_t n_bytes = slash ? (size_t)(slash - path) + 1 : 0;
	char *folder = n_bytes ? strndup(path, n_bytes) : strdup(".");
	bool found = folder && stat(folder, ret_info) == 0;

	free(folder);
	return found;
}

bool mt_out_file_is_same_name(const char *a, const char *b)
{
	const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
	struct stat folder_a, folder_b;

	if (strcmp(slash_a ? slash_a + 1 : a, slash_b ? slash_b + 1 : b) != 0)
		return false;
	return folder_stat(a, &folder_a) && folder_stat(b, &folder_b) &&
	       folder_a.st_dev == folder_b.st_dev && folder_a.st_ino == folder_b.st_ino;
}

/* Whether both are one file, whatever links lead to it. */
static bool is_same_file(const char *a, const char *b)
{
	struct stat info_a, info_b;

	return stat(a, &info_a) == 0 && stat(b, &info_b) == 0 && info_a.st_dev == info_b.st_dev &&
	       info_a.st_ino == info_b.st_ino;
}

static bool is_of_input(const char *path, const struct input *input, const char *suffix)
{
	char *name;
	bool is_it;

	if (asprintf(&name, "%s%s", input->path, suffix) < 0)
		return true;
	is_it = mt_out_file_is_same_name(path, name) || is_same_file(path, name);
	free(name);
	return is_it;
}

bool mt_out_file_is_input(const char *path)
{
	for (const struct input *input = inputs; input; input = input->next)
		for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
			if (is_of_input(path, input, suffixes[i])) {
				mt_error("%s is %s %s, which is an input here and is never replaced; "
					 "give another name",
					 path, i ? "kept beside" : "the file", input->path);
				return true;
			}
	if (is_list_lost)
		mt_error("%s: out of memory", path);
	return is_list_lost;
}
