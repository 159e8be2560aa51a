// What a subcommand of `tessera` is, without the parser that reads it.
//
// A subcommand is one file: a class that declares its options and runs, and a row in
// command_table.cc.
//
//   class Ps : public Command {
//     void Declare(Options& options) override { options.Flag("--all", all_, "finished slices too");
//     } ExitCode Run(const Context& context) override;
//   };
//
// Thread safety: one command object is used by one thread.
// Invariants:
//   1. Values are declared as text: the command checks them itself, so that its error names field,
//   value and
//      what is legal. The parser only knows which options exist.
//   2. Run() prints results on context.out and one line per problem on context.err.
#pragma once

#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// What `tessera` answers to the shell. `tessera run` passes its command's own code through and
// keeps docker's convention for its own failures, so that the two are told apart.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,        // refused, not found, or doctor has warnings
  kUsage = 2,         // bad option or value, or doctor has errors
  kRunNoRoom = 3,     // `run`, `limit`: legal, but no card has the room
  kRunRefused = 125,  // `run`: nothing was started
  kRunNotExecutable = 126,
  kRunNotFound = 127,
};

enum class Output { kText, kJson };

struct Context {
  std::string state_dir;  // where the node keeps its promises
  Output output = Output::kText;
  std::ostream& out;
  std::ostream& err;
};

// Where a command declares what it takes. `names` is "-c,--card" or "--card"; `value` is the word
// for the help text.
class Options {
 public:
  virtual ~Options() = default;
  virtual void Flag(std::string_view names, bool& target, std::string_view help) = 0;
  virtual void Text(std::string_view names, std::string& target, std::string_view value,
                    std::string_view help) = 0;
  // As Text, but the help and the shell completion list the legal words. The command still checks.
  virtual void Choice(std::string_view names, std::string& target,
                      std::span<const std::string_view> words, std::string_view help) = 0;
  virtual void Positional(std::string_view name, std::string& target, bool required,
                          std::string_view help) = 0;
  // Everything after `--`, or from the first word that is no option: a command line, untouched.
  virtual void Rest(std::string_view name, std::vector<std::string>& target,
                    std::string_view help) = 0;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual void Declare(Options& options) = 0;
  virtual int Run(const Context& context) = 0;  // an ExitCode, or what the started command answered
};

// One row of the table of subcommands.
struct CommandRow {
  std::string_view name;
  std::string_view summary;   // one line for `tessera --help`
  std::string_view examples;  // shown below the options, one command per line
  std::unique_ptr<Command> (*make)();
};

// All subcommands in the order of the help text.
std::span<const CommandRow> CommandTable();

}  // namespace tessera::cli
