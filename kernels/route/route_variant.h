/* SPDX-License-Identifier: MIT */
/* The sizes that the grouped vector path is made for. */
#ifndef MTK_ROUTE_ROUTE_VARIANT_H
#define MTK_ROUTE_ROUTE_VARIANT_H

#define MTK_ROUTE_GROUPED_SIZE	 32 /* experts a group: two vectors */
#define MTK_ROUTE_GROUPED_GROUPS 16 /* group scores: one vector */

#endif
