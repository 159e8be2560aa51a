"""ctranslate2, a real inference engine (CUDA runtime 12, its own stream-ordered allocator): arrays to the card and back."""
import json

import ctranslate2
import numpy

count = ctranslate2.get_cuda_device_count()
types = sorted(ctranslate2.get_supported_compute_types("cuda"))
numbers = numpy.arange(1 << 20, dtype=numpy.float32).reshape(1024, 1024)
there = ctranslate2.StorageView.from_array(numbers).to_device(ctranslate2.Device.cuda)
back = numpy.array(there.to_device(ctranslate2.Device.cpu))

held, refusal = [], ""
block = numpy.zeros(128 << 18, dtype=numpy.float32)  # 128 MiB
while not refusal:
    try:
        held.append(ctranslate2.StorageView.from_array(block).to_device(ctranslate2.Device.cuda))
    except RuntimeError as error:
        refusal = str(error).strip()
pieces = len(held)
held.clear()
again = ctranslate2.StorageView.from_array(numbers).to_device(ctranslate2.Device.cuda)
print(json.dumps({
    "answers": {"cards": count, "compute types": types, "there and back": bool((numbers == back).all()),
                "refusal": refusal, "works again": again.device},
    "saw": {"held_mib": pieces * 128},
}))
