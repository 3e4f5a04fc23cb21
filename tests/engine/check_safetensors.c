/* SPDX-License-Identifier: MIT */
/*
 * The safetensors reader: what it reads of a sound file, and a table of headers that it must
 * refuse, each with the status and the words of the error.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>

#include <moetrace/status.h>

#include "kernels/engine/safetensors.h"
#include "tests/engine/support/model_file.h"
#include "tests/support/run_suite.h"

static int parse(const struct model_file *file, struct mtk_safetensors **ret_read,
		 struct mtk_error *error)
{
	return mtk_safetensors_parse("m", file->bytes, file->n_bytes, ret_read, error);
}

START_TEST(test_parse_sound)
{
	static const struct {
		const char *name;
		enum mtk_dtype dtype;
		uint32_t n_dims;
		uint64_t dims[3];
		size_t begin, n_bytes;
	} expected[] = {
		{"embed", MTK_DTYPE_F16, 2, {3, 5}, 0, 30},
		{"norm", MTK_DTYPE_F32, 1, {7}, 30, 28},
		{"scalar", MTK_DTYPE_BF16, 0, {0}, 58, 2},
		{"none", MTK_DTYPE_F32, 2, {4, 0}, 60, 0},
		{"experts.down", MTK_DTYPE_BF16, 3, {1, 29, 1}, 60, 58},
	};
	struct model_file file = model_file_sound();
	struct mtk_tensor_source source;
	struct mtk_safetensors *read;
	struct mtk_tensor tensor;
	size_t i, j;

	ck_assert_int_eq(parse(&file, &read, NULL), MOETRACE_OK);
	/* The reader keeps its own copy. */
	model_file_release(&file);
	source = mtk_safetensors_source(read);
	ck_assert_uint_eq(mtk_safetensors_n_tensors(read), 5);
	for (i = 0; i < 5; i++) {
		ck_assert_int_eq(source.find(source.ctx, expected[i].name, &tensor), MOETRACE_OK);
		ck_assert_int_eq(tensor.dtype, expected[i].dtype);
		ck_assert_uint_eq(tensor.n_dims, expected[i].n_dims);
		for (j = 0; j < tensor.n_dims; j++)
			ck_assert_uint_eq(tensor.dims[j], expected[i].dims[j]);
		ck_assert_uint_eq(tensor.n_bytes, expected[i].n_bytes);
		for (j = 0; j < tensor.n_bytes; j++)
			ck_assert_uint_eq(((const unsigned char *)tensor.data)[j],
					  expected[i].begin + j);
	}
	ck_assert_int_eq(source.find(source.ctx, "absent", &tensor), MOETRACE_E_NOT_FOUND);
	ck_assert_int_eq(source.find(source.ctx, "", &tensor), MOETRACE_E_NOT_FOUND);
	ck_assert_str_eq(mtk_safetensors_tensor_at(read, 0, &tensor), "embed");
	ck_assert_str_eq(mtk_safetensors_metadata(read, "architecture"), "Qwen3MoeForCausalLM");
	ck_assert_ptr_null(mtk_safetensors_metadata(read, "format"));
	ck_assert_str_eq(mtk_safetensors_name(read), "m");
	mtk_safetensors_close(read);
}
END_TEST

#define T(dtype, shape, offsets) \
	"{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                     \
	"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":" first "}," \
	"\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":" second "}}"

