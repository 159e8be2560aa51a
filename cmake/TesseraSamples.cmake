# tessera_cuda_sample(NAME SOURCE file.cu OPTIONS ...): one program compiled by the pinned nvcc. Built with `all`.
# An architecture list that every preset card accepts: PTX for 7.5 and code for 8.0.
set(TESSERA_NVCC ${TESSERA_CUDA_ROOT}/bin/nvcc)
set(TESSERA_CUDA_ARCHITECTURES -gencode arch=compute_75,code=compute_75 -gencode arch=compute_80,code=sm_80)

function(tessera_cuda_sample name)
  cmake_parse_arguments(S "" "SOURCE" "OPTIONS" ${ARGN})
  cmake_path(ABSOLUTE_PATH S_SOURCE)
  set(program ${TESSERA_SAMPLES_DIR}/${name})
  add_custom_command(
    OUTPUT ${program}
    COMMAND ${TESSERA_NVCC} -std=c++17 -O1 -ccbin ${CMAKE_CXX_COMPILER} ${S_OPTIONS} ${S_SOURCE} -o ${program}
            -Xlinker --export-dynamic -ldl -lpthread
    DEPENDS ${S_SOURCE} ${CMAKE_CURRENT_SOURCE_DIR}/samples/host_kernels.h
    COMMENT "nvcc ${name}"
    VERBATIM)
  add_custom_target(sample_${name} ALL DEPENDS ${program})
endfunction()
