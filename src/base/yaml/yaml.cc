#include "base/yaml/yaml.h"

#include <set>
#include <string>

#include "base/plain_text.h"

namespace tessera::base {
namespace {

Status Check(const YAML::Node& node, int depth, int& left) {
  if (--left < 0) return Fail(Code::kInvalidArgument, "YAML of more than 100,000 nodes");
  if (depth > kMaxYamlDepth) return Fail(Code::kInvalidArgument, "YAML nested more than 64 deep");
  if (node.IsSequence()) {
    for (const YAML::Node& child : node) {
      if (Status ok = Check(child, depth + 1, left); !ok) return ok;
    }
  } else if (node.IsMap()) {
    std::set<std::string> keys;
    for (const auto& pair : node) {
      const YAML::Node& key = pair.first;
      const YAML::Node& value = pair.second;
      if (!key.IsScalar()) return Fail(Code::kInvalidArgument, "YAML key that is no plain text");
      if (!keys.insert(key.Scalar()).second) {
        return Fail(Code::kInvalidArgument, "key '" + base::Shown(key.Scalar()) +
                                                "' stands twice (line " +
                                                std::to_string(key.Mark().line + 1) + ")");
      }
      if (Status ok = Check(value, depth + 1, left); !ok) return ok;
    }
  }
  return {};
}

// The parser recurses for every nested bracket and every indentation; a text that nests by the
// thousand never reaches it.
bool NestsTooDeep(std::string_view text) {
  constexpr int kMost = 1000;
  int brackets = 0, dashes = 0;
  for (char c : text) {
    brackets += c == '[' || c == '{' ? 1 : 0;
    brackets -= c == ']' || c == '}' ? 1 : 0;
    dashes = c == '-' || c == '?' || c == ':' ? dashes + 1 : c == ' ' ? dashes : 0;
    if (brackets > kMost || dashes > kMost) return true;
  }
  return false;
}

// Document by document: yaml-cpp's own LoadAll finds ever another empty one where a token stands
// that begins none. Empty lines in front keep the line numbers of errors.
std::vector<YAML::Node> LoadDocuments(std::string_view text) {
  std::vector<YAML::Node> documents;
  std::string document;
  std::size_t lines = 0;
  auto load = [&] {
    if (YAML::Node node = YAML::Load(document); !node.IsNull()) documents.push_back(node);
    document.assign(lines, '\n');
  };
  while (!text.empty()) {
    std::string_view line =
        text.substr(0, text.find('\n') == text.npos ? text.npos : text.find('\n') + 1);
    text.remove_prefix(line.size());
    if (line.starts_with("---") &&
        (line.size() == 3 || std::string_view(" \t\r\n").find(line[3]) != line.npos))
      load();
    document += line;
    ++lines;
  }
  load();
  return documents;
}

}  // namespace

Result<std::vector<YAML::Node>> LoadYaml(std::string_view text) {
  if (!IsPlainText(text) || NestsTooDeep(text)) {
    return Fail(Code::kInvalidArgument, "not a YAML text");
  }
  try {
    std::vector<YAML::Node> documents = LoadDocuments(text);
    int left = kMaxYamlNodes;
    for (const YAML::Node& document : documents) {
      if (Status ok = Check(document, 0, left); !ok) return Fail(ok.error());
    }
    return documents;
  } catch (const YAML::Exception& e) {
    return Fail(Code::kInvalidArgument,
                "YAML, line " + std::to_string(e.mark.line + 1) + ": " + e.msg);
  }
}

}  // namespace tessera::base
