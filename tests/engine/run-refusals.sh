# SPDX-License-Identifier: MIT
#
# What `moetrace run` refuses: each with one line on stderr, its exit code, and
# nothing left behind.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

model=$tinymoe/tinymoe.safetensors
workload=$tinymoe/workload.jsonl
bad=$tmp/bad
mkdir "$bad" "$tmp/folder"

"$moetrace" run --model "$model" --workload "$workload" --no-record --batch 1 \
	--context 1 >"$tmp/out" 2>"$tmp/err"
if grep -q libyajl-dev "$tmp/err"; then
	skip "built without a JSON parser"
fi

# refused CODE REGEX OPTION...: with an output path that must stay absent.
refused() {
	code=$1
	words=$2
	shift 2
	expect_error "$code" "$words" "$moetrace" run -o "$tmp/never.db" \
		--text-output "$tmp/never.jsonl" "$@"
	for file in "$tmp"/never*; do
		[ ! -e "$file" ] || fail "left behind: $file"
	done
}

# ---- usage ----

refused 2 'model' --workload "$workload"
refused 2 'workload' --model "$model"
expect_error 2 '-o' "$moetrace" run --model "$model" --workload "$workload"
for option in --batch --chunk --context --threads --kv-positions --abort-after; do
	for value in 0 -1 x '' 1.5 99999999999999999999; do
		refused 2 "$option" --model "$model" --workload "$workload" "$option=$value"
	done
done
refused 2 'stop-byte' --model "$model" --workload "$workload" --stop-byte 256
refused 2 'stop-byte' --model "$model" --workload "$workload" --stop-byte=-1
refused 2 'seed' --model "$model" --workload "$workload" --seed 18446744073709551616
for value in -1 -0 x nan inf infinity 1e9 1e-1 101 '' ' 1' '1 ' +1 0x1 .5 1. 1.2.3 1,5; do
	refused 2 "--temperature '.*': give a decimal number from 0 to 100" \
		--model "$model" --workload "$workload" "--temperature=$value"
done
refused 2 '--model is empty' --model '' --workload "$workload"
refused 2 '--workload is empty' --model "$model" --workload ''
expect_error 2 '-o is empty' "$moetrace" run --model "$model" --workload "$workload" -o ''
expect_error 2 '--text-output is empty' "$moetrace" run --model "$model" \
	--workload "$workload" --no-record --text-output ''
refused 2 'frobnicate' --model "$model" --workload "$workload" --frobnicate
refused 2 'surplus' --model "$model" --workload "$workload" surplus

# ---- options that have no effect without another one, or with one ----

head -n 1 "$workload" >"$tmp/one"
for option in --record-tokens --kernels --margins '--collect host' --idle '--flight-seconds 1' \
	'--flight-bytes 1048576' '--mode per_pass' '--sample-passes 2' '--sample-requests 2' "--socket-dir $tmp"; do
	# shellcheck disable=SC2086 # an option with its value
	expect_ok "$moetrace" run --model "$model" --workload "$tmp/one" --no-record $option
	expect_err "moetrace run: warning: ${option%% *} has no effect: --no-record was given"
done
refused 2 '--chunk and --lockstep exclude each other' --model "$model" --workload "$workload" --chunk 8 --lockstep
refused 2 "--idle waits for 'moetrace start', which takes a control socket" \
	--model "$model" --workload "$workload" --idle --socket-dir none
MOETRACE_SOCKET_DIR=none refused 2 "a flight recording is written by 'moetrace dump'" \
	--model "$model" --workload "$workload" --flight-seconds 1
# A seed that nothing takes is no mistake, but nobody shall wait for its effect.
expect_ok "$moetrace" run --model "$model" --workload "$tmp/one" --no-record --seed 1
expect_err "moetrace run: note: --seed has no effect: it is of --temperature, of a --shape, and of --routing \
uniform or zipf"
for options in '--temperature 0.5' '--routing uniform' '--routing zipf:1'; do
	# shellcheck disable=SC2086
	expect_ok "$moetrace" run --model "$model" --workload "$tmp/one" --no-record --seed 1 $options
	expect_err ""
done

# ---- the model ----

# bad_model CODE REGEX: $bad/model is refused, by its name.
bad_model() {
	refused "$1" "$bad/model: .*$2" --model "$bad/model" --workload "$workload"
}

# patch SED-SCRIPT: the example with text of its header replaced by as much text.
patch() {
	LC_ALL=C sed -b "$1" "$model" >"$bad/model"
	[ "$(wc -c <"$bad/model")" -eq "$(wc -c <"$model")" ] || fail "patch changed the size: $1"
	! cmp -s "$bad/model" "$model" || fail "patch changed nothing: $1"
}

refused 3 "$bad/absent: cannot open: No such file" --model "$bad/absent" --workload "$workload"
refused 1 'not a regular file' --model "$tmp/folder" --workload "$workload"
: >"$bad/model"
bad_model 1 'the file is empty'
for n_bytes in 1 7 8 9 1000 8000 100000 10202543; do
	head -c "$n_bytes" "$model" >"$bad/model"
	bad_model 1 ''
