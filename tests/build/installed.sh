# SPDX-License-Identifier: MIT
#
# moetrace as its users have it: installed, with neither the sources nor config.h in reach. The
# examples are built by their own Makefile and run, once with each library; a C++ program
# records; and what a program takes from the shared library is bound to a symbol version.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command pkg-config sqlite3 nm

stage=$tmp/stage
expect_ok quiet_make install DESTDIR="$stage"
pc=$(find "$stage" -name moetrace.pc)
[ -n "$pc" ] || fail "moetrace.pc was not installed"
lib=${pc%/pkgconfig/moetrace.pc}
include=$(find "$stage" -path '*/moetrace/moetrace.h')
include=${include%/moetrace/moetrace.h}
[ -f "$lib/libmoetrace.so" ] || skip "built without a shared library"

# No path of the sources or the build is given to a compiler from here on.
PKG_CONFIG_PATH=$lib/pkgconfig
export PKG_CONFIG_PATH
pkg_config="pkg-config --define-variable=libdir=$lib --define-variable=includedir=$include"
config() {
	$pkg_config "$@" moetrace
}
mkdir "$tmp/src"
cp "$MOETRACE_SRCDIR"/examples/Makefile "$MOETRACE_SRCDIR"/examples/*.c "$tmp/src"

# examples CFLAGS [VARIABLE=VALUE...]: makes them all anew.
examples() {
	flags=$1
	shift
	expect_ok env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "${MAKE:-make}" -B -C "$tmp/src" \
		CC="$MOETRACE_CC" CFLAGS="$flags" PKG_CONFIG="$pkg_config" "$@"
}

# run_examples: runs them with what they were linked with.
run_examples() {
	rm -f "$tmp/toy.db" "$tmp/server.db"
	expect_ok "$tmp/src/toy_runtime" "$tmp/toy.db"
	expect_eq "the toy's request" "$(sql "$tmp/toy.db" \
		"SELECT verdict, n_positions, n_passes FROM request_summary")" 'complete|7|4'
	expect_ok "$tmp/src/threaded_server" "$tmp/server.db" 3 120
	expect_match "$tmp/out" '^120 of 120 requests answered by 3 workers$'
	expect_match "$tmp/out" ' 0 passes dropped$'
}

examples '-std=c11 -pedantic -Wall -Wextra -Werror'
LD_LIBRARY_PATH=$lib
export LD_LIBRARY_PATH
run_examples
# shellcheck disable=SC2046,SC2086 # lists of options
$MOETRACE_CC $(config --cflags) -M "$tmp/src/threaded_server.c" >"$tmp/read" || fail "cc -M failed"
expect_match "$tmp/read" "$include/moetrace/pass\\.h"
expect_no_match "$tmp/read" "$MOETRACE_SRCDIR/|$MOETRACE_BUILDDIR/|config\\.h"

# The server: every request is whole, with its attributes, and belongs to one pass at a time.
expect_eq "requests of the server" "$(sql "$tmp/server.db" \
	"SELECT verdict, count(*), count(DISTINCT external_id) FROM request GROUP BY verdict")" \
	'complete|120|120'
expect_eq "attributes" "$(sql "$tmp/server.db" "SELECT key, value, count(*)
	FROM request_attribute GROUP BY key, value" | tr '\n' ' ')" \
	'domain|code|40 domain|dialogue|40 domain|prose|40 user_class|batch|108 user_class|interactive|12 '
expect_ok "$moetrace" check "$tmp/server.db"

# The client prints what the view says, which decodes the same bytes in another way.
for request in request-0 request-77; do
	expect_ok "$tmp/src/request_experts" "$tmp/server.db" "$request"
	expect_eq "experts of $request" "$(tr -d '\n ' <"$tmp/out")" "$(sql "$tmp/server.db" "
		WITH row AS (SELECT position, layer, group_concat(expert, ',') AS ids FROM (
				SELECT e.position, e.layer, e.expert FROM routed_expert AS e
				JOIN request AS r ON r.request_id = e.request_id
				WHERE r.external_id = '$request'
				ORDER BY e.position, e.layer, e.topk_rank)
			GROUP BY position, layer),
		token AS (SELECT position, '[[' || group_concat(ids, '],[') || ']]' AS rows FROM (
				SELECT position, ids FROM row ORDER BY position, layer)
			GROUP BY position)
		SELECT '[' || group_concat(rows, ',') || ']' FROM (SELECT rows FROM token ORDER BY position)")"
done

# An engine's answer, its client and the trace say the same; the answer has the dense layer, zeros.
expect_ok "$tmp/src/request_experts" --answer "$tmp/answer.db"
mv "$tmp/out" "$tmp/answer"
mv "$tmp/err" "$tmp/asked"
expect_ok "$tmp/src/request_experts" "$tmp/answer.db" answer
expect_same "$tmp/out" "$tmp/asked"
mv "$tmp/out" "$tmp/traced"
expect_eq "positions" "$(grep -Ec '^.\[(\[[0-7],[0-7]\],){2}\[[0-7],[0-7]\]\](,|\])$' "$tmp/traced")" 8
"$tmp/src/request_experts" --response 4 2 <"$tmp/answer" >"$tmp/decoded" || fail "the answer is not read"
expect_eq "dense layers" "$(grep -c '^.\[\[0,0\],' "$tmp/decoded")" 8
sed 's/^\(.\[\)\[0,0\],/\1/' "$tmp/decoded" >"$tmp/without"
expect_same "$tmp/without" "$tmp/traced"
# Another implementation of base64.
sed 's/.*"routed_experts":"\([^"]*\)".*/\1/' "$tmp/answer" | base64 -d | od -An -v -td4 -w8 |
	awk '{ print $1, $2 }' >"$tmp/words"
