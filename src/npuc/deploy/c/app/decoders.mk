# JPEG and PNG files are read where libjpeg and libpng are there; JPEG=no and PNG=no leave them out.
HASH := \#
finds = $(shell printf '$(HASH)include <stdio.h>\n$(HASH)include <$(1)>\nint main(void) { return 0; }\n' | \
	$(CC) -x c -o /dev/null - $(2) 2>/dev/null && echo yes || echo no)
JPEG ?= $(call finds,jpeglib.h,-ljpeg)
PNG ?= $(call finds,png.h,-lpng)
ifeq ($(strip $(JPEG)),yes)
FLAGS += -DHAVE_JPEG
DECODERS += -ljpeg
endif
ifeq ($(strip $(PNG)),yes)
FLAGS += -DHAVE_PNG
DECODERS += -lpng
endif
