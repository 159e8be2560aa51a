#include <exception>
#include <iostream>

#include "cli/parse.h"

int main(int argc, char** argv) {
  try {
    return tessera::cli::RunCommandLine(tessera::cli::CommandTable(), {argv + 1, argv + argc},
                                        std::cout, std::cerr);
  } catch (const std::exception& e) {
    std::cerr << "tessera: internal error: " << e.what() << "\n";
    return tessera::cli::kFailed;
  }
}
