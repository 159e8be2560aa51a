#include "cli/completion.h"

#include <array>
#include <ostream>

#include "cli/complain.h"
#include "cli/declared_options.h"

namespace tessera::cli {
namespace {

constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};

std::string CommandNames(std::span<const CommandRow> table) {
  std::string names;
  for (const CommandRow& row : table) names += (names.empty() ? "" : " ") + std::string(row.name);
  return names;
}

std::vector<DeclaredOption> WithGlobals(Command& command) {
  std::vector<DeclaredOption> options = DeclaredOptions(command);
  options.push_back({{"--state"}, "DIR", {}, "where this machine's promises are kept"});
  options.push_back({{"--output", "-o"}, "text|json", {"text", "json"}, "how results are printed"});
  options.push_back({{"--help"}, "", {}, "options and examples"});
  return options;
}

std::string Words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// For text between single quotes in every one of the three shells.
std::string Quoted(std::string_view text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

// zsh reads [ ] and : inside a specification.
std::string ZshText(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':') result += '\\';
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result;
}

class Completion : public Command {
 public:
  void Declare(Options& options) override {
    options.Positional("SHELL", shell_, true, "bash, zsh or fish");
  }
  int Run(const Context& context) override {
    if (shell_ == "bash") {
      context.out << BashCompletion(CommandTable());
    } else if (shell_ == "zsh") {
      context.out << ZshCompletion(CommandTable());
    } else if (shell_ == "fish") {
      context.out << FishCompletion(CommandTable());
    } else {
      return Complain(context.err, "tessera completion",
                      "SHELL: '" + base::Shown(shell_) + "' is not legal: bash, zsh or fish",
                      kUsage);
    }
    return kOk;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> MakeCompletion() { return std::make_unique<Completion>(); }

std::string BashCompletion(std::span<const CommandRow> table) {
  std::string script =
      "# bash completion for tessera\n"
      "_tessera() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      --state|--output|-o) ((i++)) ;;\n"
      "      -*) ;;\n"
      "      *) cmd=${COMP_WORDS[i]}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $prev in\n"
      "    --state) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n"
      "    --output|-o) COMPREPLY=($(compgen -W 'text json' -- \"$cur\")); return ;;\n"
      "  esac\n"
      "  case $cmd in\n"
      "    '') COMPREPLY=($(compgen -W '" +
      CommandNames(table) + " --state --output --help --version' -- \"$cur\")) ;;\n";
  for (const CommandRow& row : table) {
    const std::unique_ptr<Command> command = row.make();
    std::string all;
    std::string values;
    for (const DeclaredOption& option : WithGlobals(*command)) {
      if (option.positional) {
        if (row.name == "completion") all += " " + Words({kShells.begin(), kShells.end()});
        continue;
      }
      all += " " + Words(option.names);
      if (option.words.empty()) continue;
      std::string pattern;
      for (const std::string& name : option.names) pattern += (pattern.empty() ? "" : "|") + name;
      values += "      " + pattern + ") COMPREPLY=($(compgen -W '" + Words(option.words) +
                "' -- \"$cur\")); return ;;\n";
    }
    script += "    " + std::string(row.name) + ")\n";
    if (!values.empty()) script += "      case $prev in\n" + values + "      esac\n";
    script += "      COMPREPLY=($(compgen -W '" + all.substr(1) + "' -- \"$cur\"))\n      ;;\n";
  }
  return script + "  esac\n}\ncomplete -o default -F _tessera tessera\n";
}

std::string ZshCompletion(std::span<const CommandRow> table) {
  std::string script =
      "#compdef tessera\n# zsh completion for tessera\n_tessera() {\n  local -a commands\n  "
      "commands=(\n";
  for (const CommandRow& row : table) {
    script += "    '" + std::string(row.name) + ":" + ZshText(row.summary) + "'\n";
  }
  script +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe 'subcommand' commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CommandRow& row : table) {
    const std::unique_ptr<Command> command = row.make();
    script += "    " + std::string(row.name) + ")\n      _arguments";
    bool rest = false;
    for (const DeclaredOption& option : WithGlobals(*command)) {
      if (option.rest) {
        rest = true;
        continue;
      }
      if (option.positional) {
        script += row.name == "completion"
                      ? " \\\n        '1:" + ZshText(option.help) + ":(bash zsh fish)'"
                      : " \\\n        '1:" + ZshText(option.help) + ":'";
        continue;
      }
      for (const std::string& name : option.names) {
        script += " \\\n        '" + name + "[" + ZshText(option.help) + "]";
        if (!option.words.empty()) {
          script += ":value:(" + Words(option.words) + ")";
        } else if (!option.value.empty()) {
          script +=
              ":" + ZshText(option.value) + ":" + (option.value == "DIR" ? "_directories" : "");
        }
        script += "'";
      }
    }
    if (rest) script += " \\\n        '*::command:_normal'";
    script += "\n      ;;\n";
  }
  return script + "  esac\n}\ncompdef _tessera tessera\n";
}

std::string FishCompletion(std::span<const CommandRow> table) {
  std::string script = "# fish completion for tessera\ncomplete -c tessera -f\n";
  for (const CommandRow& row : table) {
    script += "complete -c tessera -n __fish_use_subcommand -a " + std::string(row.name) + " -d " +
              Quoted(row.summary) + "\n";
  }
  for (const CommandRow& row : table) {
    const std::unique_ptr<Command> command = row.make();
    const std::string when =
        "complete -c tessera -n '__fish_seen_subcommand_from " + std::string(row.name) + "'";
    for (const DeclaredOption& option : WithGlobals(*command)) {
      if (option.positional) {
        if (row.name == "completion") script += when + " -a 'bash zsh fish'\n";
        continue;
      }
      std::string line = when;
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.value.empty()) line += " -x";
      if (!option.words.empty()) line += " -a '" + Words(option.words) + "'";
      script += line + " -d " + Quoted(option.help) + "\n";
    }
  }
  return script;
}

}  // namespace tessera::cli
