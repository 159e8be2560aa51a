/* Picks the assembler macros of this machine for entry_table.S and thunks.S. */
#if defined(__x86_64__)
#include "entry/arch/x86_64.h"
#else
#error "entry/arch has no macros for this machine: add MACHINE.h beside x86_64.h"
#endif
