/* SPDX-License-Identifier: MIT */
/*
 * The options, and the choice. With auto, whatever keeps a model from a GPU is a reason for the CPU,
 * and is told; when a GPU was asked for it is an error.
 */
#include "cli/device_args.h"

#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

#ifdef MT_HAS_CUDA_ENGINE
#include "kernels/engine/cuda_backend.h"
#endif

error_t mt_device_parse(struct mt_args *args, const char *text, struct mt_device *device)
{
	static const char *const names[] = {"cpu", "cuda", "auto"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i]) == 0) {
			device->kind = (enum mt_device_kind)i;
			device->is_given = true;
			return 0;
		}
	return mt_args_error(args, "--device '%s': expected cpu, cuda or auto", text);
}

error_t mt_precision_parse(struct mt_args *args, const char *text, struct mt_device *device)
{
	if (strcmp(text, "fp32") != 0 && strcmp(text, "16bit") != 0)
		return mt_args_error(args, "--precision '%s': expected fp32 or 16bit", text);
	device->is_16bit = text[0] == '1';
	return 0;
}

/* The first option that is of a GPU; NULL: there is none. */
static const char *gpu_option(const struct mt_device *device)
{
	return device->is_16bit ? "--precision 16bit" : device->without_graphs ? "--no-graph" : NULL;
}

error_t mt_device_complete(struct mt_args *args, const struct mt_device *device)
{
	if (device->kind == MT_DEVICE_CPU && gpu_option(device))
		return mt_args_error(args, "%s is of a GPU: give --device cuda or auto, or leave it",
				     gpu_option(device));
	if (device->kind == MT_DEVICE_CUDA && device->has_threads)
		return mt_args_error(args, "--threads is of the CPU: leave it with --device cuda");
	return 0;
}

#ifdef MT_HAS_CUDA_ENGINE
static int backend_create(struct mt_device *device, const struct mtk_model *model,
			  struct mtk_error *error)
{
	const struct mtk_cuda_backend_settings settings = {
		.precision = device->is_16bit ? MTK_CUDA_16BIT : MTK_CUDA_FP32,
		.without_graphs = device->without_graphs,
	};
	int status = mtk_backend_cuda_create(model, &settings, error, &device->backend);

	if (status == MOETRACE_OK)
		snprintf(device->text, sizeof(device->text), "cuda, %s",
			 mtk_backend_cuda_description(device->backend));
	return status;
}
#else
static int backend_create(struct mt_device *device, const struct mtk_model *model,
			  struct mtk_error *error)
{
	(void)device;
	(void)model;
	return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
			     "cuda: this build has no code for GPUs: nvcc was not found when it was "
			     "configured");
}
#endif

int mt_device_open(struct mt_device *device, const struct mtk_model *model)
{
	struct mtk_error error;

	snprintf(device->text, sizeof(device->text), "cpu");
	if (device->kind == MT_DEVICE_CPU || backend_create(device, model, &error) == MOETRACE_OK)
		return MT_EXIT_OK;
	if (device->kind == MT_DEVICE_CUDA) {
		mt_error("%s; give --device cpu", error.text);
		return MT_EXIT_FAILED;
	}
	snprintf(device->text, sizeof(device->text), "cpu (%s)", error.text);
	if (gpu_option(device))
		mt_note("%s has no effect: the CPU computes", gpu_option(device));
	return MT_EXIT_OK;
}

void mt_device_close(struct mt_device *device)
{
#ifdef MT_HAS_CUDA_ENGINE
	mtk_backend_cuda_destroy(device->backend);
#endif
	device->backend = NULL;
}
