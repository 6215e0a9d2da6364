#include "npuc/npuc.h"

const char *npuc_version(void) { return NPUC_VERSION; }

int npuc_abi_version(void) { return NPUC_ABI_VERSION; }
