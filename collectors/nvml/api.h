/* SPDX-License-Identifier: MIT */
/*
 * The part of NVIDIA's management library that is used, declared from its documented interface, so
 * that neither its header nor the library is needed to build. Functions that not every driver has
 * may be NULL.
 */
#ifndef MTC_NVML_API_H
#define MTC_NVML_API_H

#include <stdint.h>

/* Results. */
#define MTC_NVML_OK		0
#define MTC_NVML_BAD_ARGUMENT	2 /* of a field or scope that the driver does not know */
#define MTC_NVML_NOT_SUPPORTED	3
#define MTC_NVML_NO_PERMISSION	4
#define MTC_NVML_NOT_FOUND	6
#define MTC_NVML_NO_DRIVER	9

/* Fields of get_field_values(). */
#define MTC_NVML_TOTAL_ENERGY  83u  /* mJ since the driver was loaded */
#define MTC_NVML_POWER_LIMIT   190u /* mW, enforced */
#define MTC_NVML_ENERGY	       191u /* mJ since the driver was loaded */
#define MTC_NVML_POWER_AVERAGE 185u /* mW, over a second */
#define MTC_NVML_POWER_INSTANT 186u /* mW */

/* What a field is of; total energy is of the GPU. */
#define MTC_NVML_SCOPE_GPU    0u
#define MTC_NVML_SCOPE_MODULE 1u /* the board, with a processor on it */
#define MTC_NVML_SCOPE_MEMORY 2u
#define MTC_NVML_N_SCOPES     3u

/* Types of a value. */
#define MTC_NVML_DOUBLE 0u
#define MTC_NVML_U32	1u
#define MTC_NVML_U64	3u

#define MTC_NVML_TOTAL_POWER 0u /* samples of get_samples() */
#define MTC_NVML_CLOCK_SM    1u
#define MTC_NVML_CLOCK_MEM   2u
#define MTC_NVML_MAX_LINKS   18u

struct mtc_nvml_field {
	uint32_t field;
	uint32_t scope;
	int64_t timestamp_us;
	int64_t latency_us;
	uint32_t value_type;
	int32_t result;
	union {
		double f64;
		uint32_t u32;
		uint64_t u64;
	} value;
};

struct mtc_nvml_sample {
	uint64_t timestamp_us; /* CLOCK_REALTIME */
	union {
		double f64;
		uint32_t u32;
		uint64_t u64;
	} value;
};

struct mtc_nvml_gpu; /* the library's */

struct mtc_nvml {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int result);
	int (*driver_version)(char *ret_text, uint32_t n_bytes);
	int (*count)(uint32_t *ret_n);
	int (*handle)(uint32_t index, struct mtc_nvml_gpu **ret_handle);
	int (*uuid)(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes);
	/* From here on: each may be NULL. */
	int (*nvml_version)(char *ret_text, uint32_t n_bytes);
	int (*name)(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes);
	int (*get_field_values)(struct mtc_nvml_gpu *gpu, int n, struct mtc_nvml_field *fields);
	int (*power_usage)(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw);
	int (*total_energy)(struct mtc_nvml_gpu *gpu, unsigned long long *ret_mj);
	int (*enforced_limit)(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw);
	int (*throttle_reasons)(struct mtc_nvml_gpu *gpu, unsigned long long *ret_bits);
	int (*clock)(struct mtc_nvml_gpu *gpu, uint32_t type, uint32_t *ret_mhz);
	int (*temperature)(struct mtc_nvml_gpu *gpu, uint32_t sensor, uint32_t *ret_celsius);
	int (*pcie_generation)(struct mtc_nvml_gpu *gpu, uint32_t *ret_generation);
	int (*pcie_width)(struct mtc_nvml_gpu *gpu, uint32_t *ret_width);
	int (*nvlink_state)(struct mtc_nvml_gpu *gpu, uint32_t link, uint32_t *ret_is_active);
	int (*get_samples)(struct mtc_nvml_gpu *gpu, uint32_t type, unsigned long long last_seen_us,
			   uint32_t *ret_value_type, uint32_t *n,
			   struct mtc_nvml_sample *ret_samples);
};

/*
 * Open the library. 0, or -1 with what is missing in @ret_error, of @error_bytes; then nothing is
 * open. Close with mtc_nvml_close(), which does not shut it down.
 */
int mtc_nvml_open(const char *path, struct mtc_nvml *ret_nvml, char *ret_error, int error_bytes);
void mtc_nvml_close(struct mtc_nvml *nvml);

#endif
