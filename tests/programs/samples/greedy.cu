// A program that wants all memory there is, one step at a time, and tells what it sees.
//
//   greedy STEP_MIB
//
// Reads one command per line from stdin and answers with one line:
//   info        total and free in MiB, by cudaMemGetInfo
//   take        takes one step more: "took HELD" or "refused HELD ERROR"
//   all         takes until refused: "refused HELD ERROR"
//   check       every step still holds its pattern: "right" or "wrong"
//   drop        gives back everything: "dropped"
//   run CMD     runs a shell command as a child: its output, each line after "| ", then "ran
//               STATUS"
//   quit
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSample =
    4096;  // bytes at both ends of a step that are written and read back

std::vector<unsigned char*> held;

const char* Take(std::size_t bytes) {
  unsigned char* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return cudaGetErrorName(code);
  }
  const int pattern = static_cast<int>(held.size() % 251) + 1;
  cudaMemset(memory, pattern, kSample);
  cudaMemset(memory + bytes - kSample, pattern, kSample);
  held.push_back(memory);
  return nullptr;
}

bool Right(std::size_t bytes) {
  std::vector<unsigned char> back(kSample), expected(kSample);
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::memset(expected.data(), static_cast<int>(i % 251) + 1, kSample);
    for (unsigned char* at : {held[i], held[i] + bytes - kSample}) {
      if (cudaMemcpy(back.data(), at, kSample, cudaMemcpyDeviceToHost) != cudaSuccess ||
          back != expected)
        return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t step = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  const cudaError_t ready = cudaFree(nullptr);
  if (ready != cudaSuccess) {
    std::fprintf(stderr, "greedy: no card: %s\n", cudaGetErrorString(ready));
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("ready %d\n", static_cast<int>(getpid()));
  char line[4096];
  while (std::fgets(line, sizeof line, stdin)) {
    line[std::strcspn(line, "\n")] = 0;
    if (!std::strcmp(line, "info")) {
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      std::printf("info %zu %zu\n", total / kMiB, free / kMiB);
    } else if (!std::strcmp(line, "take") || !std::strcmp(line, "all")) {
      const char* error = nullptr;
      do error = Take(step * kMiB);
      while (!error && line[0] == 'a');
      if (error)
        std::printf("refused %zu %s\n", held.size() * step, error);
      else
        std::printf("took %zu\n", held.size() * step);
    } else if (!std::strcmp(line, "check")) {
      std::printf("%s\n", Right(step * kMiB) ? "right" : "wrong");
    } else if (!std::strcmp(line, "drop")) {
      for (unsigned char* memory : held) cudaFree(memory);
      held.clear();
      std::printf("dropped\n");
    } else if (!std::strncmp(line, "run ", 4)) {
      FILE* child = popen(line + 4, "r");
      char text[4096];
      while (child && std::fgets(text, sizeof text, child)) std::printf("| %s", text);
      std::printf("ran %d\n", child ? pclose(child) : -1);
    } else if (!std::strcmp(line, "quit")) {
      return 0;
    } else {
      std::printf("unknown command\n");
    }
  }
  return 0;
}
