"""nvidia-ml-py: what NVML shows here. nvml_check.py [PID]: is that process in the list?"""
import json
import sys

import pynvml

MIB = 1 << 20


def tried(call, *arguments):
    try:
        answer = call(*arguments)
        return answer.decode() if isinstance(answer, bytes) else answer
    except pynvml.NVMLError as error:
        return type(error).__name__


pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(card)
memory2 = tried(pynvml.nvmlDeviceGetMemoryInfo, card, pynvml.nvmlMemory_v2)
processes = tried(pynvml.nvmlDeviceGetComputeRunningProcesses, card)
bar1 = tried(pynvml.nvmlDeviceGetBAR1MemoryInfo, card)
utilization = tried(pynvml.nvmlDeviceGetUtilizationRates, card)
uuid = tried(pynvml.nvmlDeviceGetUUID, card)
print(json.dumps({
    "answers": {
        "name": tried(pynvml.nvmlDeviceGetName, card),
        "uuid": uuid,
        "by uuid": tried(lambda: pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid))),
        "driver": tried(pynvml.nvmlSystemGetDriverVersion),
        "cuda": tried(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        "compute capability": tried(pynvml.nvmlDeviceGetCudaComputeCapability, card),
        "utilisation is a percentage": isinstance(utilization, str) or 0 <= utilization.gpu <= 100,
        "sums agree": memory.used + memory.free <= memory.total,
    },
    "saw": {
        "cards": pynvml.nvmlDeviceGetCount(),
        "total_mib": memory.total / MIB,
        "used_mib": memory.used / MIB,
        "total_v2_mib": memory2 if isinstance(memory2, str) else memory2.total / MIB,
        "bar1_mib": bar1 if isinstance(bar1, str) else bar1.bar1Total / MIB,
        "pids": processes if isinstance(processes, str) else [p.pid for p in processes],
    },
}))
