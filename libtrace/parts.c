/* SPDX-License-Identifier: MIT */
/*
 * Invariant: a part that waits has a row without a parent; its parent's row comes later, and
 * with it the key. What waits at the end of a recording never had a parent.
 */
#include "libtrace/parts.h"

#include <string.h>

/* Has it nothing of its own, so that others can be its parts? */
static int may_be_parent(const struct mt_assembly *assembly, const struct mt_open_pass *pass)
{
	return pass->begin.recording_id == assembly->recording_id && !pass->begin.parent &&
	       !pass->begin.n_rows && !pass->begin.n_slices && !pass->so_far.layers;
}

/* The key of a parent that closed, even if its ring has another pass since; 0: unknown. */
static int64_t closed_parent(const struct mt_assembly *assembly, uint64_t number)
{
	for (uint32_t i = 0; i < MT_MAX_RINGS; i++)
		if (assembly->closed_parents[i].parent == number)
			return assembly->closed_parents[i].pass_id;
	return 0;
}

/* The parent's key if it has closed; if it has not, its part waits. */
int64_t mt_parts_parent(struct mt_assembly *assembly, const struct mt_open_pass *pass)
{
	uint64_t number = pass->begin.parent;
	const struct mt_open_pass *parent;
	int64_t closed;

	if (!number)
		return MT_NULL;
	closed = pass->parent_pass_id ? pass->parent_pass_id : closed_parent(assembly, number);
	if (closed)
		return closed;
	parent = &assembly->passes[(number - 1) % MT_MAX_RINGS];
	if (number == parent->begin.number && parent->pass_id && may_be_parent(assembly, parent))
		return parent->pass_id;
	/* A look at the rings may show a part before its parent. */
	if ((number == parent->begin.number ? parent->is_open : number > parent->begin.number) &&
	    parent != pass && assembly->n_orphans < MT_MAX_ORPHANS)
		assembly->orphans[assembly->n_orphans++] =
			(struct mt_orphan){ number, assembly->last_pass_id };
	else
		mt_misuse(assembly->session, MT_MISUSE_PARENT);
	return MT_NULL;
}

/*
 * Parts may run on long after their parent has closed and its ring was taken by another pass:
 * those that are open learn the key now, those whose BEGIN is still in a ring find it later.
 */
static void tell_parts(struct mt_assembly *assembly, const struct mt_open_pass *parent)
{
	assembly->closed_parents[assembly->n_closed_parents++ % MT_MAX_RINGS] =
		(struct mt_orphan){ parent->begin.number, parent->pass_id };
	for (uint32_t i = 0; i < MT_N_RINGS; i++)
		if (assembly->passes[i].is_open &&
		    assembly->passes[i].begin.parent == parent->begin.number)
			assembly->passes[i].parent_pass_id = parent->pass_id;
}

/* The pass has closed: the parts that waited for it. */
int mt_parts_adopt(struct mt_assembly *assembly, const struct mt_open_pass *pass)
{
	uint32_t n_left = 0;
	int status = MOETRACE_OK;

	if (pass->pass_id && may_be_parent(assembly, pass))
		tell_parts(assembly, pass);
	for (uint32_t i = 0; i < assembly->n_orphans; i++) {
		const struct mt_orphan orphan = assembly->orphans[i];

		if (orphan.parent != pass->begin.number)
			assembly->orphans[n_left++] = orphan;
		else if (!may_be_parent(assembly, pass))
			mt_misuse(assembly->session, MT_MISUSE_PARENT);
		else if (!status)
			status = mt_store_pass_parent(assembly->store, orphan.pass_id,
						      pass->pass_id);
	}
	assembly->n_orphans = n_left;
	return status;
}

void mt_parts_forget(struct mt_assembly *assembly)
{
	for (; assembly->n_orphans > 0; assembly->n_orphans--)
		mt_misuse(assembly->session, MT_MISUSE_PARENT);
	memset(assembly->closed_parents, 0, sizeof(assembly->closed_parents));
}