static const struct {
	const char *header;
	size_t data_bytes;
	int status;
	const char *words;
} refused[] = {
	{"", 0, MOETRACE_E_FORMAT, "m: not a safetensors file"},
	{" {}", 0, MOETRACE_E_FORMAT, "does not begin with {"},
	{"[]", 0, MOETRACE_E_FORMAT, "does not begin with {"},
	{"{", 0, MOETRACE_E_FORMAT, "m: header byte 1: "},
	{"{}x", 0, MOETRACE_E_FORMAT, "header byte"},
	{"{}", 1, MOETRACE_E_FORMAT, "1 bytes after the last tensor"},
	{"{\"t\":7}", 0, MOETRACE_E_FORMAT, "tensor t: the entry is not a JSON object"},
	{"{\"t\":[]}", 0, MOETRACE_E_FORMAT, "tensor t: the entry is not a JSON object"},
	{"{\"t\":{}}", 0, MOETRACE_E_FORMAT, "tensor t: dtype is missing"},
	{"{\"t\":{\"dtype\":\"F32\"}}", 0, MOETRACE_E_FORMAT, "tensor t: shape is missing"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, MOETRACE_E_FORMAT, "not two numbers"},
	{"{\"t\":{\"dtype\":7}}", 0, MOETRACE_E_FORMAT, "tensor t: dtype is not a string"},
	{"{\"t\":{\"dtype\":[\"F32\"]}}", 0, MOETRACE_E_FORMAT, "tensor t: dtype is not a string"},
	{"{\"t\":{\"dtype\":{\"a\":1}}}", 0, MOETRACE_E_FORMAT, "tensor t: dtype is not a string"},
	{"{\"t\":{\"shape\":4}}", 0, MOETRACE_E_FORMAT, "tensor t: shape is not an array"},
	{"{\"t\":{\"shape\":null}}", 0, MOETRACE_E_FORMAT, "tensor t: shape is not an array"},
	{"{\"t\":{\"data_offsets\":\"0\"}}", 0, MOETRACE_E_FORMAT, "data_offsets is not an array"},
	{"{\"t\":{\"strides\":[1]}}", 0, MOETRACE_E_FORMAT, "a field that is not"},
	{"{\"\":{}}", 0, MOETRACE_E_FORMAT, "a tensor's name is empty"},
	{"{\"a\\u0000b\":{}}", 0, MOETRACE_E_FORMAT, "zero byte"},
	{"{\"__metadata__\":7}", 0, MOETRACE_E_FORMAT, "not a JSON object"},
	{"{\"__metadata__\":{\"a\":7}}", 0, MOETRACE_E_FORMAT, "value is not a string"},
	{"{\"__metadata__\":{\"a\":{}}}", 0, MOETRACE_E_FORMAT, "value is not a string"},
	{"{\"__metadata__\":{\"a\":\"x\\u0000y\"}}", 0, MOETRACE_E_FORMAT, "zero byte"},
	{"{\"__metadata__\":{},\"__metadata__\":{}}", 0, MOETRACE_E_FORMAT, "comes twice"},
	{"{\"t\":{\"shape\":[[1]]}}", 0, MOETRACE_E_FORMAT, "nested deeper"},
	{T("F64", "[1]", "[0,8]"), 8, MOETRACE_E_UNSUPPORTED,
	 "tensor t: type F64 is not supported"},
	{T("I64", "[1]", "[0,8]"), 8, MOETRACE_E_UNSUPPORTED,
	 "tensor t: type I64 is not supported"},
	{T("F8_E4M3", "[1]", "[0,1]"), 1, MOETRACE_E_UNSUPPORTED, "type F8_E4M3"},
	{T("f32", "[1]", "[0,4]"), 4, MOETRACE_E_FORMAT, "\"f32\" is not a tensor type"},
	{T("", "[1]", "[0,4]"), 4, MOETRACE_E_FORMAT, "\"\" is not a tensor type"},
	{T("F32", "[-1]", "[0,4]"), 4, MOETRACE_E_FORMAT, "a dimension is not"},
	{T("F32", "[1.0]", "[0,4]"), 4, MOETRACE_E_FORMAT, "a dimension is not"},
	{T("F32", "[1e0]", "[0,4]"), 4, MOETRACE_E_FORMAT, "a dimension is not"},
	{T("F32", "[\"1\"]", "[0,4]"), 4, MOETRACE_E_FORMAT, "not a number"},
	{T("F32", "[null]", "[0,4]"), 4, MOETRACE_E_FORMAT, "not a number"},
	{T("F32", "[9223372036854775808]", "[0,4]"), 4, MOETRACE_E_FORMAT, "a dimension is not"},
	{T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, MOETRACE_E_FORMAT, "more than 8 dimensions"},
	{T("F32", "[4611686018427387904]", "[0,0]"), 0, MOETRACE_E_FORMAT, "2^64 bytes"},
	{T("F16", "[4294967296,4294967296]", "[0,0]"), 0, MOETRACE_E_FORMAT, "2^64 bytes"},
	{T("F16", "[2]", "[0,5]"), 5, MOETRACE_E_FORMAT, "need 4 bytes, data_offsets give 5"},
	{T("F16", "[2]", "[0,3]"), 3, MOETRACE_E_FORMAT, "need 4 bytes, data_offsets give 3"},
	{T("F16", "[2]", "[4,0]"), 4, MOETRACE_E_FORMAT, "end before they begin"},
	{T("F16", "[2]", "[-4,0]"), 4, MOETRACE_E_FORMAT, "a data offset is not"},
	{T("F16", "[2]", "[0]"), 4, MOETRACE_E_FORMAT, "not two numbers"},
	{T("F16", "[2]", "[]"), 4, MOETRACE_E_FORMAT, "not two numbers"},
	{T("F16", "[2]", "[0,4,4]"), 4, MOETRACE_E_FORMAT, "more than two numbers"},
	{T("F16", "[2]", "[0,4]"), 3, MOETRACE_E_FORMAT,
	 "tensor t: data_offsets end at byte 4 of 3"},
	{T("F16", "[2]", "[0,4]"), 5, MOETRACE_E_FORMAT, "1 bytes after the last tensor"},
	{T("F16", "[2]", "[1,5]"), 5, MOETRACE_E_FORMAT, "tensor t: data_offsets leave a hole"},
	{T("F16", "[2]", "[9223372036854775803,9223372036854775807]"), 4, MOETRACE_E_FORMAT,
	 "data_offsets end at byte 9223372036854775807 of 4"},
	{TWO("[0,4]", "[4,8]") "  \n!", 8, MOETRACE_E_FORMAT, "header byte"},
	{TWO("[0,4]", "[2,6]"), 6, MOETRACE_E_FORMAT, "tensor b: data_offsets overlap"},
	{TWO("[0,4]", "[0,4]"), 4, MOETRACE_E_FORMAT, "tensor b: data_offsets overlap"},
	{TWO("[0,4]", "[5,9]"), 9, MOETRACE_E_FORMAT, "tensor b: data_offsets leave a hole"},
	{TWO("[4,8]", "[1,5]"), 8, MOETRACE_E_FORMAT, "tensor b: data_offsets leave a hole"},
	{"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
	 "\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
	 8, MOETRACE_E_FORMAT, "key \"a\" comes twice"},
	{"{\"a\":{\"dtype\":\"F16\",\"dtype\":\"F32\"}}", 0, MOETRACE_E_FORMAT, "comes twice"},
	{"{\"a\\u001b[31m\":{}}", 0, MOETRACE_E_FORMAT, "tensor a?[31m: dtype is missing"},
};

