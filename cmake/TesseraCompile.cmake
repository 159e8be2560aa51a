# Warnings, sanitizers and ccache for every target of this project; helpers for libraries and their tests.
option(TESSERA_ASAN "Address and undefined-behaviour sanitizers" OFF)
option(TESSERA_TSAN "Thread sanitizer" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers)

set(TESSERA_SANITIZE "")
if(TESSERA_ASAN)
  set(TESSERA_SANITIZE -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
elseif(TESSERA_TSAN)
  set(TESSERA_SANITIZE -fsanitize=thread)
endif()
# The fence and the simulated driver live in other people's processes and are never instrumented as libraries;
# their code is compiled a second time, instrumented, into their unit tests.
function(tessera_sanitize target)
  target_compile_options(${target} PRIVATE ${TESSERA_SANITIZE})
  target_link_options(${target} PRIVATE ${TESSERA_SANITIZE})
endfunction()

# tessera_test(NAME SOURCES a.cc ... LIBS x ... [LABELS l ...]): a GoogleTest program, one ctest entry per test.
find_package(GTest REQUIRED)
include(GoogleTest)
function(tessera_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gtest_main GTest::gmock)
  tessera_sanitize(${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()
