# SPDX-License-Identifier: MIT
#
# The main job from end to end on the example model, and the README's commands.

TESTS += \
	%D%/demo.sh \
	%D%/readme.sh \
	%D%/readme-live.sh

EXTRA_DIST += \
	%D%/demo.sh \
	%D%/readme.sh \
	%D%/readme-live.sh
