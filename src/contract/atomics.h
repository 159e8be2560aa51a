// Atomic access to plain words of a shared mapping, one spelling for both files of the slice
// directory.
//
// Built on compiler builtins because the words are read-only for some readers and std::atomic_ref
// takes no const object in C++20. Everything is sequentially consistent: the ledger's proofs need
// it, and on x86 only stores cost more.
#pragma once

#include <cstdint>

namespace tessera::contract {

template <typename T>
T Load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}

// For figures that may be a moment old: no ordering with anything else.
template <typename T>
T LoadRelaxed(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

template <typename T>
void Store(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
}

template <typename T>
T FetchAdd(T& word, T value) {
  return __atomic_fetch_add(&word, value, __ATOMIC_SEQ_CST);
}

template <typename T>
T FetchSub(T& word, T value) {
  return __atomic_fetch_sub(&word, value, __ATOMIC_SEQ_CST);
}

// On failure `expected` holds what was found.
template <typename T>
bool CompareExchange(T& word, T& expected, T desired) {
  return __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}

template <typename T>
void RaiseTo(T& word, T value) {
  for (T seen = Load(word); seen < value && !CompareExchange(word, seen, value);) {
  }
}

}  // namespace tessera::contract
