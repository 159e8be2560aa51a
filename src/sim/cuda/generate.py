#!/usr/bin/env python3
"""Writes the entry points of the simulated libcuda.so.1 from the toolkit's own headers.

Usage: generate.py --cc CC --include DIR --out DIR

Reads cuda.h (declarations of every ABI version and both stream forms), cudaTypedefs.h and cudaProfilerTypedefs.h (the
version in which each ABI appeared) and writes into --out:
  impl.h        `impl_NAME` for every driver function, typed by the header's own declaration
  entry.cc      one exported NAME each, and the weak `impl_NAME` that answers when nobody implements it
  proc_table.cc the map behind cuGetProcAddress: (base name, version, stream form) -> entry point
  error_names.cc names of CUresult
  exports.map   linker version script: exactly the header's names

A weak `impl_NAME_ptsz`/`_ptds` runs `impl_NAME` with the per-thread default stream in the place of stream 0.
Ends with an error when a declaration cannot be parsed or a name has no place in the map: a newer header needs a decision.
"""

import argparse
import pathlib
import re
import subprocess
import sys

# Callable before cuInit. Everything else says NOT_INITIALIZED until then.
BEFORE_INIT = {
    'cuInit', 'cuDriverGetVersion', 'cuGetErrorString', 'cuGetErrorName', 'cuGetProcAddress',
    'cuGetProcAddress_v2', 'cuGetExportTable',
}
# Defined in cudaProfiler.h, which the toolkit's wheels leave out; their types are in cudaProfilerTypedefs.h.
PROFILER = {
    'cuProfilerInitialize': 'const char *configFile, const char *outputFile, CUoutput_mode outputMode',
    'cuProfilerStart': 'void',
    'cuProfilerStop': 'void',
}
# Inline in the header, never exported.
INLINE = {'cuGetProcAddress_v2_ptsz'}
HASH_SLOTS = 2048  # = kProcSlotCount


def fail(message):
    sys.exit('generate.py: ' + message)


def preprocess(cc, include):
    out = subprocess.run(
        [cc, '-E', '-P', '-x', 'c', '-D__CUDA_API_VERSION_INTERNAL', str(include / 'cuda.h')],
        check=True, capture_output=True, text=True).stdout
    return re.sub(r'\s+', ' ', out)


def split_parameters(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in '([' 
        depth -= c in ')]'
        if c == ',' and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts]


def parse_parameter(text, function):
    """Returns (name, is_stream) of one parameter."""
    m = re.fullmatch(r'(.*?)\b([A-Za-z_]\w*)\s*(\[\w*\])?', text)
    if not m or not m.group(1).strip():
        fail(f'{function}: cannot find the name of parameter "{text}"')
    return m.group(2), m.group(1).strip() == 'CUstream'


def declarations(text):
    """name -> list of (text, name, is_stream) in header order."""
    found = {}
    for m in re.finditer(r'CUresult (cu[A-Z]\w*) ?\(([^;{}]*)\) ?;', text):
        name, parameters = m.group(1), m.group(2).strip()
        if name in INLINE or name in found:
            continue
        found[name] = parameters
    mentioned = set(re.findall(r'CUresult (cu[A-Z]\w*) ?\(', text)) - INLINE
    missing = mentioned - found.keys()
    if missing:
        fail('cannot parse the declaration of ' + ', '.join(sorted(missing)))
    found.update(PROFILER)
    parsed = {}
    for name, parameters in found.items():
        if parameters in ('void', ''):
            parsed[name] = []
        else:
            parsed[name] = [(p, *parse_parameter(p, name)) for p in split_parameters(parameters)]
    return parsed


def split_name(symbol):
    """cuX_v2_ptsz -> (cuX, 2, True)."""
    m = re.fullmatch(r'(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?', symbol)
    return m.group(1), int(m.group(2) or 1), bool(m.group(3))


def typedef_versions(include):
    """base -> {False: [versions], True: [versions]} for plain and per-thread forms."""
    versions = {}
    for header in ('cudaTypedefs.h', 'cudaProfilerTypedefs.h'):
        text = (include / header).read_text()
        for base, version, form in re.findall(r'\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)', text):
            versions.setdefault(base, {False: set(), True: set()})[bool(form)].add(int(version))
    return versions


def proc_map(symbols, versions):
    """base -> sorted list of (version, per_thread, symbol)."""
    grouped = {}
    for symbol in symbols:
        base, abi, per_thread = split_name(symbol)
        grouped.setdefault(base, {False: [], True: []})[per_thread].append((abi, symbol))
    extra = versions.keys() - grouped.keys()
    if extra:
        fail('typedefs without a declaration: ' + ', '.join(sorted(extra)))
    result = {}
    for base, forms in grouped.items():
        if base not in versions:
            fail(f'{base}: no PFN typedef says in which version it appeared')
        rows = []
        for per_thread in (False, True):
            abis, known = sorted(forms[per_thread]), sorted(versions[base][per_thread])
            if len(abis) != len(known):
                fail(f'{base}: {len(abis)} symbols but {len(known)} versions'
                     f' ({"per-thread" if per_thread else "plain"} form): {abis} {known}')
            rows += [(v, per_thread, s) for v, (_, s) in zip(known, abis)]
        result[base] = sorted(rows)
    return result


