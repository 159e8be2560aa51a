/* x86-64 macros. What they promise, for another machine to repeat:
 *
 *   REAL name, i       the pointer real::name and the code that it points to at first: keeps every argument register, calls
 *                      tessera_resolve(i, &real::name), jumps to what that returns. Each in a section of its own, so that
 *                      the linker drops those that nobody calls: a pointer costs every process a relocation at its start.
 *   LAUNCH_THUNK name  the exported function: load the gate's pointer, compare the word with 0, jump to real::name; where it
 *                      is not 0, jump to tessera_held_NAME (compute/launch.cc) with every argument kept.
 *   WRAPPER name       32-bit distance from tessera_wrappers to the exported function; NO_WRAPPER is 0.
 *
 *   DLSYM_CALLER       the register that carries the return address to the hook, after the arguments of dlsym; DLVSYM_CALLER.
 *
 * Argument registers of the driver's functions: six integer ones, and xmm0 for cuParamSetf.
 */
#define DLSYM_CALLER %rdx
#define DLVSYM_CALLER %rcx

.macro SAVE_ARGUMENTS
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $16, %rsp
  movsd %xmm0, (%rsp)
.endm

.macro RESTORE_ARGUMENTS
  movsd (%rsp), %xmm0
  addq $16, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
.endm

.macro FUNCTION_BEGIN name
  .p2align 4
  .globl \name
  .type \name, @function
\name:
.endm

.macro FUNCTION_END name
  .size \name, . - \name
.endm

.macro TABLE_BEGIN
  .text
  .p2align 4
  .type tessera_resolve_and_jump, @function
tessera_resolve_and_jump:            /* on the stack: index, return address of the caller; in r11: address of the pointer */
  SAVE_ARGUMENTS
  movl 64(%rsp), %edi
  movq %r11, %rsi
  call tessera_resolve
  movq %rax, %r11
  RESTORE_ARGUMENTS
  addq $8, %rsp
  jmp *%r11
  .size tessera_resolve_and_jump, . - tessera_resolve_and_jump
.endm

.macro REAL name, index
  .section .text.tessera_resolver.\name, "ax", @progbits
tessera_resolver_\name:
  leaq tessera_real_\name(%rip), %r11
  pushq $\index
  jmp tessera_resolve_and_jump
  .section .data.tessera_real.\name, "aw", @progbits
  .p2align 3
  .globl tessera_real_\name
  .hidden tessera_real_\name
tessera_real_\name:
  .quad tessera_resolver_\name
.endm

.macro TABLE_END
  .text
.endm

.macro LAUNCH_THUNK name
  FUNCTION_BEGIN \name
  movq tessera_gate_word(%rip), %rax
  cmpl $0, (%rax)
  jne 1f
  jmp *tessera_real_\name(%rip)
1:
  jmp tessera_held_\name
  FUNCTION_END \name
.endm

.macro WRAPPERS_BEGIN
  .section .rodata
  .p2align 2
  .globl tessera_wrappers
  .hidden tessera_wrappers
tessera_wrappers:
.endm

.macro WRAPPER name
  .long \name - tessera_wrappers
.endm

.macro NO_WRAPPER
  .long 0
.endm

.macro WRAPPERS_END
  .section .note.GNU-stack, "", @progbits
.endm

/* dlsym and dlvsym. `hook` is called with the program's arguments and its return address as one more argument; it returns
 * the result in rax and, in rdx, 0 to ask for a jump to the next dlsym with nothing changed: so the real one sees the true
 * caller, which RTLD_NEXT, RTLD_DEFAULT and namespaces depend on. Names that cannot be ours never reach the hook. */
.macro DLSYM_THUNK name, hook, next, caller_register
  FUNCTION_BEGIN \name
  testq %rsi, %rsi
  je 2f
  cmpb $'c', (%rsi)
  jne 1f
  cmpb $'u', 1(%rsi)
  jne 2f
  jmp 3f
1:
  cmpb $'n', (%rsi)
  jne 2f
  cmpb $'v', 1(%rsi)
  jne 2f
3:
  pushq %rdi
  pushq %rsi
  pushq %rdx
  movq 24(%rsp), \caller_register
  call \hook
  movq %rdx, %r11
  popq %rdx
  popq %rsi
  popq %rdi
  testq %r11, %r11
  je 2f
  ret
2:
  jmp *\next(%rip)
  FUNCTION_END \name
.endm

/* The first jump through a `next` pointer: finds the real function, then goes on to it. */
.macro NEXT_POINTER next, finder
  .text
  .p2align 4
  .globl \next\()_first
  .hidden \next\()_first
  .type \next\()_first, @function
\next\()_first:
  SAVE_ARGUMENTS
  subq $8, %rsp
  call \finder
  addq $8, %rsp
  movq %rax, %r11
  RESTORE_ARGUMENTS
  jmp *%r11
  .data
  .p2align 3
  .globl \next
  .hidden \next
\next:
  .quad \next\()_first
  .text
.endm
