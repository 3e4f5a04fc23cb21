/* SPDX-License-Identifier: MIT */
/* Loading of a model file: what is wrong with it is one line that names the file. */
#include "cli/model_load.h"

#include <moetrace/status.h>

#include "cli/cli.h"
#include "kernels/engine/qwen3moe_config.h"
#include "kernels/engine/safetensors.h"

/* What is wrong with a model file is known; that a tensor is missing does not make it absent. */
static int model_create(const char *path, struct mtk_safetensors *file, uint32_t n_context,
			struct mtk_model **ret_model)
{
	struct mtk_tensor_source source = mtk_safetensors_source(file);
	struct mtk_model_config config;
	struct mtk_error error;
	char message[MTK_MESSAGE_BYTES];

	if (mtk_qwen3moe_config_read(file, n_context, &config, &error) < 0) {
		mt_error("%s", error.text);
		return MT_EXIT_FAILED;
	}
	if (mtk_model_create(&config, &source, message, ret_model) < 0) {
		mt_error("%s: %s", path, message);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

int mt_model_load(const char *path, uint32_t n_context, struct mtk_model **ret_model)
{
	struct mtk_safetensors *file;
	struct mtk_error error;
	int status = mtk_safetensors_open(path, &file, &error);

	if (status < 0) {
		mt_error("%s", error.text);
		return status == MOETRACE_E_NOT_FOUND ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
	}
	status = model_create(path, file, n_context, ret_model);
	mtk_safetensors_close(file);
	return status;
}

int mt_model_rule_check(const struct mtk_model *model, const struct mtk_oea *oea)
{
	struct mtk_error error;

	if (!oea || mtk_model_oea_check(model, oea, &error) == MOETRACE_OK)
		return MT_EXIT_OK;
	mt_error("%s", error.text);
	return MT_EXIT_USAGE;
}
