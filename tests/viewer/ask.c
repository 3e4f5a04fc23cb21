/* SPDX-License-Identifier: MIT */
/*
 * A client for the tests of the page's server, which sends what a browser would not.
 *
 *   ask PORT METHOD PATH [HEADER]... [-d BODY]   prints the status, a line, then headers and body
 *   ask PORT --hang PATH BODY                    sends a POST and goes away after 100 ms
 *   ask PORT --flood N PATH                      opens N connections, sends on all, prints how many
 *                                                were answered 200, how many were not
 *   ask PORT --idle N PATH                       opens N that say nothing and stay, then asks until it is
 *                                                answered 200; fails after 10 s
 *
 * A question that was held up between its connection and its last byte, so that the server took it for
 * somebody who says nothing, is asked again.
 *
 * "Host: 127.0.0.1:PORT" is sent unless a HEADER begins with "Host:"; "Host:" alone sends none.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_REQUEST (1 << 20)

static unsigned short port;

static int connection_open(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool all_send(int fd, const char *bytes, size_t n_bytes)
{
	while (n_bytes > 0) {
		ssize_t n = send(fd, bytes, n_bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes += n;
		n_bytes -= (size_t)n;
	}
	return true;
}

/* "HTTP/1.1 200 OK\r\n": the number. */
static int status_of(const char *text)
{
	return strncmp(text, "HTTP/1.", 7) == 0 && strlen(text) > 12 ? atoi(text + 9) : 0;
}

/* false: there was none. */
static bool answer_print(int fd)
{
	char bytes[65536];
	bool is_first = true;
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes) - 1, 0)) > 0) {
		bytes[n] = '\0';
		if (is_first)
			printf("%d\n", status_of(bytes));
		is_first = false;
		fwrite(bytes, 1, (size_t)n, stdout);
	}
	return !is_first;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Prints the answer to @request; false: there is none. */
static bool request_try(const char *request, size_t n, bool *ret_is_late)
{
	const double begin_s = now_s();
	bool is_answered = false;
	int fd = connection_open();

	*ret_is_late = false;
	if (fd >= 0) {
		(void)all_send(fd, request, n); /* who is refused is answered before it has sent all */
		*ret_is_late = now_s() - begin_s > 1;
		is_answered = answer_print(fd);
		close(fd);
	}
	return is_answered;
}

static int ask(int argc, char **argv)
{
	static char request[MAX_REQUEST];
	const char *body = NULL;
	bool has_host = false, is_late;
	size_t n;

	n = (size_t)snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nConnection: close\r\n",
			     argv[0], argv[1]);
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "-d") == 0 && i + 1 < argc) {
			body = argv[++i];
			continue;
		}
		has_host = has_host || strncasecmp(argv[i], "Host:", 5) == 0;
		if (strcasecmp(argv[i], "Host:") != 0)
			n += (size_t)snprintf(request + n, sizeof(request) - n, "%s\r\n", argv[i]);
	}
	if (!has_host)
		n += (size_t)snprintf(request + n, sizeof(request) - n, "Host: 127.0.0.1:%u\r\n",
				      port);
	if (body)
		n += (size_t)snprintf(request + n, sizeof(request) - n, "Content-Length: %zu\r\n",
				      strlen(body));
	n += (size_t)snprintf(request + n, sizeof(request) - n, "\r\n%s", body ? body : "");
	if (n >= sizeof(request))
		return 2;
	while (!request_try(request, n, &is_late))
		if (!is_late) {
			printf("0\n");
			return 1;
		}
	return 0;
}

static int hang(const char *path, const char *body)
{
	char request[4096];
	int n = snprintf(request, sizeof(request),
			 "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s", path,
			 strlen(body), body);
	int fd = connection_open();

	if (fd < 0 || !all_send(fd, request, (size_t)n))
		return 1;
	poll(NULL, 0, 100);
	return 0;
}

static int flood(int n_connections, const char *path)
{
	struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
	char request[1024], answer[4096];
	int *fds = calloc((size_t)n_connections, sizeof(*fds));
	int n_good = 0, n = snprintf(request, sizeof(request),
				     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
				     path);

	if (!fds)
		return 1;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < n_connections; i++)
		fds[i] = connection_open();
	for (int i = 0; i < n_connections; i++)
		if (fds[i] >= 0)
			(void)all_send(fds[i], request, (size_t)n);
	for (int i = 0; i < n_connections; i++) {
		struct pollfd wait = {.fd = fds[i], .events = POLLIN};

		if (fds[i] >= 0 && poll(&wait, 1, 100000) == 1) {
			ssize_t n_read = recv(fds[i], answer, sizeof(answer) - 1, 0);

			answer[n_read > 0 ? n_read : 0] = '\0';
			n_good += status_of(answer) == 200;
		}
		if (fds[i] >= 0)
			close(fds[i]);
	}
	printf("%d %d\n", n_good, n_connections - n_good);
	free(fds);
	return 0;
}

static int idle(int n_connections, const char *path)
{
	const struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
	char request[1024];

	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < n_connections; i++)
		if (connection_open() < 0)
			return 1;
	snprintf(request, sizeof(request),
		 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
	for (int i = 0; i < 1000; i++) {
		char answer[16] = "";
		int fd = connection_open();
		ssize_t n = fd >= 0 && all_send(fd, request, strlen(request))
				    ? recv(fd, answer, sizeof(answer) - 1, 0)
				    : -1;

		if (fd >= 0)
			close(fd);
		if (n > 0 && status_of(answer) == 200)
			return 0;
		usleep(100000);
	}
	return 1;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	port = (unsigned short)atoi(argv[1]);
	if (strcmp(argv[2], "--hang") == 0 && argc == 5)
		return hang(argv[3], argv[4]);
	if (strcmp(argv[2], "--flood") == 0 && argc == 5)
		return flood(atoi(argv[3]), argv[4]);
	if (strcmp(argv[2], "--idle") == 0 && argc == 5)
		return idle(atoi(argv[3]), argv[4]);
	return ask(argc - 2, argv + 2);
}