done
cp "$workload" "$bad/model"
bad_model 1 'not a safetensors file'
(cat "$model" && echo) >"$bad/model"
bad_model 1 '1 bytes after the last tensor'
patch '1s/Qwen3MoeForCausalLM/Mixtral_ForCausalLM/'
bad_model 1 'not a Qwen3-MoE model: the architecture is Mixtral_ForCausalLM'
patch '1s/"dtype":"F16"/"dtype":"I16"/'
bad_model 1 'tensor model.embed_tokens.weight: type I16 is not supported'
patch '1s/"shape":\[256,128\]/"shape":[256,129]/'
bad_model 1 'tensor model.embed_tokens.weight: shape and type need 66048 bytes'
patch '1s/num_attention_heads\\": 4/num_attention_heads\\": 3/'
bad_model 1 ''
patch '1s/num_experts_per_tok\\": 8/num_experts_per_tok\\": 0/'
bad_model 1 'num_experts_per_tok is 0'
patch '1s/num_experts\\": 64/num_experts\\": 65/'
bad_model 1 ''
patch '1s/hidden_size\\": 128/hidden_size\\": 64 /'
bad_model 1 ''
patch '1s/num_hidden_layers\\": 6/num_hidden_layers\\": 7/'
bad_model 1 ''
patch '1s/num_hidden_layers\\": 6/num_hidden_layers\\": 5/'
bad_model 1 'model.layers.5.input_layernorm.weight: not used, num_hidden_layers is 5'
patch '1s/mlp.gate.weight/mlp.gate.wEight/'
bad_model 1 'mlp.gate.weight: the tensor is missing; convert'
# The last tensor ends in an fp16 NaN, then in an infinity.
for bytes in '\377\377' '\000\174'; do
	cp "$model" "$bad/model"
	# shellcheck disable=SC2059 # the format is the bytes
	printf "$bytes" | dd of="$bad/model" bs=1 seek=$(($(wc -c <"$model") - 2)) \
		conv=notrunc 2>/dev/null
	bad_model 1 'model[.][a-z0-9_.]+: element [0-9]+ is (NaN|infinite); fetch or convert'
done
patch '1s/vocab_size\\": 256/vocab_size\\": 128/'
bad_model 1 ''

# ---- the workload ----

# bad_workload REGEX LINE...
bad_workload() {
	words=$1
	shift
	printf '%s\n' "$@" >"$bad/workload"
	refused 1 "$bad/workload: $words" --model "$model" --workload "$bad/workload"
}

good='{"prompt": "ab", "max_new_tokens": 2}'
refused 3 "$bad/absent: cannot open: No such file" --model "$model" --workload "$bad/absent"
refused 1 'Is a directory' --model "$model" --workload "$tmp/folder"
bad_workload 'the workload has no requests' ''
bad_workload 'line 2, column 1: this is not a JSON value' "$good" 'not JSON'
bad_workload 'begins with a UTF-8 byte order mark; remove it' "$(printf '\357\273\277')$good"
bad_workload 'line 3: prompt is missing' "$good" '' '{"max_new_tokens": 2}'
bad_workload 'line 2: max_new_tokens is missing' "$good" '{"prompt": "ab"}'
bad_workload 'line 1, column 12: prompt is empty' '{"prompt": "", "max_new_tokens": 2}'
bad_workload 'line 1, column 35: max_new_tokens is not' '{"prompt": "a", "max_new_tokens": 0}'
bad_workload 'line 2: id 1 is that of line 1 too' \
	'{"prompt": "a", "max_new_tokens": 2, "id": 1}' "$good"

printf '%s\n' "$good" '{"prompt": "abcdefgh", "max_new_tokens": 1}' >"$bad/workload"
refused 1 'line 2: the prompt has 8 tokens, the context 7' \
	--model "$model" --workload "$bad/workload" --context 7

# ---- the outputs ----

echo "$good" >"$bad/workload"

# bad_output REGEX PATH OPTION...
bad_output() {
	words=$1
	path=$2
	shift 2
	expect_error 1 "$words" "$moetrace" run --model "$model" --workload "$bad/workload" \
		-o "$path" "$@"
}

echo precious >"$tmp/precious"
cp "$tmp/precious" "$tmp/kept"
bad_output 'precious exists already' "$tmp/precious"
bad_output 'folder is a directory' "$tmp/folder"
bad_output 'folder is a directory' "$tmp/folder" -f
expect_error 2 'workload is the file .*, which is an input' "$moetrace" run --model "$model" \
	--workload "$bad/workload" -o "$bad/workload" -f
bad_output 'absent' "$tmp/absent/a.db"
bad_output 'absent' "$tmp/new.db" --text-output "$tmp/absent/a.jsonl"
bad_output 'precious exists already' "$tmp/new.db" --text-output "$tmp/precious"
for text in new.db ./new.db folder/../new.db new.db-wal ./new.db-shm new.db-journal; do
	bad_output 'name the same file' "$tmp/new.db" --text-output "$tmp/$text"
	bad_output 'name the same file' "$tmp/new.db" --text-output "$tmp/$text" -f
done
bad_output 'not a regular file' /dev/null -f
expect_same "$tmp/precious" "$tmp/kept"
: >"$tmp/stale.db-wal"
bad_output 'stale.db-wal belongs to another recording; move it away' "$tmp/stale.db"
expect_absent "$tmp/new.db" "$tmp/stale.db" "$tmp/absent"

# A full and a read-only file system, where a name space of our own can be had.
disk() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare -Urm sh -c 'mount -t tmpfs -o "$1" moetrace-test "$2" || exit 99
		shift 2
		"$@"
		status=$?
		ls -A "$0" >&3
		exit $status' "$tmp/folder" "$1" "$tmp/folder" \
		"$moetrace" run --model "$model" --workload "$bad/workload" \
		-o "$tmp/folder/a.db" 3>"$tmp/listing"
}
if unshare -Urm mount -t tmpfs -o size=16k moetrace-test "$tmp/folder" 2>/dev/null; then
	for options in size=16k ro; do
		expect_error 1 'folder/a.db: ' disk "$options"
		expect_eq "files left on a disk mounted $options" "$(cat "$tmp/listing")" ''
	done
else
	echo "not tested: full and read-only file systems (unshare is not permitted)"
fi
