#include "cli/parse.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "cli/text.h"

namespace tessera::cli {
namespace {

class Echo : public Command {
 public:
  void Declare(Options& options) override {
    options.Text("-m,--mem", mem_, "MIB", "memory");
    options.Flag("--force", force_, "do it");
    options.Rest("CMD", rest_, "what to run");
  }
  int Run(const Context& context) override {
    context.out << "mem=" << mem_ << " force=" << force_ << " state=" << context.state_dir
                << " json=" << (context.output == Output::kJson);
    for (const std::string& word : rest_) context.out << " [" << word << "]";
    return 7;
  }

 private:
  std::string mem_;
  bool force_ = false;
  std::vector<std::string> rest_;
};

class Named : public Command {
 public:
  void Declare(Options& options) override { options.Positional("NAME", name_, true, "which"); }
  int Run(const Context& context) override {
    context.out << name_;
    return kOk;
  }

 private:
  std::string name_;
};

const std::array<CommandRow, 2> kTable = {
    CommandRow{"echo", "say it", "tessera echo -- true",
               +[]() -> std::unique_ptr<Command> { return std::make_unique<Echo>(); }},
    CommandRow{"named", "name it", "tessera named x",
               +[]() -> std::unique_ptr<Command> { return std::make_unique<Named>(); }},
};

struct Answer {
  int code;
  std::string out, err;
};

Answer Call(std::vector<std::string> words) {
  std::ostringstream out, err;
  const int code = RunCommandLine(kTable, words, out, err);
  return {code, out.str(), err.str()};
}

TEST(Parse, OptionsAndTheTenantsOwnWordsStayApart) {
  const Answer a = Call({"echo", "--mem", "8000", "--", "git", "checkout", "--", "--mem", "1"});
  EXPECT_EQ(a.code, 7);
  EXPECT_EQ(a.out, "mem=8000 force=0 state= json=0 [git] [checkout] [--] [--mem] [1]");
  EXPECT_EQ(Call({"echo", "-m", "1", "git", "--force", "--", "x"}).out,
            "mem=1 force=0 state= json=0 [git] [--force] [--] [x]");
}

TEST(Parse, GlobalOptionsStandBeforeOrAfterTheSubcommand) {
  EXPECT_EQ(Call({"--state", "/s", "echo", "-o", "json", "--", "x"}).out,
            "mem= force=0 state=/s json=1 [x]");
  EXPECT_EQ(Call({"echo", "--state=/s", "--force"}).out, "mem= force=1 state=/s json=0");
}

TEST(Parse, NegativeValuesReachTheCommandAndEmptyOnesDoNot) {
  EXPECT_EQ(Call({"echo", "--mem", "-5", "x"}).out, "mem=-5 force=0 state= json=0 [x]");
  EXPECT_EQ(Call({"echo", "--mem=-5", "x"}).out, "mem=-5 force=0 state= json=0 [x]");
  EXPECT_EQ(Call({"echo", "--mem", "", "x"}).err,
            "tessera echo: --mem: '' is not legal: MIB (memory)\n");
  EXPECT_EQ(
      Call({"--state", "", "named", "x"}).err,
      "tessera named: --state: '' is not legal: DIR (where this machine's promises are kept)\n");
  EXPECT_EQ(Call({"named", ""}).err, "tessera named: NAME: '' is not legal: which\n");
}

TEST(Parse, MisspeltOptionsAndSubcommandsAreNamedWithTheNearest) {
  EXPECT_EQ(Call({"echo", "--meme", "8000", "--", "x"}).code, kUsage);
  EXPECT_EQ(Call({"echo", "--meme", "8000", "--", "x"}).err,
            "tessera echo: unknown option '--meme'; did you mean '--mem'?\n");
  EXPECT_EQ(
      Call({"echo", "-x"}).err,
      "tessera echo: unknown option '-x': legal are -m, --mem, --force, --state, -o, --output, "
      "-h, --help\n");
  EXPECT_EQ(Call({"ecoh", "--mem", "1"}).code, kUsage);
  EXPECT_EQ(Call({"ecoh"}).err, "tessera: unknown subcommand 'ecoh'; did you mean 'echo'?\n");
  EXPECT_EQ(Call({"x\ny"}).err, "tessera: unknown subcommand 'x?y': legal are echo, named\n");
  EXPECT_EQ(Call({"named", "a", "b"}).err,
            "tessera named: unexpected word 'b': 'tessera named --help' says what it takes\n");
  EXPECT_EQ(Call({"echo", "--output", "yaml"}).err,
            "tessera echo: --output: 'yaml' is not legal: text or json\n");
}

TEST(Parse, AnOptionBeforeTheSubcommandIsNamedAndNotItsValue) {
  constexpr std::string_view kLegal =
      " before the subcommand: legal there are --state, -o, --output, -h, --help, --version; "
      "options of a subcommand stand behind it\n";
  EXPECT_EQ(Call({"--mem", "8000", "echo", "--", "x"}).err,
            "tessera: unknown option '--mem'" + std::string(kLegal));
  EXPECT_EQ(Call({"--mem=8000", "echo"}).err,
            "tessera: unknown option '--mem'" + std::string(kLegal));
  EXPECT_EQ(Call({"--state", "--mem", "echo"}).out, "mem= force=0 state=--mem json=0");
  EXPECT_EQ(Call({"echo", "--json"}).err,
            "tessera echo: unknown option '--json'; did you mean '--output json'?\n");
}

TEST(Parse, MissingThingsAreUsageErrorsOfOneLine) {
  EXPECT_EQ(Call({"named"}).code, kUsage);
  EXPECT_EQ(Call({"named"}).err, "tessera named: NAME: missing: which\n");
  EXPECT_EQ(Call({"echo", "--mem"}).code, kUsage);
  EXPECT_EQ(Call({"echo", "--mem"}).err, "tessera echo: --mem: the value is missing: MIB\n");
  EXPECT_EQ(Call({"echo", "--mem", "1", "--mem", "2"}).err,
            "tessera echo: --mem: given more than once: give it once\n");
  EXPECT_EQ(Call({"--state"}).err, "tessera: --state: the value is missing: DIR\n");
  EXPECT_EQ(Call({"--output", "json"}).err, "tessera: missing subcommand: legal are echo, named\n");
  const Answer a = Call({});
  EXPECT_EQ(a.code, kUsage);
  EXPECT_NE(a.err.find("say it"), std::string::npos);
}

TEST(Parse, HelpShowsExamplesAndExitCodes) {
  Answer a = Call({"echo", "--help"});
  EXPECT_EQ(a.code, kOk);
  EXPECT_NE(a.out.find("Examples:\n  tessera echo -- true\n"), std::string::npos);
  EXPECT_NE(a.out.find("--mem"), std::string::npos);
  a = Call({"--help"});
  EXPECT_EQ(a.code, kOk);
  EXPECT_NE(a.out.find("Exit codes"), std::string::npos);
  a = Call({"--version"});
  EXPECT_EQ(a.code, kOk);
  EXPECT_TRUE(a.out.starts_with("tessera "));
}

TEST(Parse, EverySubcommandHasHelpWithExamplesThatFitsATerminal) {
  for (const CommandRow& row : CommandTable()) {
    std::ostringstream out, err;
    EXPECT_EQ(RunCommandLine(CommandTable(), {std::string(row.name), "--help"}, out, err), kOk);
    EXPECT_EQ(err.str(), "");
    EXPECT_NE(out.str().find("Examples:\n  tessera " + std::string(row.name)), std::string::npos)
        << row.name;
    std::istringstream lines(out.str());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), kTextWidth) << line;
  }
  std::ostringstream out, err;
  EXPECT_EQ(RunCommandLine(CommandTable(), {"--help"}, out, err), kOk);
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), kTextWidth) << line;
}

TEST(Parse, HelpOfTheTenantsCommandIsTheTenants) {
  EXPECT_EQ(Call({"echo", "python", "--help"}).out, "mem= force=0 state= json=0 [python] [--help]");
}

}  // namespace
}  // namespace tessera::cli
