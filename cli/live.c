/* SPDX-License-Identifier: MIT */
/*
 * The command's side of the control socket. A socket is trusted when the process at its other
 * end is of the same user (root trusts all). Answers are as hostile as any input: their size is
 * bounded, and tables escape what they print.
 */
#include "cli/live.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/folder.h"

/* A machine may stand still for some seconds, and its processes with it. */
#define CONNECT_MS	 10000
#define CALL_S		 60
#define MAX_ANSWER_BYTES (64u << 20)

static int grow(void *array, size_t n, size_t element_bytes)
{
	void **at = array;
	void *grown;

	/* In steps of powers of two. */
	if (n & (n - 1))
		return 0;
	grown = realloc(*at, (n ? n * 2 : 1) * element_bytes);
	if (!grown)
		return -1;
	*at = grown;
	return 0;
}

void mt_live_answer_free(struct mt_live_answer *answer)
{
	while (answer->n_fields > 0) {
		answer->n_fields--;
		free(answer->fields[answer->n_fields].key);
		free(answer->fields[answer->n_fields].value);
	}
	free(answer->fields);
	answer->fields = NULL;
}

static void unescape(char *value)
{
	char *to = value;

	for (; *value; value++) {
		if (*value == '\\' && value[1]) {
			value++;
			*to++ = *value == 'n' ? '\n' : *value;
			continue;
		}
		*to++ = *value;
	}
	*to = '\0';
}

/* Take a line of an answer; 1: it was the last one, 0: go on, -1: out of memory. */
static int take_line(struct mt_live_answer *answer, char *line)
{
	char *value = strchr(line, ' ');
	struct mt_live_field *field;

	if (strcmp(line, "ok") == 0) {
		answer->is_ok = true;
		return 1;
	}
	if (value)
		*value++ = '\0';
	else
		value = line + strlen(line);
	unescape(value);
	if (strcmp(line, "error") == 0) {
		const char *text = strchr(value, ' ');

		snprintf(answer->error, sizeof(answer->error), "%s", text ? text + 1 : value);
		return 1;
	}
	if (grow(&answer->fields, answer->n_fields, sizeof(*answer->fields)) < 0)
		return -1;
	field = &answer->fields[answer->n_fields];
	field->key = strdup(line);
	field->value = strdup(value);
	answer->n_fields++;
	return field->key && field->value ? 0 : -1;
}

static int send_all(int fd, const char *text)
{
	size_t n_bytes = strlen(text);

	while (n_bytes > 0) {
		ssize_t n = send(fd, text, n_bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		text += n;
		n_bytes -= (size_t)n;
	}
	return 0;
}

/* Read lines until the last one of the answer. */
static int read_answer(int fd, struct mt_live_answer *answer)
{
	size_t n_bytes = 0, capacity_bytes = 4096, n_total = 0;
	char *buffer = malloc(capacity_bytes);
	int result = buffer ? 0 : -1;

	while (result == 0 && n_total < MAX_ANSWER_BYTES) {
		ssize_t n;
		char *newline;

		if (n_bytes == capacity_bytes) {
			char *grown = realloc(buffer, capacity_bytes * 2);

			if (!grown)
				break;
			buffer = grown;
			capacity_bytes *= 2;
		}
		n = recv(fd, buffer + n_bytes, capacity_bytes - n_bytes, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			result = -ETIMEDOUT;
		if (n <= 0)
			break;
		n_bytes += (size_t)n;
		n_total += (size_t)n;
		while (result == 0 && (newline = memchr(buffer, '\n', n_bytes))) {
			size_t n_line = (size_t)(newline - buffer) + 1;

			*newline = '\0';
			result = take_line(answer, buffer);
			memmove(buffer, buffer + n_line, n_bytes - n_line);
			n_bytes -= n_line;
		}
	}
	free(buffer);
	return result == 1 ? 0 : result < 0 ? result : -1;
}

/* 0, -ETIMEDOUT where nothing came in time, -1 where it went wrong otherwise. */
static int talk(int fd, const char *line, struct mt_live_answer *ret_answer)
{
	struct mt_live_answer answer = {0};
	int result = -1;

	if (send_all(fd, line) == 0 && send_all(fd, "\n") == 0)
		result = read_answer(fd, &answer);
	if (result < 0)
		mt_live_answer_free(&answer);
	else
		*ret_answer = answer;
	return result;
}

int mt_live_call(const struct mt_live *live, const char *line, struct mt_live_answer *ret_answer)
{
	char label[300];

	if (talk(live->fd, line, ret_answer) == 0)
		return 0;
	mt_error("%s does not answer any more; is its process alive?",
		 mt_live_label(live, label, sizeof(label)));
	return -1;
}

const char *mt_live_value(const struct mt_live_answer *answer, const char *key)
{
	size_t i;

	for (i = 0; i < answer->n_fields; i++)
		if (strcmp(answer->fields[i].key, key) == 0)
			return answer->fields[i].value;
	return "";
}

const char *mt_live_label(const struct mt_live *live, char *buffer, size_t buffer_bytes)
{
	snprintf(buffer, buffer_bytes, "%.200s (pid %.20s)", mt_live_value(&live->status, "name"),
		 mt_live_value(&live->status, "pid"));
	return buffer;
}

char *mt_live_argument(const char *key, const char *value)
{
	char *argument = malloc(strlen(key) + 2 * strlen(value) + 5);
	char *to = argument;

	if (!argument)
		return NULL;
	to += sprintf(to, "%s=\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\' || *value == '\n')
			*to++ = '\\';
		*to++ = *value == '\n' ? 'n' : *value;
	}
	memcpy(to, "\"", 2);
	return argument;
}

static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t n_bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) == 0 &&
	       (geteuid() == 0 || peer.uid == geteuid() || peer.uid == 0);
}