tr -d ' \n' <"$tmp/decoded" | sed 's/\[\[\[//; s/\]\]\]//; s/\]*,\[*\[/\n/g' |
	tr ',' ' ' >"$tmp/pairs"
echo >>"$tmp/pairs"
expect_same "$tmp/words" "$tmp/pairs"
status=0
"$tmp/src/request_experts" --response 3 5 <"$tmp/answer" 2>"$tmp/err" || status=$?
expect_eq "status" "$status" 1
expect_match "$tmp/err" '64 ids are no rows of 3 layers x 5'
expect_error 1 "no request 'nobody'" "$tmp/src/request_experts" "$tmp/server.db" nobody
printf 'not a trace\n' >"$tmp/text"
expect_error 1 'not a (trace|database)' "$tmp/src/request_experts" "$tmp/text" 1
expect_error 2 '^usage' "$tmp/src/threaded_server"

# A layer that nobody handed over is null, not expert 0.
sed 's/for (layer = 0; layer < N_LAYERS;/for (layer = 1; layer < N_LAYERS;/' \
	"$tmp/src/toy_runtime.c" >"$tmp/src/half.c"
# shellcheck disable=SC2046,SC2086 # lists of options
expect_ok $MOETRACE_CC $(config --cflags) -o "$tmp/half" "$tmp/src/half.c" $(config --libs)
expect_ok "$tmp/half" "$tmp/half.db"
expect_ok "$tmp/src/request_experts" "$tmp/half.db" 1
expect_eq "positions" "$(wc -l <"$tmp/out")" 7
expect_match "$tmp/out" '^\[\[null,\[[0-9]+(,[0-9]+){3}\]\],$'

# Every symbol that a program takes carries the version of the release that added it.
if [ -n "${MOETRACE_VERSION_SCRIPT-}" ]; then
	nm -D "$tmp/src/toy_runtime" | grep ' U moetrace_' >"$tmp/taken"
	expect_match "$tmp/taken" 'moetrace_pass_begin@MOETRACE_0\.1$'
	expect_no_match "$tmp/taken" 'moetrace_[a-z_]*$'
fi

# C++, with what C++ programmers make of such handles.
if command -v "${CXX:-c++}" >/dev/null 2>&1 && [ -z "$MOETRACE_SANITIZERS" ]; then
	cat >"$tmp/user.cc" <<'END'