START_TEST(test_parse_refuses)
{
	struct model_file file = model_file_make(refused[_i].header, refused[_i].data_bytes);
	struct mtk_safetensors *read = NULL;
	struct mtk_error error = {.text = ""};

	ck_assert_int_eq(parse(&file, &read, &error), refused[_i].status);
	ck_assert_ptr_null(read);
	ck_assert_msg(strstr(error.text, refused[_i].words) != NULL, "%s: %s", refused[_i].header,
		      error.text);
	ck_assert_int_eq(strncmp(error.text, "m: ", 3), 0);
	ck_assert_ptr_null(strchr(error.text, '\n'));
	/* The error is optional. */
	ck_assert_int_eq(parse(&file, &read, NULL), refused[_i].status);
	model_file_release(&file);
}
END_TEST

START_TEST(test_parse_any_order_and_padding)
{
	struct model_file file = model_file_make(TWO("[4,8]", "[0,4]") "    ", 8);
	struct mtk_safetensors *read;
	struct mtk_tensor tensor;

	ck_assert_int_eq(parse(&file, &read, NULL), MOETRACE_OK);
	ck_assert_str_eq(mtk_safetensors_tensor_at(read, 1, &tensor), "b");
	ck_assert_uint_eq(*(const unsigned char *)tensor.data, 0);
	mtk_safetensors_close(read);
	model_file_release(&file);
}
END_TEST

/* A length that lies: too long for the file, above the limit, and all ones. */
START_TEST(test_parse_length)
{
	static const struct {
		uint64_t length;
		const char *words;
	} lengths[] = {
		{122, "truncated: a header of 122 bytes is announced, 121 bytes follow"},
		{100000001, "the format's limit is 100000000"},
		{UINT64_MAX, "a header of 18446744073709551615 bytes"},
		{0, "does not begin with {"},
	};
	struct model_file file = model_file_make("{}", 119);
	struct mtk_safetensors *read;
	struct mtk_error error;
	size_t i, j;

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (j = 0; j < 8; j++)
			file.bytes[j] = (unsigned char)(lengths[i].length >> 8 * j);
		ck_assert_int_eq(parse(&file, &read, &error), MOETRACE_E_FORMAT);
		ck_assert_msg(strstr(error.text, lengths[i].words) != NULL, "%s", error.text);
	}
	model_file_release(&file);
}
END_TEST

