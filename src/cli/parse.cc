// The only file that knows CLI11.
#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "base/plain_text.h"
#include "cli/complain.h"
#include "cli/declared_options.h"
#include "cli/suggest.h"
#include "cli/text.h"

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

// The parser library indents help by 30 columns and breaks no line.
std::string HelpText(std::string_view help) {
  constexpr std::size_t kHelpColumns = kTextWidth - 30;
  std::string text = Wrapped(help, kHelpColumns, "");
  text.pop_back();
  return text;
}

class Declarer : public Options {
 public:
  explicit Declarer(CLI::App& app) : app_(app) {}

  void Flag(std::string_view names, bool& target, std::string_view help) override {
    app_.add_flag(std::string(names), target, HelpText(help));
  }
  void Text(std::string_view names, std::string& target, std::string_view value,
            std::string_view help) override {
    app_.add_option(std::string(names), target, HelpText(help))->type_name(std::string(value));
  }
  void Choice(std::string_view names, std::string& target, std::span<const std::string_view> words,
              std::string_view help) override {
    std::string value;
    for (std::string_view word : words) value += (value.empty() ? "" : "|") + std::string(word);
    Text(names, target, value, help);
  }
  void Positional(std::string_view name, std::string& target, bool required,
                  std::string_view help) override {
    app_.add_option(std::string(name), target, HelpText(help))->type_name("")->required(required);
  }
  void Rest(std::string_view name, std::vector<std::string>& target,
            std::string_view help) override {
    rest_ = &target;
    // For the help text alone: the words themselves never reach the parser.
    app_.add_option(std::string(name), help_only_, HelpText(help))->type_name("...");
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

// The first option before the subcommand that is none of the program's own.
const std::string* ForeignOption(const std::vector<std::string>& words, std::size_t command) {
  const std::vector<DeclaredOption> globals = GlobalOptions();
  constexpr std::string_view kAnswered[] = {"-h", "--help", "--version"};
  for (std::size_t i = 0; i < command; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const DeclaredOption* option = FindOption(globals, name);
    if (option != nullptr) {
      i += name.size() == words[i].size() ? 1 : 0;
    } else if (name.starts_with("--") && name.size() > 2 &&
               std::find(std::begin(kAnswered), std::end(kAnswered), name) == std::end(kAnswered)) {
      return &words[i];
    }
  }
  return nullptr;
}

int Complain(std::ostream& err, const std::string& who, const std::string& what) {
  return Complain(err, who, what, kUsage);
}

std::string Joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

std::string UnknownOption(const std::string& word, const std::vector<DeclaredOption>& declared) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string_view> names;
  for (const DeclaredOption& option : declared) {
    if (option.positional) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  names.insert(names.end(), {"--state", "-o", "--output", "-h", "--help"});
  if (name == "--json") return "unknown option '--json'; did you mean '--output json'?";
  const std::string_view nearest = name.starts_with("--") ? Nearest(name, names) : "";
  return "unknown option '" + base::Shown(name) + "'" +
         (nearest.empty() ? ": legal are " + Joined(names)
                          : "; did you mean '" + std::string(nearest) + "'?");
}

// What stands before the subcommand is for every subcommand; the rest belongs behind it.
std::string NotBeforeTheSubcommand(const std::string& word) {
  return "unknown option '" + base::Shown(word.substr(0, word.find('='))) +
         "' before the subcommand: legal there are --state, -o, --output, -h, --help, --version; "
         "options of a subcommand stand behind it";
}

std::string UnknownSubcommand(const std::string& word, const std::vector<std::string_view>& names) {
  const std::string_view nearest = Nearest(word, names);
  return "unknown subcommand '" + base::Shown(word) + "'" +
         (nearest.empty() ? ": legal are " + Joined(names)
                          : "; did you mean '" + std::string(nearest) + "'?");
}

// What the parser says, in our words: which option or positional, what is wrong, what is legal.
std::string ParserError(const CLI::ParseError& error, const std::vector<DeclaredOption>& declared) {
  const std::string what = error.what();
  const std::string name = what.substr(0, what.find_first_of(": "));
  const DeclaredOption* option = FindOption(declared, name);
  if (option == nullptr) return what;
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return name + ": missing: " + option->help;
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return what;
  if (what.find("missing") == std::string::npos)
    return name + ": given more than once: give it once";
  return name + ": the value is missing: " + option->value;
}

bool IsGivenEmpty(const CLI::Option& option) {
  return option.count() > 0 && option.get_expected_max() > 0 && option.results().front().empty();
}

std::string EmptyValue(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  std::string legal = option.get_description();
  std::replace(legal.begin(), legal.end(), '\n', ' ');
  if (!option.get_type_name().empty()) legal = option.get_type_name() + " (" + legal + ")";
  return (names.empty() ? option.get_name() : "--" + names.front()) + ": '' is not legal: " + legal;
}

}  // namespace

int RunCommandLine(std::span<const CommandRow> table, const std::vector<std::string>& words,
                   std::ostream& out, std::ostream& err) {
  const std::size_t at = CommandIndex(words);
  const CommandRow* row = nullptr;
  std::vector<std::string_view> names;
  for (const CommandRow& candidate : table) {
    names.push_back(candidate.name);
    if (at < words.size() && candidate.name == words[at]) row = &candidate;
  }
  if (at < words.size()) {
    if (const std::string* foreign = ForeignOption(words, at); foreign != nullptr)
      return Complain(err, "tessera", NotBeforeTheSubcommand(*foreign));
    if (row == nullptr) {
      return Complain(err, "tessera", UnknownSubcommand(words[at], names));
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
      "Exit codes: 0 done; 1 refused or failed (doctor: warnings); 2 wrong usage\n"
      "(doctor: errors); 3 no card has the room. `tessera run` ends as its command\n"
      "ends (128 + N in the shell when signal N killed it); before that 125 = not\n"
      "started, 126 = not executable, 127 = not found. All of them: docs/exit-codes.md\n\n"
      "'tessera SUBCOMMAND --help' shows options and examples.");

  std::unique_ptr<Command> command;
  std::unique_ptr<Declarer> declarer;
  std::vector<DeclaredOption> declared;
  for (const CommandRow& candidate : table) {
    CLI::App* sub = app.add_subcommand(std::string(candidate.name), HelpText(candidate.summary));
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
    for (DeclaredOption& global : GlobalOptions()) declared.push_back(std::move(global));
    return Complain(err, who, ParserError(e, declared));
  }
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty()) {
    if (extras[0].size() > 1 && extras[0][0] == '-') {
      return Complain(err, who, UnknownOption(extras[0], declared));
    }
    return Complain(err, who,
                    "unexpected word '" + base::Shown(extras[0]) + "': '" + who +
                        " --help' says what it takes");
  }
  if (std::find(kOutputs.begin(), kOutputs.end(), output) == kOutputs.end()) {
    return Complain(err, who, "--output: '" + base::Shown(output) + "' is not legal: text or json");
  }
  if (words.empty()) {
    err << app.help();
    return kUsage;
  }
  if (row == nullptr) return Complain(err, who, "missing subcommand: legal are " + Joined(names));
  // An empty value is what an unset shell variable leaves: never as if the option were not there.
  for (const CLI::Option* option : app.get_options()) {
    if (IsGivenEmpty(*option)) return Complain(err, who, EmptyValue(*option));
  }
  for (const CLI::Option* option : app.get_subcommand(std::string(row->name))->get_options()) {
    if (IsGivenEmpty(*option)) return Complain(err, who, EmptyValue(*option));
  }
  const Context context{state, output == "json" ? Output::kJson : Output::kText, out, err};
  return command->Run(context);
}

}  // namespace tessera::cli
