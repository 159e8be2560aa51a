// The only file that knows CLI11.
#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "cli/declared_options.h"
#include "cli/suggest.h"

namespace tessera::cli {
namespace {

constexpr std::array<std::string_view, 2> kOutputs = {"text", "json"};

std::string FormatExamples(std::string_view examples) {
  std::string text = "Examples:\n";
  while (!examples.empty()) {
    const std::size_t end = examples.find('\n');
    text += "  " + std::string(examples.substr(0, end)) + "\n";
    examples = end == std::string_view::npos ? std::string_view{} : examples.substr(end + 1);
  }
  return text;
}

class Declarer : public Options {
 public:
  explicit Declarer(CLI::App& app) : app_(app) {}

  void Flag(std::string_view names, bool& target, std::string_view help) override {
    app_.add_flag(std::string(names), target, std::string(help));
  }
  void Text(std::string_view names, std::string& target, std::string_view value,
            std::string_view help) override {
    app_.add_option(std::string(names), target, std::string(help))->type_name(std::string(value));
  }
  void Choice(std::string_view names, std::string& target, std::span<const std::string_view> words,
              std::string_view help) override {
    std::string value;
    for (std::string_view word : words) value += (value.empty() ? "" : "|") + std::string(word);
    Text(names, target, value, help);
  }
  void Positional(std::string_view name, std::string& target, bool required,
                  std::string_view help) override {
    app_.add_option(std::string(name), target, std::string(help))
        ->type_name("")
        ->required(required);
  }
  void Rest(std::string_view name, std::vector<std::string>& target,
            std::string_view help) override {
    rest_ = &target;
    // For the help text alone: the words themselves never reach the parser.
    app_.add_option(std::string(name), help_only_, std::string(help))->type_name("...");
  }

  std::vector<std::string>* rest_ = nullptr;
  std::vector<std::string> help_only_;

 private:
  CLI::App& app_;
};

const DeclaredOption* FindOption(const std::vector<DeclaredOption>& declared,
                                 std::string_view name) {
  for (const DeclaredOption& option : declared) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

// Where in `words` the tenant's own command line begins: after the first `--`, or at the first word
// that is neither an option nor an option's value. Never looks into the tenant's words.
std::size_t RestBegin(const std::vector<std::string>& words, std::size_t first,
                      const std::vector<DeclaredOption>& declared, bool& marked) {
  std::size_t i = first;
  while (i < words.size()) {
    const std::string& word = words[i];
    if (word == "--") {
      marked = true;
      return i;
    }
    if (word.size() < 2 || word[0] != '-') return i;
    const DeclaredOption* option = FindOption(declared, word);
    i += option != nullptr && !option->value.empty() ? 2 : 1;
  }
  return std::min(i, words.size());
}

std::vector<DeclaredOption> GlobalOptions() {
  return {{{"--state"}, "DIR", {}, "where this machine's promises are kept"},
          {{"-o", "--output"}, "text|json", {"text", "json"}, "how results are printed"}};
}

// The subcommand's place in `words`: the first word that is neither a global option nor its value.
std::size_t CommandIndex(const std::vector<std::string>& words) {
  bool marked = false;
  return RestBegin(words, 0, GlobalOptions(), marked);
}

int Complain(std::ostream& err, const std::string& who, const std::string& what) {
  err << who << ": " << what << "\n" << "See '" << who << " --help'.\n";
  return kUsage;
}

std::string UnknownOption(const std::string& word, const std::vector<DeclaredOption>& declared) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string_view> names = {"--help", "--state", "--output"};
  for (const DeclaredOption& option : declared) {
    if (option.positional) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  std::string message = "unknown option '" + name + "'";
  const std::string_view nearest = Nearest(name, names);
  if (!nearest.empty()) message += "; did you mean '" + std::string(nearest) + "'?";
  return message;
}

}  // namespace

int RunCommandLine(std::span<const CommandRow> table, const std::vector<std::string>& words,
                   std::ostream& out, std::ostream& err) {
  const std::size_t at = CommandIndex(words);
  const CommandRow* row = nullptr;
  if (at < words.size()) {
    std::vector<std::string_view> names;
    for (const CommandRow& candidate : table) {
      names.push_back(candidate.name);
      if (candidate.name == words[at]) row = &candidate;
    }
    if (row == nullptr) {
      std::string message = "unknown subcommand '" + words[at] + "'";
      const std::string_view nearest = Nearest(words[at], names);
      if (!nearest.empty()) message += "; did you mean '" + std::string(nearest) + "'?";
      return Complain(err, "tessera", message);
    }
  }

  CLI::App app("Tessera shares one GPU among tenants, so that limits hold.", "tessera");
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(0, 1);
  app.allow_extras();  // an option that nobody knows ends up here and is answered with the nearest
  std::string state;
  std::string output = "text";
  app.add_option("--state", state, "where this machine's promises are kept")->type_name("DIR");
  app.add_option("-o,--output", output, "how results are printed")->type_name("text|json");
  app.footer(
      "Exit codes: 0 done; 1 refused or failed (doctor: warnings); 2 wrong usage (doctor: "
      "errors).\n`tessera run` answers what its command answered; 125 = not started, 126 = "
      "not executable,\n127 = command not found.\n\n'tessera SUBCOMMAND --help' shows "
      "options and examples.");

  std::unique_ptr<Command> command;
  std::unique_ptr<Declarer> declarer;
  std::vector<DeclaredOption> declared;
  for (const CommandRow& candidate : table) {
    CLI::App* sub = app.add_subcommand(std::string(candidate.name), std::string(candidate.summary));
    sub->fallthrough();
    if (&candidate != row) continue;
    sub->footer(FormatExamples(row->examples));
    command = row->make();
    declared = DeclaredOptions(*command);
    declarer = std::make_unique<Declarer>(*sub);
    command->Declare(*declarer);
  }

  std::vector<std::string> for_parser = words;
  if (declarer && declarer->rest_ != nullptr) {
    std::vector<DeclaredOption> all = declared;
    for (DeclaredOption& global : GlobalOptions()) all.push_back(std::move(global));
    bool marked = false;
    const std::size_t begin = RestBegin(words, at + 1, all, marked);
    declarer->rest_->assign(words.begin() + static_cast<std::ptrdiff_t>(begin + (marked ? 1 : 0)),
                            words.end());
    for_parser.resize(begin);
  }

  const std::string who = row ? "tessera " + std::string(row->name) : "tessera";
  try {
    std::reverse(for_parser.begin(), for_parser.end());  // CLI11 takes them from the back
    app.parse(for_parser);
  } catch (const CLI::Success& e) {
    return app.exit(e, out, err);
  } catch (const CLI::ParseError& e) {
    return Complain(err, who, e.what());
  }
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty()) {
    if (extras[0].size() > 1 && extras[0][0] == '-') {
      return Complain(err, who, UnknownOption(extras[0], declared));
    }
    return Complain(err, who, "unexpected word '" + extras[0] + "'");
  }
  if (std::find(kOutputs.begin(), kOutputs.end(), output) == kOutputs.end()) {
    return Complain(err, who, "--output '" + output + "': legal values are text and json");
  }
  if (row == nullptr) {
    err << app.help();
    return kUsage;
  }
  const Context context{state, output == "json" ? Output::kJson : Output::kText, out, err};
  return command->Run(context);
}

}  // namespace tessera::cli
