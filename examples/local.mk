# SPDX-License-Identifier: MIT
#
# The example model and its workload travel with the sources.
