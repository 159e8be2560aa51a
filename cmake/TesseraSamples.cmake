# tessera_cuda_object(NAME SOURCE file.cu OPTIONS ...): compiled by the pinned nvcc, through the compiler cache if there is one.
# tessera_cuda_sample(NAME OBJECTS name ... OPTIONS ...): a program linked from such objects. Built with `all`. Programs that differ only in
# how they are linked share their objects: device code takes seconds to compile.
# An architecture list that every preset card accepts: PTX for 7.5 and code for 8.0.
set(TESSERA_NVCC ${TESSERA_CUDA_ROOT}/bin/nvcc)
set(TESSERA_CUDA_ARCHITECTURES -gencode arch=compute_75,code=compute_75 -gencode arch=compute_80,code=sm_80)

function(tessera_cuda_object name)
  cmake_parse_arguments(S "" "SOURCE" "OPTIONS" ${ARGN})
  cmake_path(ABSOLUTE_PATH S_SOURCE)
  add_custom_command(
    OUTPUT ${TESSERA_SAMPLES_DIR}/${name}.o
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${TESSERA_NVCC} -std=c++17 -O1 -ccbin ${CMAKE_CXX_COMPILER} ${S_OPTIONS} -c ${S_SOURCE}
            -o ${TESSERA_SAMPLES_DIR}/${name}.o
    DEPENDS ${S_SOURCE} ${CMAKE_CURRENT_SOURCE_DIR}/samples/host_kernels.h
    COMMENT "nvcc ${name}.o"
    VERBATIM)
endfunction()

function(tessera_cuda_sample name)
  cmake_parse_arguments(S "" "" "OBJECTS;OPTIONS" ${ARGN})
  set(program ${TESSERA_SAMPLES_DIR}/${name})
  list(TRANSFORM S_OBJECTS PREPEND ${TESSERA_SAMPLES_DIR}/)
  list(TRANSFORM S_OBJECTS APPEND .o)
  add_custom_command(
    OUTPUT ${program}
    COMMAND ${TESSERA_NVCC} -ccbin ${CMAKE_CXX_COMPILER} ${S_OPTIONS} ${S_OBJECTS} -o ${program} -Xlinker --export-dynamic
            -ldl -lpthread
    DEPENDS ${S_OBJECTS}
    COMMENT "nvcc ${name}"
    VERBATIM)
  add_custom_target(sample_${name} ALL DEPENDS ${program})
endfunction()
