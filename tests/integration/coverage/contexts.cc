// Contexts cost card memory that nobody asked for by size: it is measured, charged, and refused
// when it does not fit.
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

using Create = std::function<CUresult(CUcontext* context)>;
using Destroy = std::function<CUresult(CUcontext context)>;

Steps Context(Bench& bench, Create create, Destroy destroy) {
  auto context = std::make_shared<CUcontext>(nullptr);
  Steps steps;
  steps.exceed = [=, &bench] {
    bench.FillLeaving(4 * kMiB);  // less than any context takes
    CUresult result = create(context.get());
    bench.EmptyFill();
    return result;
  };
  steps.take = [=] { return create(context.get()); };
  steps.release = [=] { return destroy(*context); };
  return steps;
}

CUresult PlainCreate(CUcontext* context) { return DRIVER(cuCtxCreate_v2)(context, 0, 0); }
CUresult PlainDestroy(CUcontext context) { return DRIVER(cuCtxDestroy_v2)(context); }

// The row's own context is the primary one, so a second card is not needed: it is released first.
Steps Primary(Bench& bench, std::function<CUresult(CUcontext*)> retain,
              std::function<CUresult()> release) {
  Steps steps = Context(bench, retain, [=](CUcontext) { return release(); });
  return steps;
}

}  // namespace

void RegisterContexts(std::vector<Entry>& entries) {
  for (const char* symbol : {"cuCtxCreate", "cuCtxCreate_v2"}) {
    entries.push_back(
        {symbol, [](Bench& bench, void* function) {
           return Context(
               bench,
               [=](CUcontext* context) { return AS(cuCtxCreate_v2, function)(context, 0, 0); },
               PlainDestroy);
         }});
  }
  entries.push_back({"cuCtxCreate_v3", [](Bench& bench, void* function) {
                       return Context(
                           bench,
                           [=](CUcontext* context) {
                             return AS(cuCtxCreate_v3, function)(context, nullptr, 0, 0, 0);
                           },
                           PlainDestroy);
                     }});
  entries.push_back({"cuCtxCreate_v4", [](Bench& bench, void* function) {
                       return Context(
                           bench,
                           [=](CUcontext* context) {
                             return AS(cuCtxCreate_v4, function)(context, nullptr, 0, 0);
                           },
                           PlainDestroy);
                     }});
  for (const char* symbol : {"cuCtxDestroy", "cuCtxDestroy_v2"}) {
    entries.push_back({symbol, [](Bench& bench, void* function) {
                         return Context(bench, PlainCreate, [=](CUcontext context) {
                           return AS(cuCtxDestroy_v2, function)(context);
                         });
                       }});
  }
  entries.push_back(
      {"cuDevicePrimaryCtxRetain", [](Bench& bench, void* function) {
         return Primary(
             bench,
             [=](CUcontext* context) { return AS(cuDevicePrimaryCtxRetain, function)(context, 0); },
             [] { return DRIVER(cuDevicePrimaryCtxRelease_v2)(0); });
       }});
  auto retain = [](CUcontext* context) { return DRIVER(cuDevicePrimaryCtxRetain)(context, 0); };
  for (const char* symbol : {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
                             "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"}) {
    entries.push_back({symbol, [retain](Bench& bench, void* function) {
                         return Primary(bench, retain, [=] {
                           return AS(cuDevicePrimaryCtxReset_v2, function)(0);
                         });
                       }});
  }
}

}  // namespace tessera::testing
