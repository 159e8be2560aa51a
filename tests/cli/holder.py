"""Holds card memory through libcuda.so.1 until stdin closes: holder.py MIB. Prints what became of it, one line."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result == 2:
        print("out of memory", flush=True)
        sys.exit(3)
    if result != 0:
        print(f"{name}: {result}", flush=True)
        sys.exit(4)


call("cuInit", 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
address = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(int(sys.argv[1]) << 20))
print("holding", flush=True)
sys.stdin.read()
