/* SPDX-License-Identifier: MIT */
/*
 * A traced program that attaches its GPU and says what came of it:
 *
 *   attach_once FILE.db
 *
 * Which driver it finds is the loader's business, which looks at the environment when a program
 * starts.
 */
#include <stdio.h>

#include <moetrace/cuda.h>
#include <moetrace/moetrace.h>

int main(int argc, char **argv)
{
	struct moetrace_session *session;
	struct moetrace_cuda *cuda;
	char text[512];

	if (argc != 2 || moetrace_session_open(argv[1], NULL, &session) < 0 ||
	    moetrace_start(session, NULL) < 0) {
		fprintf(stderr, "attach_once: nothing is recorded: %s\n", moetrace_open_errmsg());
		return 1;
	}
	if (moetrace_cuda_attach(session, NULL, &cuda) < 0) {
		moetrace_errmsg(session, text, sizeof(text));
		puts(text);
	} else {
		puts("attached");
	}
	return moetrace_session_close(session) < 0;
}
