/* The exported dlsym and dlvsym, under the versions of libc that programs ask for (see gen_entry.py, write_exports). */
#include "entry/arch/macros.h"

  .text
  DLSYM_THUNK tessera_dlsym, tessera_dlsym_hook, tessera_next_dlsym, DLSYM_CALLER
  DLSYM_THUNK tessera_dlvsym, tessera_dlvsym_hook, tessera_next_dlvsym, DLVSYM_CALLER
  NEXT_POINTER tessera_next_dlsym, tessera_find_next_dlsym
  NEXT_POINTER tessera_next_dlvsym, tessera_find_next_dlvsym

/* A unit test keeps libc's own dlsym: a sanitizer calls it before anything else is ready. */
#if defined(__x86_64__) && !defined(TESSERA_FENCE_CORE)
  .symver tessera_dlsym, dlsym@GLIBC_2.2.5
  .symver tessera_dlvsym, dlvsym@GLIBC_2.2.5
  .set tessera_dlsym_234, tessera_dlsym
  .set tessera_dlvsym_234, tessera_dlvsym
  .globl tessera_dlsym_234
  .globl tessera_dlvsym_234
  .type tessera_dlsym_234, @function
  .type tessera_dlvsym_234, @function
  .symver tessera_dlsym_234, dlsym@GLIBC_2.34
  .symver tessera_dlvsym_234, dlvsym@GLIBC_2.34
#endif

  .section .note.GNU-stack, "", %progbits
