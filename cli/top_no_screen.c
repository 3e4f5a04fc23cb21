/* SPDX-License-Identifier: MIT */
/*
 * In place of the screen where the program was built without ncurses.
 */
#include "cli/top.h"

const char *mt_top_screen_absent(void)
{
	return "built without ncurses, so no screen can be drawn: give --plain or --once, or build "
	       "with libncurses-dev (ncurses-devel) installed";
}

int mt_top_screen_run(struct mt_top_session *session)
{
	(void)session;
	mt_error("%s", mt_top_screen_absent());
	return MT_EXIT_FAILED;
}
