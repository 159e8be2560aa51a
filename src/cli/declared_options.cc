#include "cli/declared_options.h"

namespace tessera::cli {
namespace {

std::vector<std::string> SplitNames(std::string_view names) {
  std::vector<std::string> result;
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    result.emplace_back(names.substr(0, comma));
    names = comma == std::string_view::npos ? std::string_view{} : names.substr(comma + 1);
  }
  return result;
}

class Recorder : public Options {
 public:
  void Flag(std::string_view names, bool&, std::string_view help) override {
    declared_.push_back({SplitNames(names), "", {}, std::string(help)});
  }
  void Text(std::string_view names, std::string&, std::string_view value,
            std::string_view help) override {
    declared_.push_back({SplitNames(names), std::string(value), {}, std::string(help)});
  }
  void Choice(std::string_view names, std::string&, std::span<const std::string_view> words,
              std::string_view help) override {
    std::string value;
    for (std::string_view word : words) {
      if (!value.empty()) value += '|';
      value += word;
    }
    declared_.push_back(
        {SplitNames(names), value, {words.begin(), words.end()}, std::string(help)});
  }
  void Positional(std::string_view name, std::string&, bool, std::string_view help) override {
    declared_.push_back({{std::string(name)}, "", {}, std::string(help), true});
  }
  void Rest(std::string_view name, std::vector<std::string>&, std::string_view help) override {
    declared_.push_back({{std::string(name)}, "", {}, std::string(help), true, true});
  }

  std::vector<DeclaredOption> declared_;
};

}  // namespace

std::vector<DeclaredOption> DeclaredOptions(Command& command) {
  Recorder recorder;
  command.Declare(recorder);
  return std::move(recorder.declared_);
}

}  // namespace tessera::cli
