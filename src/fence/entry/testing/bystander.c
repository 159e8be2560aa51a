/* A program that has nothing to do with a GPU: it looks names up, forks, and says what it saw. Built for glibc, for musl and
 * static; the output must not change by the fence. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef STATIC
#include <dlfcn.h>
#endif

int main(void) {
  printf("hello\n");
#ifndef STATIC
  static const char* names[] = {
#ifdef __GLIBC__ /* musl's dlsym is left alone, so that it finds the exported names */
      "cuInit", "nvmlInit_v2",
#endif
      "curl_easy_init", "cublasCreate_v2", "cudaMalloc", "cu", "nv", ""};
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    printf("%s %s\n", names[i], dlsym(RTLD_DEFAULT, names[i]) == NULL ? "no" : "yes");
  }
  printf("malloc %s\n", dlsym(RTLD_DEFAULT, "malloc") == NULL ? "no" : "yes");
#endif
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(7);
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  return 0;
}
