#include "cli/completion.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tessera::cli {
namespace {

TEST(Completion, EverySubcommandAndOptionIsOffered) {
  for (const std::string& script : {BashCompletion(CommandTable()), ZshCompletion(CommandTable()),
                                    FishCompletion(CommandTable())}) {
    for (const CommandRow& row : CommandTable()) {
      EXPECT_NE(script.find(row.name), std::string::npos) << row.name;
    }
  }
}

// Completes `line` in a real bash with the script loaded; the answers in one line.
std::string CompleteInBash(const std::string& words, int word_index) {
  const std::string path = ::testing::TempDir() + "/tessera-completion.bash";
  std::ofstream(path) << BashCompletion(CommandTable()) << "COMP_WORDS=(" << words << ")\n"
                      << "COMP_CWORD=" << word_index << "\n_tessera\necho ${COMPREPLY[@]}\n";
  FILE* pipe = popen(("bash " + path).c_str(), "r");
  char buffer[512] = {};
  const std::size_t n = fread(buffer, 1, sizeof buffer - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  std::string text(buffer, n);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

TEST(Completion, BashCompletesSubcommandsAndValues) {
  EXPECT_EQ(CompleteInBash("tessera compl", 1), "completion");
  EXPECT_EQ(CompleteInBash("tessera completion z", 2), "zsh");
  EXPECT_EQ(CompleteInBash("tessera completion --output j", 3), "json");
}

}  // namespace
}  // namespace tessera::cli
