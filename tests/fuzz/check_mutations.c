/* SPDX-License-Identifier: MIT */
/*
 * Damaged inputs without a fuzzer: every truncation of a small model file and those of each class
 * of the example's, every single bit of the small header and thousands of random ones of the
 * example's, and the same for workloads. Whatever is accepted must keep the reader's promises, and
 * damage that must be seen has to be seen.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "tests/engine/support/model_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/run_suite.h"

/* The first @n_bytes of @bytes in memory of exactly that size. */
static int try_prefix(int (*input)(const unsigned char *, size_t), const unsigned char *bytes,
		      size_t n_bytes)
{
	unsigned char *copy = malloc(n_bytes ? n_bytes : 1);
	int accepted;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, n_bytes);
	accepted = input(copy, n_bytes);
	free(copy);
	return accepted;
}

START_TEST(test_every_truncation)
{
	struct model_file file = model_file_sound();
	size_t n_bytes;

	for (n_bytes = 0; n_bytes < file.n_bytes; n_bytes++)
		ck_assert_int_eq(try_prefix(fuzz_safetensors_input, file.bytes, n_bytes), 0);
	ck_assert_int_eq(fuzz_safetensors_input(file.bytes, file.n_bytes), 1);
	model_file_release(&file);
}
END_TEST

START_TEST(test_every_bit_of_the_header)
{
	struct model_file file = model_file_sound();
	size_t n_accepted = 0, bit, n_bits = (8 + file.header_bytes) * 8;

	for (bit = 0; bit < n_bits; bit++) {
		file.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		n_accepted += (size_t)fuzz_safetensors_input(file.bytes, file.n_bytes);
		file.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	/* Another letter in a name is not damage that a reader can see; a changed number is. */
	ck_assert_uint_gt(n_accepted, 0);
	ck_assert_uint_lt(n_accepted, n_bits / 2);
	model_file_release(&file);
}
END_TEST

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random_state >> 33) % n);
}

/* Several kinds of damage at once, at random places. */
static void damage(unsigned char *bytes, size_t n_bytes)
{
	static const char letters[] = "0123456789[]{}\",:\\-.eE \xff";
	uint32_t n = 1 + random_below(4);

	while (n-- > 0) {
		unsigned char *at = bytes + random_below((uint32_t)n_bytes);

		switch (random_below(4)) {
		case 0:
			*at ^= (unsigned char)(1u << random_below(8));
			break;
		case 1:
			*at = (unsigned char)random_below(256);
			break;
		case 2:
			/* The closing zero is one of them. */
			*at = (unsigned char)letters[random_below(sizeof(letters))];
			break;
		default:
			memmove(at, bytes, (size_t)random_below((uint32_t)(bytes + n_bytes - at)));
			break;
		}
	}
}

START_TEST(test_random_damage_to_a_small_file)
{
	struct model_file sound = model_file_sound(), file = model_file_sound();
	int i;

	random_state = (uint64_t)_i;
	for (i = 0; i < 5000; i++) {
		memcpy(file.bytes, sound.bytes, sound.n_bytes);
		damage(file.bytes, 8 + file.header_bytes);
		(void)try_prefix(fuzz_safetensors_input, file.bytes,
				 file.n_bytes - (random_below(4) ? 0 : random_below(64)));
	}
	model_file_release(&sound);
	model_file_release(&file);
}
END_TEST

static unsigned char *file_read(const char *path, size_t *ret_n_bytes)
{
	FILE *in = fopen(path, "rb");
	unsigned char *bytes;
	long n_bytes;

	ck_assert_ptr_nonnull(in);
	ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
	n_bytes = ftell(in);
	rewind(in);
	bytes = malloc((size_t)n_bytes);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(fread(bytes, 1, (size_t)n_bytes, in), (size_t)n_bytes);
	fclose(in);
	*ret_n_bytes = (size_t)n_bytes;
	return bytes;
}

static size_t header_bytes_of(const unsigned char *bytes)
{
	return bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16;
}

/* In the length, at its end, in the header, at its end, in the data, and one byte short. */
START_TEST(test_tinymoe_truncated)
{
	size_t n_bytes, header_bytes, i;
	unsigned char *bytes = file_read(model_file_tinymoe_path(), &n_bytes);
	size_t cuts[9];

	header_bytes = header_bytes_of(bytes);
	memcpy(cuts,
	       (size_t[]){0, 1, 7, 8, 9, 8 + header_bytes / 2, 8 + header_bytes,
			  8 + header_bytes + 1, n_bytes - 1},
	       sizeof(cuts));
	for (i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		ck_assert_int_eq(try_prefix(fuzz_safetensors_input, bytes, cuts[i]), 0);
	ck_assert_int_eq(fuzz_safetensors_input(bytes, n_bytes), 1);
	free(bytes);
}
END_TEST

/*
 * The header of the example, thousands of times. Its data is left out, so that the time goes into
 * the header: a header that is read to its end is then refused for the missing data.
 */
START_TEST(test_tinymoe_header_bits)
{
	size_t n_bytes, header_bytes;
	unsigned char *bytes = file_read(model_file_tinymoe_path(), &n_bytes);
	int i;

	random_state = (uint64_t)_i;
	header_bytes = header_bytes_of(bytes);
	for (i = 0; i < 1000; i++) {
		size_t bit = random_below((uint32_t)header_bytes * 8);

		bytes[8 + bit / 8] ^= (unsigned char)(1u << bit % 8);
		ck_assert_int_eq(try_prefix(fuzz_safetensors_input, bytes, 8 + header_bytes), 0);
		bytes[8 + bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	free(bytes);
}
END_TEST

START_TEST(test_workload_damage)
{
	static const char text[] = "{\"id\": \"r-0\", \"prompt\": \"\\u00e9\\ud83d\\ude00 x\", "
				   "\"max_new_tokens\": 12}\n"
				   "\n{\"prompt\": \"abc\", \"domain\": \"c\", \"hot\": true, "
				   "\"max_new_tokens\": 7}\r\n"
				   "{\"max_new_tokens\": 1, \"prompt\": \"\\n\", \"w\": -1.5e3}";
	unsigned char bytes[sizeof(text)];
	size_t n_bytes = sizeof(text) - 1, i;

	random_state = (uint64_t)_i;
	ck_assert_int_eq(fuzz_workload_input((const unsigned char *)text, n_bytes), 1);
	for (i = 0; i < n_bytes; i++)
		(void)try_prefix(fuzz_workload_input, (const unsigned char *)text, i);
	for (i = 0; i < 5000; i++) {
		memcpy(bytes, text, sizeof(text));
		damage(bytes, n_bytes);
		(void)try_prefix(fuzz_workload_input, bytes, n_bytes);
		(void)try_prefix(fuzz_json_input, bytes, strcspn((const char *)bytes, "\n"));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mutations");
	TCase *tcase = tcase_create("readers");

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_every_truncation);
	tcase_add_test(tcase, test_every_bit_of_the_header);
	tcase_add_loop_test(tcase, test_random_damage_to_a_small_file, 0, 4);
	tcase_add_test(tcase, test_tinymoe_truncated);
	tcase_add_loop_test(tcase, test_tinymoe_header_bits, 0, 4);
	tcase_add_loop_test(tcase, test_workload_damage, 0, 2);
	return run_suite(suite);
}
