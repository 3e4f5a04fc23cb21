# SPDX-License-Identifier: MIT
#
# The dependency rule, one line `PATH:LINE: reason` for each include that breaks
# it. Input: lines `PATH:LINE:#include ...`, PATH relative to the top of the
# tree. -v files=LIST names a file that lists every header of the tree, so that
# an include in quotes can be followed.

# layer(PATH): the part of the tree that a rule speaks of.
function layer(path,    part)
{
	split(path, part, "/")
	if (path ~ /^libtrace\/include\//)
		return "public"
	if (path ~ /^schema\/functions\//)
		return "functions"
	return part[1]
}

# collector(PATH): the folder of a collector, which is its vendor's family.
function collector(path,    part)
{
	return split(path, part, "/") > 2 ? part[2] : ""
}

function complain(reason)
{
	print where ": " reason
	n_bad++
}

# The layers that a layer may name in quotes, beside itself.
BEGIN {
	allowed["cli"] = " functions schema kernels common viewer "
	allowed["kernels"] = " common "
	allowed["collectors"] = " common "
	allowed["libtrace"] = " common "
	allowed["functions"] = " common "
	allowed["viewer"] = " functions common "
	allowed["common"] = " "
	allowed["public"] = " "
	allowed["examples"] = " "

	# Of a layer that may be named, those headers alone; absent: all.
	only["cli schema"] = "^schema/reference\\.h$"
	only["cli viewer"] = "^viewer/view\\.h$"

	# What the system has: the C library, the compiler, Linux. All else is somebody's.
	system_headers = "^((assert|cpuid|ctype|dirent|dlfcn|elf|endian|errno|fcntl|float|fnmatch|" \
		"immintrin|inttypes|langinfo|limits|link|locale|math|poll|pthread|sched|signal|" \
		"spawn|std[a-z]+|strings?|time|unistd|wchar)|(arpa|linux|sys)/[a-z_]+)\\.h$"

	# Headers of other people, and the paths that may include them.
	vendor["^sqlite3\\.h$"] = "^(libtrace/store/|schema/functions/|cli/|viewer/|examples/request_experts\\.c$)"
	vendor["^sqlite3ext\\.h$"] = "^schema/functions/"
	vendor["^(llama|ggml(-backend)?)\\.h$"] = "^examples/llama\\.cpp/"
	vendor["^yajl/"] = "^common/json\\.c$"
	vendor["^argp\\.h$"] = "^cli/"
	vendor["^(curses|term)\\.h$"] = "^cli/top_screen\\.c$"
	vendor["^microhttpd\\.h$"] = "^viewer/server\\.c$"
	vendor["^cuda_(bf16|fp16|runtime)\\.h$"] = "^kernels/.*\\.cuh?$"
	vendor["^nvtx3/"] = "^collectors/nvtx/.*\\.c$"

	# What a layer may take of the public headers; absent: all.
	public_only["common"] = "^moetrace/status\\.h$"
	public_only["collectors"] = "^moetrace/(moetrace|status)\\.h$"

	while ((getline line < files) > 0)
		header[line] = 1
}

{
	match($0, /^[^:]*:[0-9]+:/)
	where = substr($0, 1, RLENGTH - 1)
	path = where
	sub(/:[0-9]+$/, "", path)
	from = layer(path)
	text = substr($0, RLENGTH + 1)
	sub(/^[ \t]*#[ \t]*include[ \t]*/, "", text)
	quoted = text ~ /^"/
	if (!quoted && text !~ /^</) {
		complain("an include by a macro cannot be checked")
		next
	}
	name = substr(text, 2)
	sub(/[">].*$/, "", name)

	if (from == "tests" || from == "bench")
		next
	n_seen++
	if (quoted && name != "config.h")
		check_quoted(name)
	else
		check_system(name)
}

function check_quoted(name,    folder, target, to)
{
	folder = path
	sub(/[^\/]*$/, "", folder)
	target = name in header ? name : folder name
	if (!(target in header)) {
		complain("\"" name "\" is no header of this tree, written from its top")
		return
	}
	to = layer(target)
	if (to == "public")
		complain("a public header is included as <moetrace/...>, not \"" name "\"")
	else if (from == "collectors" && target == "libtrace/collector.h")
		return
	else if (to != from && index(allowed[from], " " to " ") == 0)
		complain(from " must not include " target)
	else if ((from " " to) in only && target !~ only[from " " to])
		complain("of " to " " from " must not include " target)
	else if (from == "collectors" && collector(target) != "" && collector(target) != collector(path))
		complain("one collector must not see another: " target)
}

function check_system(name,    pattern)
{
	if (name == "config.h") {
		if (from == "public" || from == "examples")
			complain("config.h is private to the build")
		return
	}
	if (name ~ /^moetrace\/[^\/]*$/) {
		if (from in public_only && name !~ public_only[from])
			complain(from " must not include <" name ">")
		return
	}
	if (name in header || name ~ /\.\./) {
		complain("<" name "> is ours and is written in quotes, from the top of the tree")
		return
	}
	if (name ~ system_headers)
		return
	for (pattern in vendor)
		if (name ~ pattern) {
			if (path !~ vendor[pattern])
				complain("<" name "> has no place in " path)
			return
		}
	complain("<" name "> is neither of the system nor of anybody who may be used")
}

END {
	if (n_seen == 0) {
		print "no include was found at all"
		n_bad++
	}
	exit n_bad > 0
}
