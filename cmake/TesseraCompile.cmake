# Warnings, sanitizers and ccache for every target of this project; helpers for libraries and their tests.
option(TESSERA_ASAN "Address and undefined-behaviour sanitizers" OFF)
option(TESSERA_TSAN "Thread sanitizer" OFF)
option(TESSERA_FUZZ "libFuzzer programs (clang only); builds nothing else by default" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # GCC 12 sees overlaps in "text" + std::string that are none (its bug 105651)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Werror)  # one compiler decides; clang builds (tidy, fuzz) only warn
endif()

set(TESSERA_SANITIZE "")
if(TESSERA_ASAN)
  set(TESSERA_SANITIZE -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
elseif(TESSERA_TSAN)
  set(TESSERA_SANITIZE -fsanitize=thread)
elseif(TESSERA_FUZZ)
  set(TESSERA_SANITIZE -fsanitize=address,undefined,fuzzer-no-link -fno-omit-frame-pointer
      -fno-sanitize-recover=undefined)
endif()
# The fence and the simulated driver live in other people's processes and are never instrumented as libraries;
# their code is compiled a second time, instrumented, into their unit tests.
function(tessera_sanitize target)
  target_compile_options(${target} PRIVATE ${TESSERA_SANITIZE})
  target_link_options(${target} PRIVATE ${TESSERA_SANITIZE})
endfunction()

# `unit_tests` builds what the sanitizer presets run (ctest -L unit), `fuzzers` every fuzzer.
add_custom_target(unit_tests)
add_custom_target(fuzzers)

# tessera_test(NAME SOURCES a.cc ... LIBS x ... [LABELS l ...]): a GoogleTest program, one ctest entry per test.
find_package(GTest REQUIRED)
include(GoogleTest)
function(tessera_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gtest_main GTest::gmock)
  tessera_sanitize(${name})
  add_dependencies(unit_tests ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS unit)
  if(T_LABELS)
    # gtest_discover_tests flattens lists, so that a second label is lost: set them where ctest reads its tests.
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake
      "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"unit;${T_LABELS}\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  endif()
endfunction()

# tessera_fuzz(NAME SOURCES x_fuzz.cc ... LIBS y ... [SEEDS folder]): a libFuzzer program; nothing without TESSERA_FUZZ.
# SOURCES that hold the code under test are compiled instrumented, as in tests. `make fuzz` and `make test` find it
# in fuzzers.txt.
file(WRITE ${PROJECT_BINARY_DIR}/fuzzers.txt "")
function(tessera_fuzz name)
  if(NOT TESSERA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(F "" "SEEDS" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${F_SOURCES})
  target_link_libraries(${name} PRIVATE ${F_LIBS})
  tessera_sanitize(${name})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  set(seeds -)
  if(F_SEEDS)
    get_filename_component(seeds ${F_SEEDS} ABSOLUTE)
  endif()
  file(APPEND ${PROJECT_BINARY_DIR}/fuzzers.txt "${name}|${CMAKE_CURRENT_BINARY_DIR}/${name}|${seeds}\n")
endfunction()