static void close_one(struct mt_live *live)
{
	if (live->fd >= 0)
		close(live->fd);
	free(live->socket);
	mt_live_answer_free(&live->status);
}

void mt_live_close(struct mt_live_set *set)
{
	while (set->n_sessions > 0)
		close_one(&set->sessions[--set->n_sessions]);
	free(set->sessions);
	set->sessions = NULL;
}

/*
 * Connect to socket @name of a folder and ask for its status. 0, or the negative errno;
 * -EACCES also for a process of another user, -EPROTO for one that does not talk like a session,
 * -ETIMEDOUT for one that does not talk.
 */
static int connect_one(int folder_fd, const char *folder, const char *name,
		       struct mt_live *ret_live)
{
	const struct timeval limit = {CALL_S, 0};
	struct mt_live live = {.fd = mt_folder_connect(folder_fd, name, CONNECT_MS)};
	int error = 0;

	if (live.fd < 0)
		return live.fd == -EAGAIN ? -ETIMEDOUT : live.fd;
	live.socket = malloc(strlen(folder) + strlen(name) + 2);
	if (live.socket)
		sprintf(live.socket, "%s/%s", folder, name);
	if (!live.socket)
		error = -ENOMEM;
	else if (!is_trusted(live.fd))
		error = -EACCES;
	else
		error = talk(live.fd, "status", &live.status);
	if (error == -1 || (error == 0 && !live.status.is_ok))
		error = -EPROTO;
	if (error) {
		close_one(&live);
		return error;
	}
	(void)setsockopt(live.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	*ret_live = live;
	return 0;
}

static int add(struct mt_live_set *set, struct mt_live *live)
{
	if (grow(&set->sessions, set->n_sessions, sizeof(*set->sessions)) < 0) {
		close_one(live);
		mt_error("out of memory");
		return -1;
	}
	set->sessions[set->n_sessions++] = *live;
	return 0;
}

static int names_compare(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_socket_name(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return n > 5 && strcmp(entry->d_name + n - 5, ".sock") == 0;
}

/* The folder to look in; a descriptor, -1: there is none, so no session, -2: an error line. */
static int folder_open(const char *dir, char path[MT_FOLDER_PATH_BYTES])
{
	const char *variable = getenv("MOETRACE_SOCKET_DIR");
	char error[512];
	int fd;

	if (!dir && variable && *variable)
		dir = variable;
	fd = mt_folder_open(dir, 0, path, error, sizeof(error));
	if (fd >= 0)
		return fd;
	if (access(path, F_OK) != 0)
		return -1;
	mt_error("the folder of control sockets %s", error);
	return -2;
}

int mt_live_list(const char *dir, struct mt_live_set *ret_set)
{
	struct mt_live_set set = {0};
	char folder[MT_FOLDER_PATH_BYTES];
	struct dirent **entries = NULL;
	int fd = folder_open(dir, folder);
	int n, i, status = MT_EXIT_OK;

	*ret_set = set;
	if (fd < 0)
		return fd == -1 ? MT_EXIT_OK : MT_EXIT_FAILED;
	n = scandirat(fd, ".", &entries, is_socket_name, names_compare);
	for (i = 0; i < n; i++) {
		struct mt_live live;
		int error = -ENOENT;

		if (status == MT_EXIT_OK)
			error = connect_one(fd, folder, entries[i]->d_name, &live);
		if (error == 0 && add(&set, &live) < 0)
			status = MT_EXIT_FAILED;
		if (error == -ETIMEDOUT)
			snprintf(set.silent, sizeof(set.silent), "%s", entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	close(fd);
	if (status == MT_EXIT_OK)
		*ret_set = set;
	else
		mt_live_close(&set);
	return status;
}

static const char *why(int error)
{
	switch (error) {
	case -EACCES:
		return "belongs to another user";
	case -EPROTO:
		return "does not answer like a session";
	case -ETIMEDOUT:
		return "does not answer; is its process stopped?";
	case -ENOTSOCK:
	case -ELOOP:
		return "is not a socket (symbolic links are not followed)";
	case -ENAMETOOLONG:
		return "has too long a name";
	case -ECONNREFUSED:
		return "was left by a process that has ended";
	default:
		return strerror(-error);
	}
}

/* A name with a slash is the path of a socket. */
static int find_path(const char *path, struct mt_live_set *set)
{
	const char *slash = strrchr(path, '/');
	char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	struct mt_live live;
	int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int error = fd < 0 ? -errno : connect_one(fd, folder, slash + 1, &live);

	if (fd >= 0)
		close(fd);
	free(folder);
	if (error == 0)
		return add(set, &live) < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
	mt_error("%s: %s; 'moetrace list' shows the sessions", path, why(error));
	return error == -ENOENT || error == -ECONNREFUSED ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

static bool is_named(const struct mt_live *live, const char *name)
{
	const char *file = strrchr(live->socket, '/');
	const char *key = name[strspn(name, "0123456789")] == '\0' ? "pid" : "name";

	return strcmp(mt_live_value(&live->status, key), name) == 0 ||
	       strcmp(file ? file + 1 : live->socket, name) == 0;
}

static int several_report(const struct mt_live_set *all, const char *name)
{
	char list[512] = "";
	size_t n = 0, i;

	for (i = 0; i < all->n_sessions && n + 1 < sizeof(list); i++)
		if (is_named(&all->sessions[i], name))
			n += (size_t)snprintf(list + n, sizeof(list) - n, " %s",
					      all->sessions[i].socket);
	mt_error("several sessions are called '%s'; give the socket of one of them, or --all:%s",
		 name, list);
	return MT_EXIT_FAILED;
}

/* Move the one session of that name from @all to @set. */
static int find_name(struct mt_live_set *all, const char *name, struct mt_live_set *set)
{
	size_t n = 0, found = 0, i;

	for (i = 0; i < all->n_sessions; i++) {
		if (!is_named(&all->sessions[i], name))
			continue;
		found = i;
		n++;
	}
	if (n > 1)
		return several_report(all, name);
	if (n == 0 && all->silent[0]) {
		mt_error("%s: no session that answers, and %s does not; is its process stopped?",
			 name, all->silent);
		return MT_EXIT_FAILED;
	}
	if (n == 0) {
		mt_error("%s: neither a file nor a live session; 'moetrace list' shows the "
			 "sessions",
			 name);
		return MT_EXIT_NOT_FOUND;
	}
	if (add(set, &all->sessions[found]) < 0) {
		all->sessions[found] = (struct mt_live){.fd = -1};
		return MT_EXIT_FAILED;
	}
	memmove(&all->sessions[found], &all->sessions[found + 1],
		(all->n_sessions - found - 1) * sizeof(*all->sessions));
	all->n_sessions--;
	return MT_EXIT_OK;
}

int mt_live_find(const struct mt_live_choice *choice, struct mt_live_set *ret_set)
{
	struct mt_live_set all, set = {0};
	int status = mt_live_list(choice->dir, &all);
	size_t i;

	if (status != MT_EXIT_OK)
		return status;
	if (choice->all && all.n_sessions > 0 && all.silent[0])
		mt_warn("%s does not answer and is left out; is its process stopped?", all.silent);
	if (choice->all && all.n_sessions == 0 && all.silent[0]) {
		mt_error("%s does not answer; is its process stopped?", all.silent);
		status = MT_EXIT_FAILED;
	} else if (choice->all && all.n_sessions == 0) {
		mt_error("there is no live session; a program that links libmoetrace, or "
			 "'moetrace run', makes one");
		status = MT_EXIT_NOT_FOUND;
	}
	if (choice->all) {
		*ret_set = all;
		return status;
	}
	for (i = 0; i < choice->n_names && status == MT_EXIT_OK; i++)
		status = strchr(choice->names[i], '/') ?
				 find_path(choice->names[i], &set) :
				 find_name(&all, choice->names[i], &set);
	mt_live_close(&all);
	if (status == MT_EXIT_OK)
		*ret_set = set;
	else
		mt_live_close(&set);
	return status;
}