#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <moetrace/moetrace.h>

struct close_session {
	void operator()(moetrace_session *session) const { moetrace_session_close(session); }
};

struct pass_scope {
	pass_scope(moetrace_session *session, const moetrace_pass_info &info)
		: pass(moetrace_pass_begin(session, &info)) {}
	~pass_scope() { moetrace_pass_end(pass); }
	pass_scope(const pass_scope &) = delete;
	pass_scope &operator=(const pass_scope &) = delete;
	moetrace_pass *pass;
};

int main(int argc, char **argv)
{
	moetrace_session *opened = nullptr;
	moetrace_session_opts opts;
	MOETRACE_INIT(&opts);
	opts.engine_name = "c++";
	if (argc != 2 || moetrace_session_open(argv[1], &opts, &opened) != MOETRACE_OK)
		return 1;
	std::unique_ptr<moetrace_session, close_session> session(opened);

	std::vector<moetrace_layer_info> layers(1);
	MOETRACE_INIT(&layers[0]);
	layers[0].n_experts = 8;
	layers[0].top_k = 2;
	layers[0].scoring = MOETRACE_SCORING_SIGMOID;
	moetrace_model_info model_info;
	MOETRACE_INIT(&model_info);
	model_info.name = "c++";
	model_info.layers = layers.data();
	model_info.n_moe_layers = static_cast<std::uint32_t>(layers.size());
	std::uint32_t model = 0;
	if (moetrace_model_add(session.get(), &model_info, &model) != MOETRACE_OK ||
	    moetrace_start(session.get(), nullptr) != MOETRACE_OK)
		return 1;

	std::vector<std::thread> threads;
	for (int i = 0; i < 2; i++)
		threads.emplace_back([&session, model] {
			moetrace_pass_info info;
			MOETRACE_INIT(&info);
			info.model = model;
			info.phase = MOETRACE_PHASE_DUMMY;
			info.n_rows = 1;
			pass_scope scope(session.get(), info);
			const std::array<std::uint8_t, 2> ids{{6, 1}};
			moetrace_selection selection;
			MOETRACE_INIT(&selection);
			selection.n_rows = 1;
			selection.id_type = MOETRACE_TYPE_U8;
			selection.ids = ids.data();
			moetrace_select_experts(scope.pass, &selection);
		});
	for (auto &thread : threads)
		thread.join();
	return moetrace_stop(session.get(), "done") == MOETRACE_OK ? 0 : 1;
}
END
	for std in c++11 c++17; do
		rm -f "$tmp/cxx.db"
		# shellcheck disable=SC2046,SC2086 # lists of options
		expect_ok ${CXX:-c++} -std=$std -pedantic -Wall -Wextra -Wshadow -Werror -pthread \
			$(config --cflags) -o "$tmp/user" "$tmp/user.cc" $(config --libs)
		expect_ok "$tmp/user" "$tmp/cxx.db"
		expect_eq "passes of the C++ program" "$(sql "$tmp/cxx.db" \
			"SELECT count(*), min(verdict), sum(active_experts)
			 FROM pass JOIN pass_layer USING (pass_id)")" '2|complete|4'
	done
fi

# Without a shared library at all, sanitizers' runtimes and glibc's own aside.
unset LD_LIBRARY_PATH
if [ -f "$lib/libmoetrace.a" ]; then
	rm "$lib"/libmoetrace.so*
	# shellcheck disable=SC2046 # lists of options
	if [ -n "$MOETRACE_SANITIZERS" ] ||
		! printf 'int main(void){return 0;}\n' | $MOETRACE_CC -static -x c -o "$tmp/static" - \
			-x none $(pkg-config --static --libs sqlite3) 2>/dev/null; then
		examples '-std=c11' PKG_CONFIG="$pkg_config --static"
	else
		examples '-std=c11 -static' PKG_CONFIG="$pkg_config --static"
	fi
	run_examples
fi
