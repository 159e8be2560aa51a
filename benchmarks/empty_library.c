// Nothing: preloaded where the fence would be, it shows what the fence itself adds.
int tessera_bench_nothing(void) { return 0; }