def fnv1a(text):
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def write_impl_header(out, functions):
    lines = ['// Generated by generate.py from the toolkit headers.', '#pragma once', '#include "sim/cuda/cuda_abi.h"', '',
             'extern "C" {', '#pragma GCC visibility push(hidden)']
    lines += [f'decltype({n}) impl_{n};' for n in functions]
    lines += ['#pragma GCC visibility pop', '}', '']
    (out / 'impl.h').write_text('\n'.join(lines))


def write_entries(out, functions):
    lines = ['// Generated by generate.py from the toolkit headers.', '#include "sim/cuda/gate.h"', '#include "impl.h"', '',
             'using tessera::sim::Faulty;', 'using tessera::sim::Held;', 'using tessera::sim::PassGate;', '',
             'extern "C" {', '']
    for name, parameters in functions.items():
        declared = ', '.join(p[0] for p in parameters)
        arguments = ', '.join(p[1] for p in parameters)
        unused = ', '.join(re.sub(r'\b%s\b(?=\s*(\[\w*\])?$)' % re.escape(p[1]), '', p[0]) for p in parameters)
        base, _, per_thread = split_name(name)
        plain = re.sub(r'_pt[sd][sz]$', '', name)
        if per_thread and plain in functions:
            if any(p[2] for p in parameters):
                mapped = ', '.join(f'tessera::sim::PerThread({p[1]})' if p[2] else p[1] for p in parameters)
                body = f'return impl_{plain}({mapped});'
            else:
                body = f'tessera::sim::PerThreadDefaultStream scope; return impl_{plain}({arguments});'
            weak_declared = declared
        elif per_thread:
            fail(f'{name}: no plain form to fall back to')
        else:
            body = 'return CUDA_ERROR_NOT_SUPPORTED;'
            weak_declared = unused
        lines.append(f'__attribute__((weak)) CUresult impl_{name}({weak_declared}) {{ {body} }}')
        before = name in BEFORE_INIT
        lines.append(
            f'__attribute__((visibility("default"))) CUresult {name}({declared}) {{\n'
            f'  if ({"Faulty" if before else "Held"}())\n'
            f'    if (CUresult refused = PassGate("{name}", {"true" if before else "false"})) return refused;\n'
            f'  return impl_{name}({arguments});\n}}\n')
    lines.append('}')
    (out / 'entry.cc').write_text('\n'.join(lines) + '\n')


def write_proc_table(out, table):
    rows, bases = [], []
    for base in sorted(table):
        bases.append((base, len(rows), len(table[base])))
        rows += table[base]
    slots = [-1] * HASH_SLOTS
    for i, (base, _, _) in enumerate(bases):
        slot = fnv1a(base) % HASH_SLOTS
        while slots[slot] >= 0:
            slot = (slot + 1) % HASH_SLOTS
        slots[slot] = i
    lines = ['// Generated by generate.py from the toolkit headers.', '#include "sim/cuda/proc_table.h"', '#include "sim/cuda/cuda_abi.h"', '',
             'namespace tessera::sim {', '', 'const ProcVersion kProcVersions[] = {']
    lines += [f'    {{{v}, {"true" if p else "false"}, reinterpret_cast<void*>(&::{s})}},' for v, p, s in rows]
    lines += ['};', '', 'const ProcName kProcNames[] = {']
    lines += [f'    {{"{b}", {first}, {count}}},' for b, first, count in bases]
    lines += ['};', f'const int kProcNameCount = {len(bases)};', '', 'const short kProcSlots[kProcSlotCount] = {']
    lines += ['    ' + ', '.join(map(str, slots[i:i + 32])) + ',' for i in range(0, HASH_SLOTS, 32)]
    lines += ['};', '', '}  // namespace tessera::sim', '']
    (out / 'proc_table.cc').write_text('\n'.join(lines))


def write_error_names(out, header):
    enum = re.search(r'typedef enum cudaError_enum \{(.*?)\} CUresult;', header).group(1)
    rows = re.findall(r'(CUDA_\w+) = (\d+)', enum)
    if not rows:
        fail('no CUresult values found')
    lines = ['// Generated by generate.py from the toolkit headers.', '#include "sim/cuda/error_names.h"', '',
             'const char* tessera::sim::ErrorName(int result) {', '  switch (result) {']
    lines += [f'    case {value}: return "{name}";' for name, value in rows]
    lines += ['    default: return nullptr;', '  }', '}', '']
    (out / 'error_names.cc').write_text('\n'.join(lines))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument('--cc', required=True)
    arguments.add_argument('--include', required=True, type=pathlib.Path)
    arguments.add_argument('--out', required=True, type=pathlib.Path)
    options = arguments.parse_args()
    header = preprocess(options.cc, options.include)
    functions = declarations(header)
    table = proc_map(functions, typedef_versions(options.include))
    options.out.mkdir(parents=True, exist_ok=True)
    write_impl_header(options.out, functions)
    write_entries(options.out, functions)
    write_proc_table(options.out, table)
    write_error_names(options.out, header)
    names = ''.join(f'    {n};\n' for n in functions)
    # A version of its own makes the functions reachable by dlvsym too, which tests need; lookups without a version find them all the same.
    (options.out / 'exports.map').write_text('SIMCUDA_1 {\n  global:\n' + names + '  local: *;\n};\n')
    (options.out / 'exports.txt').write_text(''.join(f'{n}\n' for n in sorted(functions)))


if __name__ == '__main__':
    main()