static char folder[64];

static void file_write(const char *path, const void *bytes, size_t n_bytes)
{
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, out), n_bytes);
	ck_assert_int_eq(fclose(out), 0);
}

static void folder_make(void)
{
	strcpy(folder, "/tmp/check_safetensors.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
}

static void folder_remove(void)
{
	(void)unlink("m");
	ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(test_open_errors)
{
	struct mtk_safetensors *read;
	struct mtk_error error;

	ck_assert_int_eq(mtk_safetensors_open("m", &read, &error), MOETRACE_E_NOT_FOUND);
	ck_assert_str_eq(error.text, "m: cannot open: No such file or directory");
	ck_assert_int_eq(mtk_safetensors_open(".", &read, &error), MOETRACE_E_IO);
	ck_assert_str_eq(error.text, ".: not a regular file; give the path of one");
	file_write("m", "", 0);
	ck_assert_int_eq(mtk_safetensors_open("m", &read, &error), MOETRACE_E_FORMAT);
	ck_assert_str_eq(error.text, "m: the file is empty; fetch or convert it again");
	file_write("m", "1234567", 7);
	ck_assert_int_eq(mtk_safetensors_open("m", &read, &error), MOETRACE_E_FORMAT);
	ck_assert_str_eq(error.text, "m: not a safetensors file: shorter than 8 bytes; give the path of one");
	file_write("m", "not a model at all\n", 19);
	ck_assert_int_eq(mtk_safetensors_open("m", &read, &error), MOETRACE_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(error.text, "m: not a safetensors file"));
}
END_TEST

/* A FIFO must be refused at once, not waited for; the test's time limit would tell. */
START_TEST(test_open_fifo)
{
	struct mtk_safetensors *read;

	ck_assert_int_eq(mkfifo("m", 0600), 0);
	ck_assert_int_eq(mtk_safetensors_open("m", &read, NULL), MOETRACE_E_IO);
}
END_TEST

START_TEST(test_open_sound)
{
	struct model_file file = model_file_sound();
	struct mtk_safetensors *read;
	struct mtk_tensor tensor;

	file_write("m", file.bytes, file.n_bytes);
	ck_assert_int_eq(mtk_safetensors_open("m", &read, NULL), MOETRACE_OK);
	/* What happens to the file later does not matter. */
	ck_assert_int_eq(truncate("m", 0), 0);
	ck_assert_str_eq(mtk_safetensors_tensor_at(read, 1, &tensor), "experts.down");
	ck_assert_uint_eq(((const unsigned char *)tensor.data)[57], 117);
	mtk_safetensors_close(read);
	model_file_release(&file);
}
END_TEST

START_TEST(test_open_tinymoe)
{
	struct mtk_safetensors *read;
	struct mtk_tensor tensor;
	struct mtk_error error = {.text = ""};
	size_t n_bytes = 0, i;

	ck_assert_msg(mtk_safetensors_open(model_file_tinymoe_path(), &read, &error) == MOETRACE_OK,
		      "%s", error.text);
	ck_assert_uint_eq(mtk_safetensors_n_tensors(read), 68);
	for (i = 0; i < mtk_safetensors_n_tensors(read); i++) {
		mtk_safetensors_tensor_at(read, i, &tensor);
		ck_assert_int_eq(tensor.dtype, MTK_DTYPE_F16);
		n_bytes += tensor.n_bytes;
	}
	ck_assert_uint_gt(n_bytes, 10000000);
	mtk_safetensors_close(read);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *in_memory = tcase_create("parse"), *in_files = tcase_create("open");

	suite_add_tcase(suite, in_memory);
	tcase_add_test(in_memory, test_parse_sound);
	tcase_add_loop_test(in_memory, test_parse_refuses, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(in_memory, test_parse_any_order_and_padding);
	tcase_add_test(in_memory, test_parse_length);
	tcase_add_test(in_memory, test_open_tinymoe);
	suite_add_tcase(suite, in_files);
	tcase_add_checked_fixture(in_files, folder_make, folder_remove);
	tcase_add_test(in_files, test_open_errors);
	tcase_add_test(in_files, test_open_fifo);
	tcase_add_test(in_files, test_open_sound);
	return run_suite(suite);
}
